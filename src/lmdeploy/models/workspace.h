// Memory for what lives no longer than one block of the forward pass.
#pragma once

#include <algorithm>
#include <cstdint>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/tensor.h"

namespace lmdeploy {

/// Bytes that one take() of these shapes needs.
inline int64_t workspace_bytes(DType dtype, int64_t rows, int64_t cols) {
  constexpr int64_t kAlignment = 64;
  return (rows * row_bytes(dtype, cols) + kAlignment - 1) / kAlignment * kAlignment;
}

/// A stack of tensors in one allocation: a step allocates nothing. Untouched pages cost nothing on the host.
class Workspace {
 public:
  Workspace(int64_t bytes, Allocator& allocator)
      : memory_(DType::kI8, {std::max<int64_t>(bytes, 1)}, allocator) {}

  size_t bytes() const { return memory_.bytes(); }
  /// What was taken is free again.
  void reset() { used_ = 0; }
  TensorView take(DType dtype, int64_t rows, int64_t cols) {
    std::byte* data = memory_.view().data() + used_;
    used_ += workspace_bytes(dtype, rows, cols);
    LMD_CHECK(used_ <= static_cast<int64_t>(memory_.bytes()), used_, " bytes of ", memory_.bytes());
    return {data, dtype, {rows, cols}};
  }

 private:
  Tensor memory_;
  int64_t used_ = 0;
};

}  // namespace lmdeploy
