// Weights saved by torch.save (.bin, .pt, .pth): a pickled dict of tensors and their raw storages, in a zip
// archive (PyTorch 1.6 and newer) or one after another (older). Nothing of the pickle is executed.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lmdeploy/core/mapped_file.h"
#include "lmdeploy/core/tensor.h"

namespace lmdeploy {

struct TorchTensor {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<int64_t> strides;  // in elements, one per dimension; empty when the rows are contiguous
  std::span<const std::byte>
      stored;  // from the first element to the end of the last; not necessarily aligned
};

/// Reads a whole file from memory; `where` (its path) begins every message. The tensors point into `bytes`,
/// lie inside their storages and have at most as many elements as those; several may share one (tied
/// weights). Entries of the dict that are no tensors are left out. Throws Error: kUnsupported for compressed
/// archives and for names and opcodes that weights do not need, kInvalidData for what is broken.
std::vector<TorchTensor> parse_torch(std::span<const std::byte> bytes, std::string_view where);

/// A mapped file. Read-only; thread-safe.
class TorchFile {
 public:
  explicit TorchFile(const std::string& path) : file_(path), tensors_(parse_torch(file_.bytes(), path)) {}
  const std::vector<TorchTensor>& tensors() const { return tensors_; }
  const MappedFile& file() const { return file_; }

 private:
  MappedFile file_;
  std::vector<TorchTensor> tensors_;
};

}  // namespace lmdeploy
