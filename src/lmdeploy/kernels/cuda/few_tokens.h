// linear for few tokens with 16-bit weights: a kernel of its own, where a library's do not reach the memory's
// speed.
#pragma once

#include <optional>

#include "lmdeploy/kernels/cuda/cuda_kernels.h"

namespace lmdeploy::cuda {

struct FewTokensArgs {
  const void* weight = nullptr;  // [rows, cols], contiguous
  const void* x = nullptr;       // [tokens, cols]
  int64_t x_stride;              // elements
  std::byte* out;
  int64_t out_stride_bytes;
  DType out_dtype;
  const float* bias = nullptr;  // [rows], may be null
  int rows, cols, tokens;
  /// glu() of the product, whose first half of `rows` are gates. `out` is of T then.
  std::optional<Activation> glu = std::nullopt;
  /// The order of a sum does not depend on the number of tokens.
  bool one_order = false;
};

constexpr int kMostFewTokens = 16;

/// x and weight are of T, with rows of whole 16 bytes. A token's results are the same bits whatever else is
/// in x; beyond kMostFewTokens that is its only merit.
template <typename T>
void run_few_tokens(const FewTokensArgs& args, const DeviceLimits& device, cudaStream_t stream);

}  // namespace lmdeploy::cuda
