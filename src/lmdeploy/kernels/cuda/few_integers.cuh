// linear for few tokens with weights of 4 or 8 bits: as few_tokens.cuh, with tiles of integers.
#pragma once

#include "lmdeploy/kernels/cuda/few_integers.h"
#include "lmdeploy/kernels/cuda/integer_tile.cuh"
#include "lmdeploy/kernels/cuda/launch.cuh"

namespace lmdeploy::cuda {
namespace {

/// All tokens have the weight of FewTokensArgs.
struct OneWeight {};

template <int kTokens>
__device__ Work find_work(const FewTokensArgs& a, OneWeight) {
  const int first = static_cast<int>(blockIdx.x) * kTokens;
  return {static_cast<const std::byte*>(a.weight), a.bias, first, min(first + kTokens, a.tokens)};
}
template <int kTokens>
__device__ Work find_work(const FewTokensArgs& a, const ExpertWeights& experts) {
  return find_work<kTokens>(experts, a.tokens, static_cast<int>(blockIdx.x));
}

template <typename T, typename W, typename Block, int kTokenTiles, bool kGlu>
__device__ void multiply_few(const FewTokensArgs& a, const Work& work, Activation activation) {
  constexpr int kDepth = W::kLoads >= 4 ? 1 : 4 / W::kLoads;  // 64 bytes a lane
  using Sums = FewTokensSums<T, Block, kTokenTiles, kGlu>;
  __shared__ typename Sums::Shared shared;
  const int first_row = static_cast<int>(blockIdx.y) * Sums::kOutputs;
  const int units = (a.cols + W::kUnitCols - 1) / W::kUnitCols;
  const int64_t tile = tile_of_warp<Block, kGlu>(a.rows, first_row);
  IntegerTile<T, W, kTokenTiles, kDepth> integers(work.weight + tile * units * W::kUnitBytes,
                                                  Block::column_warp(), Block::kColumnWarps, units);
  const T* tokens[kTokenTiles];
#pragma unroll
  for (int t = 0; t < kTokenTiles; ++t) {  // the last one stands for those that are not there
    const int token = min(work.first_token + t * 8 + lane() / 4, work.end_token - 1);
    tokens[t] = static_cast<const T*>(a.x) + token * a.x_stride + lane() % 4 * 8;
  }
  wait_for_previous_kernel();
  Sums sums;
  for (int unit = Block::column_warp(); unit < units; unit += kDepth * Block::kColumnWarps) {
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      const int k = (unit + d * Block::kColumnWarps) * W::kUnitCols;
      if (k >= a.cols) break;  // all lanes
      integers.multiply(sums.values, d, a.cols - k, [&](int t, int column) {
        return *reinterpret_cast<const uint4*>(tokens[t] + k + column);
      });
      integers.load_next(d);
    }
  }
  sums.finish(shared, a, work, activation, first_row);
}

template <typename T, typename W, typename Block, int kTokenTiles, bool kGlu, typename Weights>
__global__ __launch_bounds__(Block::kThreads, 768 / Block::kThreads) void few_integers_kernel(
    const __grid_constant__ FewTokensArgs a, Activation activation, const __grid_constant__ Weights weights) {
#if LMDEPLOY_HAS_MMA
  const Work work = find_work<kTokenTiles * 8>(a, weights);
  if (work.weight != nullptr) multiply_few<T, W, Block, kTokenTiles, kGlu>(a, work, activation);
#endif
}

template <typename T, typename W, int kTokenTiles, bool kGlu, typename Weights>
void launch_few_integers(const FewTokensArgs& args, int64_t token_tiles, const Weights& weights,
                         cudaStream_t stream) {
  using Block = BlockShape<kGlu ? 2 : 1, 8>;
  constexpr int kOutputs = FewTokensSums<T, Block, kTokenTiles, kGlu>::kOutputs;
  const int outputs = kGlu ? args.rows / 2 : args.rows;
  const dim3 grid(static_cast<unsigned>(token_tiles), static_cast<unsigned>(ceil_div(outputs, kOutputs)));
  few_integers_kernel<T, W, Block, kTokenTiles, kGlu>
      <<<grid, Block::kThreads, 0, stream>>>(args, args.glu.value_or(Activation::kSilu), weights);
}

}  // namespace

template <typename T, int kBits>
void run_few_integers(const FewTokensArgs& args, const IntegerFormat& format, cudaStream_t stream) {
  with_integers_of<kBits>(format, [&]<typename W>(Type<W>) {
    const bool one = args.tokens <= 8 && !args.one_order;
    if (args.glu && one)
      launch_few_integers<T, W, 1, true>(args, 1, OneWeight(), stream);
    else if (args.glu)
      launch_few_integers<T, W, 2, true>(args, ceil_div(args.tokens, 16), OneWeight(), stream);
    else if (one)
      launch_few_integers<T, W, 1, false>(args, 1, OneWeight(), stream);
    else
      launch_few_integers<T, W, 2, false>(args, ceil_div(args.tokens, 16), OneWeight(), stream);
  });
}

template <typename T, int kBits>
void run_expert_integers(const FewTokensArgs& args, const ExpertWeights& experts, const IntegerFormat& format,
                         cudaStream_t stream) {
  with_integers_of<kBits>(format, [&]<typename W>(Type<W>) {
    if (args.tokens <= 8 * experts.count && !args.one_order)
      launch_few_integers<T, W, 1, false>(args, args.tokens / 8 + experts.count, experts, stream);
    else
      launch_few_integers<T, W, 2, false>(args, args.tokens / 16 + experts.count, experts, stream);
  });
}

}  // namespace lmdeploy::cuda
