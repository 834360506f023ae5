// linear for few tokens: reads each weight once, as fast as memory gives them.
//
// Weights are the left factor of 16x8x16 products, tokens the right one. A lane reads 16 bytes of a row of
// either, eight consecutive columns, and takes them as the columns that two products want: a sum does not
// mind the order of its terms. Both go to registers, one unit of columns ahead. The warps of a block share
// its rows' columns and add their sums at last, in order.
#pragma once

#include "lmdeploy/kernels/cuda/few_tokens_sums.cuh"
#include "lmdeploy/kernels/cuda/launch.cuh"
#include "lmdeploy/kernels/cuda/mma.cuh"

namespace lmdeploy::cuda {
namespace {

using Block = BlockShape<1, 8>;
constexpr int kStep = 32;  // columns
constexpr int kSteps = 2;  // of a unit
constexpr int kUnit = kSteps * kStep;

/// 16 rows for kTokenTiles * 8 tokens; the terms of a sum come in the same order however many tokens. For
/// glu() 8 gates and the 8 rows that they gate.
template <typename T, int kTokenTiles, bool kGlu>
class FewTokens {
  static constexpr int kOutputs = kGlu ? 8 : 16;

 public:
  using Sums = FewTokensSums<T, Block, kTokenTiles, kGlu>;

  __device__ FewTokens(const FewTokensArgs& a, Activation activation)
      : a_(a),
        activation_(activation),
        outputs_(kGlu ? a.rows / 2 : a.rows),
        first_row_(static_cast<int>(blockIdx.y) * kOutputs),
        first_token_(static_cast<int>(blockIdx.x) * Sums::kTokens),
        rows_left_(outputs_ - first_row_ - lane() / 4),
        tokens_left_(a.tokens - first_token_ - lane() / 4),
        row_(static_cast<const T*>(a.weight) + int64_t{first_row_ + lane() / 4} * a.cols),
        token_(static_cast<const T*>(a.x) + (first_token_ + lane() / 4) * a.x_stride) {}

  __device__ void run(typename Sums::Shared& shared) {
    int k = warp() * kUnit;  // of the warp: its lanes stay together
    for (int j = 0; j < kSteps; ++j) load_step(j, k + j * kStep);
    wait_for_previous_kernel();
    for (int j = 0; j < kSteps; ++j) load_tokens(j, k + j * kStep);
    for (; k < a_.cols; k += Block::kColumnWarps * kUnit) multiply_unit(k + Block::kColumnWarps * kUnit);
    sums_.finish(shared, a_, {static_cast<const std::byte*>(a_.weight), a_.bias, first_token_, a_.tokens},
                 activation_, first_row_);
  }

 private:
  // Zeros beyond the columns, rows and tokens. `k`: column at which the step begins.
  __device__ void load_step(int j, int k) {
    k += lane() % 4 * 8;
    const int second = kGlu ? outputs_ : 8;  // row after the lane's first
#pragma unroll
    for (int r = 0; r < 2; ++r)
      weights_[j][r] = k < a_.cols && (kGlu ? 0 : r * 8) < rows_left_
                           ? load_weights(row_ + int64_t{r * second} * a_.cols + k)
                           : uint4{};
  }
  __device__ void load_tokens(int j, int k) {
    k += lane() % 4 * 8;
#pragma unroll
    for (int t = 0; t < kTokenTiles; ++t)
      x_[j][t] = k < a_.cols && t * 8 < tokens_left_
                     ? *reinterpret_cast<const uint4*>(token_ + t * 8 * a_.x_stride + k)
                     : uint4{};
  }
  // As each step is done, the next unit's takes its place.
  __device__ void multiply_unit(int next_k) {
#pragma unroll
    for (int j = 0; j < kSteps; ++j) {
      multiply_step(weights_[j], x_[j]);
      load_step(j, next_k + j * kStep);
      load_tokens(j, next_k + j * kStep);
    }
  }
  __device__ void multiply_step(const uint4 (&w)[2], const uint4 (&x)[kTokenTiles]) {
    const uint32_t front[4] = {w[0].x, w[1].x, w[0].y, w[1].y}, back[4] = {w[0].z, w[1].z, w[0].w, w[1].w};
#pragma unroll
    for (int t = 0; t < kTokenTiles; ++t) {
      mma<T>(sums_.values[t], front, x[t].x, x[t].y);
      mma<T>(sums_.values[t], back, x[t].z, x[t].w);
    }
  }

  const FewTokensArgs& a_;
  const Activation activation_;
  const int outputs_;                  // of all blocks
  const int first_row_, first_token_;  // of the block
  const int rows_left_, tokens_left_;  // from the lane's on
  const T *row_, *token_;              // the lane's
  uint4 weights_[kSteps][2], x_[kSteps][kTokenTiles];
  Sums sums_;
};

template <typename T, int kTokenTiles, bool kGlu>
__global__ __launch_bounds__(Block::kThreads, 5 - std::min(kTokenTiles, 3)) void few_tokens_kernel(
    const __grid_constant__ FewTokensArgs a, Activation activation) {
#if LMDEPLOY_HAS_MMA
  using Few = FewTokens<T, kTokenTiles, kGlu>;
  __shared__ typename Few::Sums::Shared shared;
  Few(a, activation).run(shared);
#endif
}

template <typename T, int kTokenTiles>
void launch_few_tokens(const FewTokensArgs& args, cudaStream_t stream) {
  // Blocks of the same rows one after another: the cache has the weights.
  const dim3 blocks(static_cast<unsigned>(ceil_div(args.tokens, 8 * kTokenTiles)),
                    static_cast<unsigned>(ceil_div(args.rows, 16)));
  // Not let in early: its blocks would take the place of those that they wait for.
  if (args.glu)
    few_tokens_kernel<T, kTokenTiles, true><<<blocks, Block::kThreads, 0, stream>>>(args, *args.glu);
  else
    few_tokens_kernel<T, kTokenTiles, false><<<blocks, Block::kThreads, 0, stream>>>(args, Activation::kSilu);
}

}  // namespace

template <typename T>
void run_few_tokens(const FewTokensArgs& args, cudaStream_t stream) {
  if (args.tokens <= 8)
    launch_few_tokens<T, 1>(args, stream);
  else if (args.tokens <= 16)
    launch_few_tokens<T, 2>(args, stream);
  else
    launch_few_tokens<T, 4>(args, stream);
}

}  // namespace lmdeploy::cuda
