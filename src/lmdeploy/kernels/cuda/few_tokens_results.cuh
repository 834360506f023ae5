// What the kernels of `linear` for few tokens share: how weights are read and results are stored.
#pragma once

#include "lmdeploy/kernels/cuda/activated.cuh"
#include "lmdeploy/kernels/cuda/few_tokens.h"
#include "lmdeploy/kernels/cuda/types.cuh"
#include "lmdeploy/kernels/cuda/work.cuh"

namespace lmdeploy::cuda {
namespace {

__device__ inline int lane() { return static_cast<int>(threadIdx.x) % 32; }
__device__ inline int warp() { return static_cast<int>(threadIdx.x) / 32; }

/// An output of a token: the sum of a row, which for glu() gates that of another.
template <bool kGlu, typename T>
__device__ float output_of(const FewTokensArgs& a, const float* bias, Activation activation, int row,
                           float sum, float up) {
  const auto with_bias = [&](float value, int of) { return bias == nullptr ? value : value + bias[of]; };
  const auto rounded = [](float value) { return to_float(from_float<T>(value)); };
  if constexpr (kGlu)  // rounded as if the products had been stored
    return activated(rounded(with_bias(sum, row)), activation) * rounded(with_bias(up, row + a.rows / 2));
  return with_bias(sum, row);
}

template <bool kGlu, typename T>
__device__ void store_output(const FewTokensArgs& a, const float* bias, Activation activation, int token,
                             int row, float sum, float up) {
  store_any(a.out + token * a.out_stride_bytes, a.out_dtype, row,
            output_of<kGlu, T>(a, bias, activation, row, sum, up));
}

/// Stores what sum(token, row) gives of a block's tokens and rows; with kGlu rows from kOutputs on are gated
/// by those before. So many threads call it, the block's first ones.
template <bool kGlu, int kTokens, int kOutputs, typename T, typename Sum>
__device__ void store(const FewTokensArgs& a, const Work& work, Activation activation, int first_row,
                      const Sum& sum, int threads) {
  const int outputs = kGlu ? a.rows / 2 : a.rows;
  const int count = min(kTokens, work.end_token - work.first_token) * kOutputs;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += threads) {
    const int at = i % kOutputs, row = first_row + at, token = work.first_token + i / kOutputs;
    if (row >= outputs) continue;
    store_output<kGlu, T>(a, work.bias, activation, token, row, sum(i / kOutputs, at),
                          kGlu ? sum(i / kOutputs, at + kOutputs) : 0);
  }
}

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
