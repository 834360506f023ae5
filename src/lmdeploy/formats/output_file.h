// A file that appears under its name only when it is complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>

#include "lmdeploy/core/tensor.h"

namespace lmdeploy {

/// Writes to "PATH.partial" and renames it in commit(); without commit() the partial file is removed. A link
/// is followed; a device or pipe is not replaced but written to, once there is something to write. Throws
/// Error(kIo) with the path and the system's reason.
class OutputFile {
 public:
  explicit OutputFile(const std::string& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::string_view bytes);
  /// The elements of `tensor`, row after row without gaps.
  void write(ConstTensorView tensor);
  /// Zero bytes (or `fill`) up to a multiple of `alignment`.
  void pad_to(size_t alignment, char fill = '\0');
  size_t size() const { return size_; }
  void commit();

 private:
  void open();
  void check() const;

  std::string path_;
  std::string partial_;  // path_ itself where that is no file to be replaced
  std::ofstream stream_;
  size_t size_ = 0;  // bytes written
  bool committed_ = false;
};

/// Bytes of the elements of `tensor`, without gaps between rows.
size_t packed_bytes(ConstTensorView tensor);

}  // namespace lmdeploy
