// linear for 17 to 64 tokens with weights of 4 or 8 bits. A block's warps have 16 rows each and share the
// tokens, which come to shared memory a unit of columns at a time. Where rows are too few for all
// multiprocessors, blocks share the columns too: the last one of them adds up what all have found, in order.
#pragma once

#include "lmdeploy/kernels/cuda/few_integers.h"
#include "lmdeploy/kernels/cuda/integer_tile.cuh"
#include "lmdeploy/kernels/cuda/launch.cuh"

namespace lmdeploy::cuda {
namespace {

struct ManyBlock {
  static constexpr int kWarps = 8, kThreads = 32 * kWarps, kRows = 16 * kWarps;
};

/// Where blocks that share columns meet.
struct Splits {
  int count;
  float* sums;        // [blocks of rows][count][tokens of a block][ManyBlock::kRows]
  int32_t* arrivals;  // of each block of rows; 0 before and after
};

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

/// Whether this block is the last of those that share its rows. All threads call it.
__device__ inline bool is_last_of(int32_t& arrivals, int count) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(&arrivals, 1) == count - 1;
    if (last) arrivals = 0;
    __threadfence();
  }
  __syncthreads();
  return last;
}

/// sums[i] = parts[0][i] + parts[1][i] ...
template <int kSums>
__device__ void add_parts(const float4* parts, int count, float4* sums) {
  constexpr int kEach = kSums / 4 / ManyBlock::kThreads;
  float4 total[kEach] = {};
#pragma unroll 2
  for (int part = 0; part < count; ++part)
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const float4 more =
          __ldcg(parts + part * (kSums / 4) + i * ManyBlock::kThreads + static_cast<int>(threadIdx.x));
      total[i].x += more.x, total[i].y += more.y, total[i].z += more.z, total[i].w += more.w;
    }
#pragma unroll
  for (int i = 0; i < kEach; ++i) sums[i * ManyBlock::kThreads + static_cast<int>(threadIdx.x)] = total[i];
}

/// Which tile a warp has: its `own` if the weight has so many rows, else the last one, of which nobody reads
/// the results. With kGlu the second half of a block's warps have what the first half gate.
template <bool kGlu>
__device__ int tile_of_warp(int rows, int first_row) {
  const int own = first_row / 16 + warp();
  if constexpr (kGlu) {
    constexpr int kHalf = ManyBlock::kWarps / 2;
    const int gates = rows / 32;
    return warp() < kHalf ? min(own, gates - 1) : gates + min(own - kHalf, gates - 1);
  }
  return min(own, (rows + 15) / 16 - 1);
}

template <typename T, typename W, int kTokenTiles, bool kGlu>
__global__ __launch_bounds__(ManyBlock::kThreads,
                             W::kScale == GroupScale::kScaleMin
                                 ? 1
                                 : 2) void many_integers_kernel(const __grid_constant__ FewTokensArgs a,
                                                                Activation activation, Splits splits) {
#if LMDEPLOY_HAS_MMA
  constexpr int kTokens = 8 * kTokenTiles, kRows = ManyBlock::kRows, kOutputs = kGlu ? kRows / 2 : kRows;
  constexpr int kDepth = W::kLoads >= 4 ? 1 : 4 / W::kLoads;  // 64 bytes a lane
  extern __shared__ float4 memory[];
  const int split = static_cast<int>(blockIdx.x), row_block = static_cast<int>(blockIdx.y);
  const int units = (a.cols + W::kUnitCols - 1) / W::kUnitCols;
  const int first = units * split / splits.count, end = units * (split + 1) / splits.count;
  const int64_t tile = tile_of_warp<kGlu>(a.rows, row_block * kOutputs);
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
  auto* shared = reinterpret_cast<float*>(memory);
  constexpr int kSums = kTokens * kRows;
  float* parts = splits.sums + int64_t{row_block} * splits.count * kSums;
  float* own = (splits.count == 1 ? shared : parts + split * kSums) + warp() * 16 + lane() / 4;
  for (int t = 0; t < kTokenTiles; ++t)
    for (int i = 0; i < 4; ++i) own[(t * 8 + lane() % 4 * 2 + i % 2) * kRows + i / 2 * 8] = sums[t][i];
  if (splits.count > 1) {
    if (!is_last_of(splits.arrivals[row_block], splits.count)) return;
    add_parts<kSums>(reinterpret_cast<const float4*>(parts), splits.count, memory);
  }
  __syncthreads();
  const Work work = {nullptr, a.bias, 0, a.tokens};
  store<kGlu, kTokens, kOutputs, T>(a, work, activation, row_block * kOutputs,
                                    [&](int token, int at) { return shared[token * kRows + at]; });
#endif
}

template <typename T, typename W, int kTokenTiles, bool kGlu>
void launch_many_integers(const FewTokensArgs& args, const Meeting& meeting, cudaStream_t stream) {
  constexpr int kTokens = 8 * kTokenTiles, kRows = ManyBlock::kRows;
  constexpr int kBytes = std::max(TokenRing<T, W, kTokens>::kBytes, kTokens * kRows * 4);
  constexpr auto kernel = many_integers_kernel<T, W, kTokenTiles, kGlu>;
  allow_shared_memory<kernel>(kBytes);
  const int64_t row_blocks = ceil_div(kGlu ? args.rows / 2 : args.rows, kGlu ? kRows / 2 : kRows);
  const int64_t units = ceil_div(args.cols, W::kUnitCols);
  Splits splits = {.count = 1, .sums = nullptr, .arrivals = meeting.arrivals};
  if (row_blocks <= kArrivals)  // a few units each, two blocks for each multiprocessor
    splits.count =
        static_cast<int>(std::clamp<int64_t>(2 * meeting.num_sms / row_blocks, 1, ceil_div(units, 4)));
  if (splits.count > 1)
    splits.sums = reinterpret_cast<float*>(
        meeting.scratch->bytes(row_blocks * splits.count * kTokens * kRows * int64_t{sizeof(float)}));
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
