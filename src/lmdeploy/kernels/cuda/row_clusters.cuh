// Blocks of row_blocks.cuh that share columns as a cluster: each of them adds up, in order, what all have
// found for a part of the tokens. From sm_90 on.
#pragma once

#include <array>
#include <cstdint>

#include "lmdeploy/kernels/cuda/row_blocks.cuh"
#include "lmdeploy/kernels/cuda/wgmma.cuh"

namespace lmdeploy::cuda {
namespace {

/// A barrier of all threads of a cluster that have not ended.
__device__ inline void meet_cluster() {
#if LMDEPLOY_HAS_WGMMA
  __cluster_barrier_arrive();
  __cluster_barrier_wait();
#endif
}
/// What is at `place` in the shared memory of another block of the cluster.
__device__ inline float4 load_from(int block, const float* place) {
  float4 v = {};
#if LMDEPLOY_HAS_WGMMA
  asm volatile(
      "{.reg .u32 there; mapa.shared::cluster.u32 there, %4, %5; ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, "
      "[there];}"
      : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
      : "r"(shared_address(place)), "r"(block)
      : "memory");
#endif
  return v;
}

constexpr int kMostOfCluster = 8;  // blocks
/// From a token's sums to the next one's: a store's lanes meet different banks.
template <typename Block>
constexpr int kSumStride = Block::kRows + 4;

/// Four sums of all blocks of a cluster, added up in order.
__device__ inline float4 add_up(int blocks, const float* place) {
  float4 parts[kMostOfCluster] = {};
#pragma unroll
  for (int i = 0; i < kMostOfCluster; ++i)
    if (i < blocks) parts[i] = load_from(i, place);
#pragma unroll
  for (int i = 1; i < kMostOfCluster; ++i) {
    parts[0].x += parts[i].x, parts[0].y += parts[i].y;
    parts[0].z += parts[i].z, parts[0].w += parts[i].w;
  }
  return parts[0];
}

/// Stores outputs of a token from `row` on, a multiple of four.
template <typename T>
__device__ void store_four(const FewTokensArgs& a, int token, int row, int end_row, const float (&v)[4]) {
  std::byte* to = a.out + token * a.out_stride_bytes;
  const bool whole = row + 4 <= end_row;
  const auto fits = [&](int bytes) { return reinterpret_cast<uintptr_t>(to) % bytes == 0; };
  constexpr DType kOwn = std::is_same_v<T, __half> ? DType::kF16 : DType::kBF16;
  if (whole && a.out_dtype == DType::kF32 && fits(16))
    reinterpret_cast<float4*>(to)[row / 4] = {v[0], v[1], v[2], v[3]};
  else if (whole && a.out_dtype == kOwn && fits(8))
    reinterpret_cast<uint2*>(to)[row / 4] = {pack<T>(v[0], v[1]), pack<T>(v[2], v[3])};
  else
    for (int i = 0; i < 4; ++i)
      if (row + i < end_row) store_any(to, a.out_dtype, row + i, v[i]);
}

/// Adds up what the blocks of a cluster have found for the same rows; each stores a part of the tokens.
/// `sums` as mma() leaves them; `memory`: for [kTokens][kSumStride<Block>] numbers.
template <typename T, typename Block, int kTokens, bool kGlu>
__device__ void finish_cluster(const FewTokensArgs& a, Activation activation, int row_block, int first_token,
                               const float (&sums)[kTokens / 8][4], float* memory) {
  constexpr int kOutputs = Block::template kOutputs<kGlu>, kQuads = kOutputs / 4;
  const int count = static_cast<int>(gridDim.x), own = static_cast<int>(blockIdx.x);
  put_sums<kSumStride<Block>>(sums, memory);
  if (count == 1)
    sync_block<Block>();
  else
    meet_cluster();
  const int tokens = min(kTokens, a.tokens - first_token), end_row = kGlu ? a.rows / 2 : a.rows;
  const int first = tokens * own / count * kQuads, end = tokens * (own + 1) / count * kQuads;
  for (int i = first + static_cast<int>(threadIdx.x); i < end; i += Block::kThreads) {
    const int token = i / kQuads, at = i % kQuads * 4, row = row_block * kOutputs + at;
    const float* place = memory + token * kSumStride<Block> + at;
    const float4 sum = add_up(count, place), up = kGlu ? add_up(count, place + kOutputs) : float4{};
    float v[4];
#pragma unroll
    for (int j = 0; j < 4; ++j)
      v[j] =
          row + j < end_row ? output_of<kGlu, T>(a, a.bias, activation, row + j, (&sum.x)[j], (&up.x)[j]) : 0;
    store_four<T>(a, first_token + token, row, end_row, v);
  }
  if (count > 1) meet_cluster();  // nobody's memory goes while it is read
}

/// How many clusters of i + 1 blocks run at once.
using ClusterCounts = std::array<int, kMostOfCluster>;
template <auto kKernel>
ClusterCounts clusters_at_once(int threads, int shared_bytes) {
  static PerDevice<ClusterCounts> counts;
  return counts.get([&] {
    ClusterCounts found = {};
    for (unsigned blocks = 1; blocks <= kMostOfCluster; ++blocks)
      found[blocks - 1] =
          std::max(1, count_clusters(reinterpret_cast<const void*>(kKernel), blocks, threads, shared_bytes));
    return found;
  });
}

/// How many blocks share the columns of each of `clusters`: as many as run at once.
inline int64_t choose_cluster(int64_t clusters, int64_t units, const ClusterCounts& at_once) {
  int64_t blocks = std::clamp<int64_t>(ceil_div(units, 4), 1, kMostOfCluster);
  while (blocks > 1 && clusters > at_once[static_cast<size_t>(blocks - 1)]) --blocks;
  return blocks;
}

}  // namespace
}  // namespace lmdeploy::cuda
