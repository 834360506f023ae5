// GGUF v2/v3 files: metadata and tensors, checked before anything is allocated.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "lmdeploy/core/mapped_file.h"
#include "lmdeploy/core/tensor.h"

namespace lmdeploy {

/// An array of numbers is widened to int64 or double; strings point into the mapped file.
using GgufValue = std::variant<bool, int64_t, uint64_t, double, std::string_view, std::vector<bool>,
                               std::vector<int64_t>, std::vector<double>, std::vector<std::string_view>>;

struct GgufTensor {
  std::string_view name;
  DType dtype = DType::kF32;
  Shape shape;  // outermost first (the file stores it innermost first)
  const std::byte* data = nullptr;
  size_t bytes = 0;
};

/// Read-only; thread-safe. Throws Error(kInvalidData | kUnsupported) naming file, key or tensor.
class GgufFile {
 public:
  explicit GgufFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  /// nullptr when the key is absent.
  const GgufValue* find(std::string_view key) const;
  /// Absent: nothing / fallback. Another type than asked for: Error(kInvalidData).
  std::string_view get_string(std::string_view key, std::string_view fallback = {}) const;
  int64_t get_int(std::string_view key, int64_t fallback) const;
  double get_double(std::string_view key, double fallback) const;
  bool get_bool(std::string_view key, bool fallback) const;
  const std::vector<std::pair<std::string_view, GgufValue>>& metadata() const { return metadata_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const MappedFile& file() const { return file_; }

 private:
  MappedFile file_;
  std::vector<std::pair<std::string_view, GgufValue>> metadata_;
  std::vector<GgufTensor> tensors_;
};

}  // namespace lmdeploy
