// linear for 17 to 64 tokens with weights of 4 or 8 bits. A block's warps have 16 rows each and share the
// tokens, which come to shared memory a unit of columns at a time. Where rows are too few for all
// multiprocessors, blocks share the columns too: the last one of them adds up what all have found, in order.
#pragma once

#include "lmdeploy/kernels/cuda/few_integers.h"
#include "lmdeploy/kernels/cuda/launch.cuh"
#include "lmdeploy/kernels/cuda/row_blocks.cuh"

namespace lmdeploy::cuda {
namespace {

using ManyBlock = RowBlock<8>;

/// Columns of a block's tokens in shared memory, some units ahead.
template <typename T, typename W, int kTokens>
class TokenRing {
  static constexpr int kStages = 3;
  static constexpr int kStride = W::kUnitCols + 32;  // a load's lanes meet different banks

 public:
  static constexpr int kBytes = kStages * kTokens * kStride * static_cast<int>(sizeof(T));

  __device__ TokenRing(const FewTokensArgs& a, T* memory, int unit, int end)
      : a_(a), memory_(memory), next_(unit), end_(end) {
    for (int i = 0; i < kStages - 1; ++i) start_next(i);
  }
  /// The n-th unit; all threads call it.
  __device__ const T* take(int n) {
    wait_for_copies<kStages - 2>();
    __syncthreads();
    start_next((n + kStages - 1) % kStages);
    return memory_ + n % kStages * kTokens * kStride + lane() / 4 * kStride + lane() % 4 * 8;
  }
  __device__ static int offset(int token_tile, int column) { return token_tile * 8 * kStride + column; }

 private:
  // The last token stands for those that are not there.
  __device__ void start_next(int stage) {
    constexpr int kPieces = W::kUnitCols / 8;
    if (next_ < end_) {
#pragma unroll
      for (int n = 0; n < kTokens * kPieces / ManyBlock::kThreads; ++n) {
        const int i = static_cast<int>(threadIdx.x) + n * ManyBlock::kThreads;
        const int row = i / kPieces, column = i % kPieces * 8, k = next_ * W::kUnitCols + column;
        const T* from = static_cast<const T*>(a_.x) + min(row, a_.tokens - 1) * a_.x_stride;
        copy_async(memory_ + (stage * kTokens + row) * kStride + column, from + (k < a_.cols ? k : 0),
                   k < a_.cols ? 16 : 0);
      }
    }
    commit_copies();
    ++next_;
  }

  const FewTokensArgs& a_;
  T* memory_;
  int next_;
  const int end_;
};

template <typename T, typename W, int kTokenTiles, bool kGlu>
__global__ __launch_bounds__(ManyBlock::kThreads,
                             W::kScale == GroupScale::kScaleMin
                                 ? 1
                                 : 2) void many_integers_kernel(const __grid_constant__ FewTokensArgs a,
                                                                Activation activation, Splits splits) {
#if LMDEPLOY_HAS_MMA
  constexpr int kTokens = 8 * kTokenTiles;
  constexpr int kDepth = W::kLoads >= 4 ? 1 : 4 / W::kLoads;  // 64 bytes a lane
  extern __shared__ float4 memory[];
  const int split = static_cast<int>(blockIdx.x), row_block = static_cast<int>(blockIdx.y);
  const int units = (a.cols + W::kUnitCols - 1) / W::kUnitCols;
  const int first = units * split / splits.count, end = units * (split + 1) / splits.count;
  const int64_t tile = tile_of_warp<ManyBlock, kGlu>(a.rows, row_block, warp());
  IntegerTile<T, W, kDepth> integers(static_cast<const std::byte*>(a.weight) + tile * units * W::kUnitBytes,
                                     first, 1, end);
  TokenRing<T, W, kTokens> ring(a, reinterpret_cast<T*>(memory), first, end);
  float sums[kTokenTiles][4] = {};
  for (int unit = first; unit < end; unit += kDepth) {
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      if (unit + d >= end) break;
      const T* x = ring.take(unit + d - first);
      integers[d].multiply(sums, a.cols - (unit + d) * W::kUnitCols, [&](int t, int column) {
        return *reinterpret_cast<const uint4*>(x + ring.offset(t, column));
      });
      integers.load_next(d);
    }
  }
  wait_for_copies<0>();
  __syncthreads();
  finish_block<T, ManyBlock, kTokenTiles, kGlu>(a, activation, splits, split, row_block, sums, memory);
#endif
}

template <typename T, typename W, int kTokenTiles, bool kGlu>
void launch_many_integers(const FewTokensArgs& args, const Meeting& meeting, cudaStream_t stream) {
  constexpr int kTokens = 8 * kTokenTiles, kRows = ManyBlock::kRows;
  constexpr int kBytes = std::max(TokenRing<T, W, kTokens>::kBytes, kTokens * kRows * 4);
  constexpr auto kernel = many_integers_kernel<T, W, kTokenTiles, kGlu>;
  allow_shared_memory<kernel>(kBytes);
  const int64_t row_blocks = ManyBlock::count<kGlu>(args.rows);
  Splits splits = split_columns(row_blocks, ceil_div(args.cols, W::kUnitCols), 2 * meeting.num_sms, meeting);
  if (splits.count > 1)
    splits.sums = reinterpret_cast<float*>(meeting.scratch->bytes(splits.bytes(row_blocks, kTokens * kRows)));
  const dim3 grid(static_cast<unsigned>(splits.count), static_cast<unsigned>(row_blocks));
  kernel<<<grid, ManyBlock::kThreads, kBytes, stream>>>(args, args.glu.value_or(Activation::kSilu), splits);
}

}  // namespace

template <typename T, int kBits>
void run_many_integers(const FewTokensArgs& args, const IntegerFormat& format, const Meeting& meeting,
                       cudaStream_t stream) {
  with_integers_of<kBits>(format, [&]<typename W>(Type<W>) {
    const bool some = args.tokens <= 32;
    if (args.glu && some)
      launch_many_integers<T, W, 4, true>(args, meeting, stream);
    else if (args.glu)
      launch_many_integers<T, W, 8, true>(args, meeting, stream);
    else if (some)
      launch_many_integers<T, W, 4, false>(args, meeting, stream);
    else
      launch_many_integers<T, W, 8, false>(args, meeting, stream);
  });
}

}  // namespace lmdeploy::cuda
