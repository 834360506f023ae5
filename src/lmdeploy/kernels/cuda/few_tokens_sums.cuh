// What the warps of a block that share the columns of `linear` do at last: add up their sums, in order, and
// store the results.
#pragma once

#include "lmdeploy/kernels/cuda/activated.cuh"
#include "lmdeploy/kernels/cuda/few_tokens.h"
#include "lmdeploy/kernels/cuda/types.cuh"
#include "lmdeploy/kernels/cuda/work.cuh"

namespace lmdeploy::cuda {
namespace {

__device__ inline int lane() { return static_cast<int>(threadIdx.x) % 32; }
__device__ inline int warp() { return static_cast<int>(threadIdx.x) / 32; }

/// A block's warps: kRowWarps have other rows, 16 each, and kColumnWarps share the columns of each of these.
template <int kRowWarpsOf, int kColumnWarpsOf>
struct BlockShape {
  static constexpr int kRowWarps = kRowWarpsOf, kColumnWarps = kColumnWarpsOf;
  static constexpr int kThreads = kRowWarps * kColumnWarps * 32, kRows = 16 * kRowWarps;

  __device__ static int row_warp() { return warp() % kRowWarps; }
  __device__ static int column_warp() { return warp() / kRowWarps; }
};

/// Stores what sum(token, row) gives of a block's tokens and rows; with kGlu rows from kOutputs on are gated
/// by those before.
template <bool kGlu, int kTokens, int kOutputs, int kThreads, typename T, typename Sum>
__device__ void store(const FewTokensArgs& a, const Work& work, Activation activation, int first_row,
                      const Sum& sum) {
  const int outputs = kGlu ? a.rows / 2 : a.rows;
  const auto with_bias = [&](float value, int row) {
    return work.bias == nullptr ? value : value + work.bias[row];
  };
  const auto rounded = [](float value) { return to_float(from_float<T>(value)); };
  for (int i = static_cast<int>(threadIdx.x); i < kTokens * kOutputs; i += kThreads) {
    const int at = i % kOutputs, row = first_row + at, token = work.first_token + i / kOutputs;
    if (token >= work.end_token || row >= outputs) continue;
    float result = with_bias(sum(i / kOutputs, at), row);
    if constexpr (kGlu) {  // rounded as if the products had been stored
      const float up = rounded(with_bias(sum(i / kOutputs, at + kOutputs), row + outputs));
      result = activated(rounded(result), activation) * up;
    }
    store_any(a.out + token * a.out_stride_bytes, a.out_dtype, row, result);
  }
}

/// A warp's sums of 16 rows for kTokenTiles * 8 tokens. With kGlu the first half of the block's rows are
/// gates, the second half what they gate.
template <typename T, typename Shape, int kTokenTiles, bool kGlu>
class FewTokensSums {
 public:
  static constexpr int kTokens = 8 * kTokenTiles, kOutputs = kGlu ? Shape::kRows / 2 : Shape::kRows;
  using Shared = float[Shape::kColumnWarps][kTokens][Shape::kRows];

  /// As mma() leaves them.
  float values[kTokenTiles][4] = {};

  /// The block's outputs begin with `first_row`. All threads call it.
  __device__ void finish(Shared& shared, const FewTokensArgs& a, const Work& work, Activation activation,
                         int first_row) const {
    share(shared[Shape::column_warp()]);
    __syncthreads();
    store<kGlu, kTokens, kOutputs, Shape::kThreads, T>(a, work, activation, first_row,
                                                       [&](int token, int at) {
                                                         float sum = 0;
                                                         for (int w = 0; w < Shape::kColumnWarps; ++w)
                                                           sum += shared[w][token][at];
                                                         return sum;
                                                       });
  }

 private:
  __device__ void share(float (&own)[kTokens][Shape::kRows]) const {
    const int row = Shape::row_warp() * 16 + lane() / 4;
    for (int t = 0; t < kTokenTiles; ++t)
      for (int i = 0; i < 4; ++i) own[t * 8 + lane() % 4 * 2 + i % 2][row + i / 2 * 8] = values[t][i];
  }
};

/// 16 bytes that are read once.
__device__ inline uint4 load_weights(const void* from) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
}

}  // namespace
}  // namespace lmdeploy::cuda
