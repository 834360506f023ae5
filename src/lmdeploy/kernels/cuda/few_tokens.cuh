// linear for few tokens: reads each weight once, as fast as memory gives them.
//
// Weights are the left factor of 16x8x16 products, tokens the right one. A lane reads 16 bytes of a row of
// either, eight consecutive columns, and takes them as the columns that two products want: a sum does not
// mind the order of its terms. Weights go from memory to registers, one unit of columns ahead; tokens come
// from L1. The warps of a block share its rows' columns and add their sums at last, in order.
#pragma once

#include "lmdeploy/kernels/cuda/few_tokens.h"
#include "lmdeploy/kernels/cuda/launch.cuh"
#include "lmdeploy/kernels/cuda/mma.cuh"

namespace lmdeploy::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;
constexpr int kStep = 32;  // columns
constexpr int kSteps = 4;  // of a unit
constexpr int kUnit = kSteps * kStep;

__device__ inline uint4 load_weights(const void* from) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
}

/// kTokenTiles * 8 tokens, kRowTiles * 16 rows.
template <typename T, int kTokenTiles, int kRowTiles>
class FewTokens {
  static constexpr int kRows = 16 * kRowTiles, kTokens = 8 * kTokenTiles;

 public:
  using Sums = float[kWarps][kTokens][kRows];  // in shared memory

  __device__ explicit FewTokens(const FewTokensArgs& a)
      : a_(a), first_row_(static_cast<int>(blockIdx.x) * kRows) {
    for (int r = 0; r < kRowTiles; ++r)
      for (int half = 0; half < 2; ++half) {
        const int row = min(first_row_ + r * 16 + half * 8 + lane() / 4, a.rows - 1);  // of no use beyond it
        rows_[r][half] = static_cast<const T*>(a.weight) + int64_t{row} * a.cols;
      }
  }

  __device__ void run(Sums& shared) {
    int k = static_cast<int>(threadIdx.x) / 32 * kUnit + lane() % 4 * 8;
    for (int j = 0; j < kSteps; ++j) load_step(j, k + j * kStep);
    wait_for_previous_kernel();
    for (int t = 0; t < kTokenTiles; ++t)
      tokens_[t] = static_cast<const T*>(a_.x) + min(t * 8 + lane() / 4, a_.tokens - 1) * a_.x_stride;
    for (; k < a_.cols; k += kWarps * kUnit) multiply_unit(k, k + kWarps * kUnit);
    share(shared);
    __syncthreads();
    store(shared);
  }

 private:
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }

  // Zeros beyond the columns.
  __device__ void load_step(int j, int k) {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        weights_[j][r][half] = k < a_.cols ? load_weights(rows_[r][half] + k) : uint4{};
  }
  // As each step is done, the next unit's takes its place.
  __device__ void multiply_unit(int k, int next_k) {
    uint4 x[kSteps][kTokenTiles];
#pragma unroll
    for (int j = 0; j < kSteps; ++j)
#pragma unroll
      for (int t = 0; t < kTokenTiles; ++t)
        x[j][t] =
            k + j * kStep < a_.cols ? *reinterpret_cast<const uint4*>(tokens_[t] + k + j * kStep) : uint4{};
#pragma unroll
    for (int j = 0; j < kSteps; ++j) {
      multiply_step(weights_[j], x[j]);
      load_step(j, next_k + j * kStep);
    }
  }
  __device__ void multiply_step(const uint4 (&w)[kRowTiles][2], const uint4 (&x)[kTokenTiles]) {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      const uint32_t front[4] = {w[r][0].x, w[r][1].x, w[r][0].y, w[r][1].y},
                     back[4] = {w[r][0].z, w[r][1].z, w[r][0].w, w[r][1].w};
#pragma unroll
      for (int t = 0; t < kTokenTiles; ++t) {
        mma<T>(sums_[r][t], front, x[t].x, x[t].y);
        mma<T>(sums_[r][t], back, x[t].z, x[t].w);
      }
    }
  }
  __device__ void share(Sums& shared) const {
    auto& own = shared[threadIdx.x / 32];
    for (int r = 0; r < kRowTiles; ++r)
      for (int t = 0; t < kTokenTiles; ++t)
        for (int i = 0; i < 4; ++i)
          own[t * 8 + lane() % 4 * 2 + i % 2][r * 16 + lane() / 4 + i / 2 * 8] = sums_[r][t][i];
  }
  __device__ void store(const Sums& shared) const {
    for (int i = static_cast<int>(threadIdx.x); i < kTokens * kRows; i += kThreads) {
      const int token = i / kRows, row = first_row_ + i % kRows;
      if (token >= a_.tokens || row >= a_.rows) continue;
      float sum = 0;
      for (int w = 0; w < kWarps; ++w) sum += shared[w][token][i % kRows];
      store_any(a_.out + token * a_.out_stride_bytes, a_.out_dtype, row,
                a_.bias == nullptr ? sum : sum + a_.bias[row]);
    }
  }

  const FewTokensArgs& a_;
  const int first_row_;
  const T* rows_[kRowTiles][2];
  const T* tokens_[kTokenTiles];
  uint4 weights_[kSteps][kRowTiles][2];
  float sums_[kRowTiles][kTokenTiles][4] = {};
};

template <typename T, int kTokenTiles, int kRowTiles>
__global__ __launch_bounds__(kThreads, kRowTiles == 1 ? 3 : 2) void few_tokens_kernel(
    const __grid_constant__ FewTokensArgs a) {
#if LMDEPLOY_HAS_MMA
  using Few = FewTokens<T, kTokenTiles, kRowTiles>;
  __shared__ typename Few::Sums sums;
  Few(a).run(sums);
#endif
}

template <typename T, int kTokenTiles, int kRowTiles>
void launch_few_tokens(const FewTokensArgs& args, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(ceil_div(args.rows, 16 * kRowTiles));
  launch(few_tokens_kernel<T, kTokenTiles, kRowTiles>, dim3(blocks), kThreads, 0, stream, args);
}

}  // namespace

template <typename T>
void run_few_tokens(const FewTokensArgs& args, cudaStream_t stream) {
  // Each block reads all tokens: where L1 cannot hold them, blocks of more rows read less.
  constexpr int64_t kL1Bytes = 160 << 10;
  if (args.tokens <= 8)
    launch_few_tokens<T, 1, 1>(args, stream);
  else if (args.tokens * int64_t{args.cols} * 2 <= kL1Bytes)
    launch_few_tokens<T, 2, 1>(args, stream);
  else
    launch_few_tokens<T, 2, 2>(args, stream);
}

}  // namespace lmdeploy::cuda
