// Attention on tensor cores over plain elements, few rows: 16 in a block, its warps share each tile of keys,
// then the columns of the values, and several blocks can share a sequence. The same sums in the same order as
// attention_tiled.cuh's, bit for bit.
#pragma once

#include "lmdeploy/kernels/cuda/attention_ring.cuh"
#include "lmdeploy/kernels/cuda/attention_split.cuh"
#include "lmdeploy/kernels/cuda/attention_tiled.cuh"

namespace lmdeploy::cuda {
namespace {

constexpr int kNarrowThreads = kNarrowWarps * 32;
constexpr int kKeysOfWarp = kTileKeys / kNarrowWarps;
constexpr int kWeightStride = kTileKeys + 8;  // of the weights that the warps share

template <typename Format>
struct NarrowMemory {
  using T = typename Format::T;
  using Ring = TileRing<Format, kNarrowThreads>;
  T high[kWarpRows * kWeightStride], low[kWarpRows * kWeightStride];
  float max[kNarrowWarps][kWarpRows];
  static constexpr int kBytes = (2 * kWarpRows * kWeightStride * 2 + kNarrowWarps * kWarpRows * 4) / 16 * 16;
  static constexpr int kAllBytes = kBytes + Ring::kBytes;
};

/// The largest score of all warps.
template <typename Memory>
__device__ void share_max(Memory& memory, float (&max)[2]) {
  const int warp = thread() / 32;
  for (int i = 0; i < 2; ++i)
    if (lane() % 4 == 0) memory.max[warp][lane() / 4 + 8 * i] = max[i];
  __syncthreads();
  for (int i = 0; i < 2; ++i)
    for (int w = 0; w < kNarrowWarps; ++w) max[i] = fmaxf(max[i], memory.max[w][lane() / 4 + 8 * i]);
}

template <typename Format>
using NarrowSums = Sums<Format::kDim / kNarrowWarps>;

template <typename Format, bool kEdge>
__device__ void attend_shared_tile(const AttentionArgs& a, const LaneRows& rows,
                                   const typename Format::Queries& q, const std::byte* tile, int first_key,
                                   NarrowMemory<Format>& memory, NarrowSums<Format>& sums) {
  const int warp = thread() / 32, warp_key = warp * kKeysOfWarp;
  float scores[kKeysOfWarp / 8][4] = {};
  Format::multiply_keys(scores, q, tile, warp_key);
  finish_scores<kEdge>(a, rows, first_key + warp_key, scores);
  float max[2];
  find_max(scores, max);
  share_max(memory, max);
  sums.raise(max);
  for (int n = 0; n < kKeysOfWarp / 8; ++n)
    for (int i = 0; i < 2; ++i) {
      const float reference = reference_of(sums.max[i]);
      const int at = (lane() / 4 + 8 * i) * kWeightStride + warp_key + n * 8 + lane() % 4 * 2;
      Format::weigh(sums, i, exp2_fast(__fsub_rn(scores[n][2 * i], reference)),
                    exp2_fast(__fsub_rn(scores[n][2 * i + 1], reference)), tile,
                    warp_key + n * 8 + lane() % 4 * 2, *reinterpret_cast<uint32_t*>(memory.high + at),
                    *reinterpret_cast<uint32_t*>(memory.low + at));
    }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kTileKeys / 16; ++k) {
    const int at = lane() % 16 * kWeightStride + k * 16 + lane() / 16 * 8;
    uint32_t high[4], low[4];
    load_matrices(high, memory.high + at);
    load_matrices(low, memory.low + at);
    add_values<Format, kEdge>(sums, high, low, tile, k, warp * (Format::kDim / kNarrowWarps / 8), rows,
                              first_key + k * 16);
  }
}

template <typename Format, int kCols>
__device__ void store_partial(const AttentionArgs& a, const AttentionTile& tile, const LaneRows& rows,
                              int kv_head, int span, const Sums<kCols>& sums) {
  const int warp = thread() / 32;
  for (int i = 0; i < 2; ++i) {
    if (!rows.exists[i]) continue;
    float* row = partial_row(a, tile, kv_head, span, rows.row[i]);
    for (int n = 0; n < kCols / 8; ++n) {
      const int d = Format::column(warp * (kCols / 8) + n, 0);
      if (d < a.head_dim)
        *reinterpret_cast<float2*>(row + d) = {sums.values[n][2 * i], sums.values[n][2 * i + 1]};
    }
    if (warp == 0 && lane() % 4 == 0)
      row[a.head_dim] = sums.max[i], row[a.head_dim + 1] = sums.weights[2 * i];
  }
}

/// `most_rows`: sequences of more are the wide kernel's. blockIdx.z has the spans from z * spans_per_block
/// on.
template <typename Format>
__global__ __launch_bounds__(kNarrowThreads, Format::kNarrowBlocks) void narrow_attention_kernel(
    const __grid_constant__ AttentionArgs a, int most_rows, int spans_per_block, SpanTiles span_tiles) {
#if LMDEPLOY_HAS_MMA
  using Memory = NarrowMemory<Format>;
  constexpr int kCols = Format::kDim / kNarrowWarps;
  extern __shared__ float4 raw_memory[];
  auto& memory = *reinterpret_cast<Memory*>(raw_memory);
  const int kv_head = static_cast<int>(blockIdx.y);
  const AttentionTile tile = find_attention_tile<kWarpRows>(a, static_cast<int>(blockIdx.x));
  if (tile.num_rows == 0 || tile.sequence_rows > most_rows) return wait_for_previous_kernel();
  const Keys keys(a, tile);
  const BlockSpans spans(keys, spans_per_block, span_tiles);
  if (spans.none) return wait_for_previous_kernel();
  const LaneRows rows(a, tile, kv_head, 0);
  typename Memory::Ring ring(a, tile, keys, kv_head,
                             reinterpret_cast<std::byte*>(raw_memory) + Memory::kBytes, spans.first_tile,
                             spans.end_tile);
  const typename Format::Queries q(a, tile, rows);
  NarrowSums<Format> sums;
  Sums<kCols> total;
  sums.clear();
  total.clear();
  for (int t = spans.first_tile; t < spans.end_tile; ++t) {
    const int first_key = t * kTileKeys;
    const std::byte* loaded = ring.take();
    if (Sight(rows, first_key, kTileKeys).all)
      attend_shared_tile<Format, false>(a, rows, q, loaded, first_key, memory, sums);
    else
      attend_shared_tile<Format, true>(a, rows, q, loaded, first_key, memory, sums);
    ring.release();
    if (!spans.ends_span(t)) continue;
    if (a.partials != nullptr) {
      store_partial<Format>(a, tile, rows, kv_head, span_tiles.span_of(t), sums);
    } else {
      for (int i = 0; i < 2; ++i) {
        const Join join(total.max[i], sums.max[i]);
        for (int n = 0; n < kCols / 8; ++n)
          for (int j = 2 * i; j < 2 * i + 2; ++j)
            total.values[n][j] = join(total.values[n][j], sums.values[n][j]);
        total.weights[2 * i] = join(total.weights[2 * i], sums.weights[2 * i]);
        total.max[i] = join.max;
      }
    }
    sums.clear();
  }
  if (a.partials == nullptr) return store_rows<Format>(a, tile, rows, total, thread() / 32 * (kCols / 8));
  finish_split<typename Format::T, 1>(a, tile, kv_head, spans);
#endif
}

template <typename Format>
bool run_few_rows(AttentionArgs args, int64_t tokens, int most_rows, const DeviceLimits& device,
                  Scratch& scratch, cudaStream_t stream) {
  constexpr int kBytes = NarrowMemory<Format>::kAllBytes;
  if (kBytes > device.shared_bytes) return false;
  const int64_t tiles = tokens * args.group / kWarpRows + args.num_seqs, items = tiles * args.num_kv_heads;
  allow_shared_memory<narrow_attention_kernel<Format>>(kBytes);
  const int64_t slots =
      device.num_sms * blocks_at_once<narrow_attention_kernel<Format>>(kNarrowThreads, kBytes);
  const int64_t real_items = std::min<int64_t>(tiles, tokens) * args.num_kv_heads;
  const SpanTiles span_tiles = choose_span_tiles(args, real_items, slots, /*most_spans=*/32);
  args.num_spans *= kSpanTiles / span_tiles.count();
  const int64_t per_block =
      items > kArrivals ? args.num_spans : choose_spans(args.num_spans, items, slots, /*least_waves=*/3);
  const int64_t splits = ceil_div(args.num_spans, per_block);
  if (splits > 1) take_partials(args, tokens, scratch);
  const dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>(args.num_kv_heads),
                  static_cast<unsigned>(splits));
  launch(narrow_attention_kernel<Format>, grid, kNarrowThreads, kBytes, stream, args, most_rows,
         static_cast<int>(per_block), span_tiles);
  return true;
}

}  // namespace
}  // namespace lmdeploy::cuda
