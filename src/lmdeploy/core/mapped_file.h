// A read-only memory-mapped file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace lmdeploy {

/// Pages are read on first touch. The mapping keeps working when the file is unlinked, not when it is
/// truncated.
class MappedFile {
 public:
  /// Throws Error(kNotFound | kIo) with the path and the system's reason, kInvalidData for a Git LFS pointer.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }
  /// Tells the system that these pages are not needed again (after a tensor has been converted), so that the
  /// resident size stays small. Only whole pages inside the range are dropped.
  void drop(std::span<const std::byte> range) const;

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

/// The whole file as text. Throws Error(kNotFound | kIo | kInvalidData when larger than max_bytes).
std::string read_file(const std::string& path, size_t max_bytes = size_t{256} << 20);

}  // namespace lmdeploy
