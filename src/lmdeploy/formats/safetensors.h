// safetensors files: 8 bytes header length (little-endian), a JSON header, then the tensors' bytes back to
// back. Format: https://github.com/huggingface/safetensors (README, "Format").
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lmdeploy/core/mapped_file.h"
#include "lmdeploy/core/tensor.h"

namespace lmdeploy {

struct SafetensorsTensor {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  const std::byte* data = nullptr;  // not necessarily aligned for its dtype: the header may have any length
  size_t bytes = 0;
};

struct SafetensorsContent {
  std::vector<SafetensorsTensor> tensors;                     // in header order
  std::vector<std::pair<std::string, std::string>> metadata;  // "__metadata__"
};

/// Reads a whole file from memory; `where` (its path) begins every message. The tensors point into `bytes`.
/// Everything is checked before it is used: the tensors lie inside the file, without overlap or hole, and
/// have the size that shape and dtype give. Throws Error(kInvalidData), or kUnsupported for a dtype (u16,
/// ...) or rank that DType and Shape cannot express.
SafetensorsContent parse_safetensors(std::span<const std::byte> bytes, std::string_view where);

/// A mapped file. Read-only; thread-safe.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::vector<SafetensorsTensor>& tensors() const { return content_.tensors; }
  const std::vector<std::pair<std::string, std::string>>& metadata() const { return content_.metadata; }
  /// nullptr when there is none of that name.
  const SafetensorsTensor* find(std::string_view name) const;
  const MappedFile& file() const { return file_; }

 private:
  MappedFile file_;
  SafetensorsContent content_;
};

struct NamedTensor {
  std::string name;
  ConstTensorView tensor;
};

/// Writes `tensors` sorted by dtype (wide ones first), then name, with a header padded to 8 bytes, as the
/// reference does: equal input gives equal bytes, and every tensor is aligned. The file appears under its
/// name only when it is complete. Throws Error(kInvalidArgument) for a name given twice, kUnsupported for a
/// quantised dtype, kIo.
void write_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                       std::span<const std::pair<std::string, std::string>> metadata = {});

}  // namespace lmdeploy
