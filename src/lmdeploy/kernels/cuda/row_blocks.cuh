// Blocks of warps with 16 rows each that multiply a weight with dozens of tokens. Where rows are too few for
// all multiprocessors, blocks share the columns too. What all have found is added up in order: by the last
// one of them, or, where they are a cluster, by each of them for a part of the tokens.
#pragma once

#include "lmdeploy/kernels/cuda/few_integers.h"
#include "lmdeploy/kernels/cuda/integer_tile.cuh"
#include "lmdeploy/kernels/cuda/launch.cuh"

namespace lmdeploy::cuda {
namespace {

/// A block of so many warps with 16 rows each.
template <int kWarpsOf>
struct RowBlock {
  static constexpr int kWarps = kWarpsOf, kThreads = 32 * kWarps, kRows = 16 * kWarps;
  template <bool kGlu>
  static constexpr int kOutputs = kGlu ? kRows / 2 : kRows;

  /// How many there are for a weight of so many rows.
  template <bool kGlu>
  static int64_t count(int rows) {
    return ceil_div(kGlu ? rows / 2 : rows, kOutputs<kGlu>);
  }
};

/// Where blocks that share columns meet.
struct Splits {
  int count;
  float* sums;        // [row blocks][count][sums of a block]
  int32_t* arrivals;  // at each row block; 0 before and after

  int64_t bytes(int64_t row_blocks, int sums_of_block) const {
    return count == 1 ? 0 : row_blocks * count * sums_of_block * int64_t{sizeof(float)};
  }
};

/// A barrier of a block's warps with rows.
template <typename Block>
__device__ void sync_block() {
  asm volatile("barrier.sync 1, %0;" ::"n"(Block::kThreads) : "memory");
}

/// Whether this block is the last of those that share its rows.
template <typename Block>
__device__ bool is_last_of(int32_t& arrivals, int count) {
  __shared__ bool last;
  __threadfence();
  sync_block<Block>();
  if (threadIdx.x == 0) {
    last = atomicAdd(&arrivals, 1) == count - 1;
    if (last) arrivals = 0;
    __threadfence();
  }
  sync_block<Block>();
  return last;
}

/// sums[i] = parts[0][i] + parts[1][i] ...
template <int kSums, int kThreads>
__device__ void add_parts(const float4* parts, int count, float4* sums) {
  constexpr int kEach = kSums / 4 / kThreads;
  float4 total[kEach] = {};
#pragma unroll 2
  for (int part = 0; part < count; ++part)
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const float4 more = __ldcg(parts + part * (kSums / 4) + i * kThreads + static_cast<int>(threadIdx.x));
      total[i].x += more.x, total[i].y += more.y, total[i].z += more.z, total[i].w += more.w;
    }
#pragma unroll
  for (int i = 0; i < kEach; ++i) sums[i * kThreads + static_cast<int>(threadIdx.x)] = total[i];
}

/// Which tile warp `warp` of a block has: its `own` if the weight has so many rows, else the last one, of
/// which nobody reads the results. With kGlu the second half of a block's warps have what the first half
/// gate.
template <typename Block, bool kGlu>
__device__ int tile_of_warp(int rows, int row_block, int warp) {
  const int own = row_block * Block::template kOutputs<kGlu> / 16 + warp;
  if constexpr (kGlu) {
    constexpr int kHalf = Block::kWarps / 2;
    const int gates = rows / 32;
    return warp < kHalf ? min(own, gates - 1) : gates + min(own - kHalf, gates - 1);
  }
  return min(own, (rows + 15) / 16 - 1);
}

/// Puts a block's sums, which lie as mma() leaves them, to [8 * kTokenTiles][kStride] numbers.
template <int kStride, int kTokenTiles>
__device__ void put_sums(const float (&sums)[kTokenTiles][4], float* to) {
  to += warp() * 16 + lane() / 4;
#pragma unroll
  for (int t = 0; t < kTokenTiles; ++t)
#pragma unroll
    for (int i = 0; i < 4; ++i) to[(t * 8 + lane() % 4 * 2 + i % 2) * kStride + i / 2 * 8] = sums[t][i];
}

/// What a block does with its sums, which lie as mma() leaves them: meets those that share its rows, stores
/// the outputs. `memory`: the block's, for [8 * kTokenTiles][Block::kRows] numbers.
template <typename T, typename Block, int kTokenTiles, bool kGlu>
__device__ void finish_block(const FewTokensArgs& a, Activation activation, const Splits& splits, int split,
                             int row_block, const float (&sums)[kTokenTiles][4], float4* memory) {
  constexpr int kTokens = 8 * kTokenTiles, kRows = Block::kRows, kSums = kTokens * kRows;
  auto* shared = reinterpret_cast<float*>(memory);
  float* parts = splits.sums + int64_t{row_block} * splits.count * kSums;
  put_sums<kRows>(sums, splits.count == 1 ? shared : parts + split * kSums);
  if (splits.count > 1) {
    if (!is_last_of<Block>(splits.arrivals[row_block], splits.count)) return;
    add_parts<kSums, Block::kThreads>(reinterpret_cast<const float4*>(parts), splits.count, memory);
  }
  sync_block<Block>();
  const Work work = {nullptr, a.bias, 0, min(kTokens, a.tokens)};
  store<kGlu, kTokens, Block::template kOutputs<kGlu>, T>(
      a, work, activation, row_block * Block::template kOutputs<kGlu>,
      [&](int token, int at) { return shared[token * kRows + at]; }, Block::kThreads);
}

/// A few units each, as many blocks as run at once. The memory for sums is the caller's to get.
inline Splits split_columns(int64_t blocks, int64_t units, int64_t at_once, const Meeting& meeting) {
  Splits splits = {.count = 1, .sums = nullptr, .arrivals = meeting.arrivals};
  if (blocks <= kArrivals)
    splits.count = static_cast<int>(std::clamp<int64_t>(at_once / blocks, 1, ceil_div(units, 4)));
  return splits;
}

}  // namespace
}  // namespace lmdeploy::cuda
