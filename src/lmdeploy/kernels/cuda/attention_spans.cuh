// Attention on tensor cores over codes, few rows: a block is one warp, which has up to 8 query rows and some
// spans of keys to itself; it waits for nobody but its own copies. The same sums in the same order as
// attention_tiled.cuh's, bit for bit, but with the factors of each product exchanged: keys and values are the
// first one, which has 16 rows, so that the 8 columns of the second are enough for the heads of a group.
#pragma once

#include "lmdeploy/kernels/cuda/attention_codes.cuh"
#include "lmdeploy/kernels/cuda/attention_split.cuh"
#include "lmdeploy/kernels/cuda/attention_tiled.cuh"

namespace lmdeploy::cuda {
namespace {

constexpr int kSpanRows = 8;

/// A warp's place in shared memory for one tile. Keys and values are copied and waited for by themselves:
/// while one half is read the other one is on its way.
template <typename Format>
class TileMemory {
 public:
  __device__ TileMemory(const AttentionArgs& a, const AttentionTile& tile, const Keys& keys, int kv_head,
                        std::byte* memory, int first_tile, int end_tile)
      : a_(a),
        tile_(tile),
        keys_(keys),
        kv_head_(kv_head),
        end_(end_tile),
        next_(first_tile),
        at_(tile.sequence * a.table_stride + first_tile * kTileKeys / a.block_len),
        row_(first_tile * kTileKeys % a.block_len),
        memory_(memory) {
    look_up();
    // The block table has been there before, and keys of earlier steps.
    const bool is_old = (first_tile + 1) * kTileKeys <= tile.first_position;
    if (!is_old) wait_for_previous_kernel();
    start<true>();
    start<false>();
    if (is_old) wait_for_previous_kernel();
  }
  /// Keys, then values, of the next tile: the keys have arrived.
  __device__ const std::byte* take_keys() {
    wait_for_copies<1>();
    __syncwarp();
    return memory_;
  }
  /// After the work on the keys: the values have arrived.
  __device__ void take_values() {
    __syncwarp();
    start<true>();
    wait_for_copies<1>();
    __syncwarp();
  }
  /// After the work on the values.
  __device__ void release() {
    __syncwarp();
    start<false>();
  }

 private:
  /// Blocks of the cache are whole tiles.
  __device__ bool has_whole_tiles() const { return a_.block_len % kTileKeys == 0; }
  /// One tile ahead, so that reading the block table takes no time of its own.
  __device__ void look_up() {
    if (next_ < end_ && has_whole_tiles()) block_ = a_.block_table[at_];
  }
  template <bool kKeys>
  __device__ void start() {
    if (next_ < end_) start_part<kKeys>();
    commit_copies();
    if (kKeys) return;
    ++next_;
    row_ += kTileKeys;
    if (row_ == a_.block_len) row_ = 0, ++at_;
    look_up();
  }
  template <bool kKeys>
  __device__ void start_part() {
    const bool together = has_whole_tiles() && block_ >= 0 && block_ < a_.num_blocks;
    const int64_t first = together ? Format::place(a_, block_, kv_head_, row_) : -1;
    int64_t places[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int in_tile = i * 32 + lane(), key = next_ * kTileKeys + in_tile;
      if (!together)
        places[i] = keys_.template find<Format>(a_, tile_, kv_head_, key);
      else
        places[i] = key >= keys_.first && key < keys_.end ? first + (int64_t{in_tile} << Format::kRowBits)
                                                          : Keys::kOutside;
    }
    Format::template load_part<kKeys>(a_, kv_head_, first, places, memory_);
  }

  const AttentionArgs& a_;
  const AttentionTile& tile_;
  const Keys& keys_;
  const int kv_head_, end_;
  int next_;        // tile whose copy starts next, its values last
  int64_t at_;      // in the block table, where blocks are whole tiles
  int row_;         // of that block, where the tile begins
  int block_ = -1;  // its number
  std::byte* memory_;
};

/// Weighted values of spans, for rows l%4*2 + {0, 1}: see Format::multiply_values_by_few. Weights and mins
/// are of keys l/4 and l/4 + 8 of each 16, until finish_span().
template <int kDim>
struct FewSums {
  float values[kDim / 16][4];
  float weights[2], mins[2], max[2];

  __device__ void clear() {
#pragma unroll
    for (int m = 0; m < kDim / 16; ++m)
#pragma unroll
      for (int j = 0; j < 4; ++j) values[m][j] = 0;
    for (int i = 0; i < 2; ++i) weights[i] = mins[i] = 0, max[i] = -INFINITY;
  }
  __device__ void raise(const float (&tile_max)[2]) {
    float factor[2];
    if (!raise_max(max, tile_max, factor)) return;
    for (int i = 0; i < 2; ++i)
      weights[i] = __fmul_rn(weights[i], factor[i]), mins[i] = __fmul_rn(mins[i], factor[i]);
#pragma unroll
    for (int m = 0; m < kDim / 16; ++m)
#pragma unroll
      for (int j = 0; j < 4; ++j) values[m][j] = __fmul_rn(values[m][j], factor[j % 2]);
  }
  __device__ void finish_span() {
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int other = 4; other < 32; other *= 2) {
        weights[i] = __fadd_rn(weights[i], __shfl_xor_sync(~0u, weights[i], other));
        mins[i] = __fadd_rn(mins[i], __shfl_xor_sync(~0u, mins[i], other));
      }
#pragma unroll
      for (int m = 0; m < kDim / 16; ++m)
        for (int j = i; j < 4; j += 2) values[m][j] = __fadd_rn(values[m][j], mins[i]);
    }
  }
};

using FewScores = float[kTileKeys / 16][4];  // [g][j]: of key 16 * g + l/4 + j / 2 * 8 and row l%4*2 + j % 2

/// With soft cap or ALiBi: rare, and long.
static __device__ __noinline__ void finish_long_scores(const AttentionArgs& a, const LaneRows& rows,
                                                       int lane_key, FewScores& scores) {
  for (int g = 0; g < kTileKeys / 16; ++g)
    for (int j = 0; j < 4; ++j)
      scores[g][j] =
          long_score(a, scores[g][j], rows.slope[j % 2], lane_key + g * 16 + j / 2 * 8, rows.position[j % 2]);
}

/// Products with the keys of a tile become scores, as finish_scores() makes them.
__device__ inline void finish_few_scores(const AttentionArgs& a, const LaneRows& rows, int first_key,
                                         FewScores& scores) {
  const int lane_key = first_key + lane() / 4;
  if (a.soft_cap == 0 && a.slopes == nullptr) {
    const float scale = __fmul_rn(a.scale, kLog2e);
#pragma unroll
    for (int g = 0; g < kTileKeys / 16; ++g)
#pragma unroll
      for (int j = 0; j < 4; ++j) scores[g][j] = __fmul_rn(scores[g][j], scale);
  } else {
    FewScores copy;  // only this one has an address: it alone is in memory
#pragma unroll
    for (int i = 0; i < kTileKeys / 4; ++i) copy[i / 4][i % 4] = scores[i / 4][i % 4];
    const LaneRows rows_copy = rows;
    finish_long_scores(a, rows_copy, lane_key, copy);
#pragma unroll
    for (int i = 0; i < kTileKeys / 4; ++i) scores[i / 4][i % 4] = copy[i / 4][i % 4];
  }
  if (Sight(rows, first_key, kTileKeys).all) return;
#pragma unroll
  for (int g = 0; g < kTileKeys / 16; ++g)
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (!rows.sees(j % 2, lane_key + g * 16 + j / 2 * 8)) scores[g][j] = -INFINITY;
}

__device__ inline void find_few_max(const FewScores& scores, float (&max)[2]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    max[i] = -INFINITY;
#pragma unroll
    for (int g = 0; g < kTileKeys / 16; ++g) max[i] = fmaxf(max[i], fmaxf(scores[g][i], scores[g][i + 2]));
#pragma unroll
    for (int other = 4; other < 32; other *= 2) max[i] = fmaxf(max[i], __shfl_xor_sync(~0u, max[i], other));
  }
}

/// Weights of 16 keys whose scores are `scores`, as the second factor of the product with their values.
template <typename Format>
__device__ void weigh_few(const float (&scores)[4], const float (&reference)[2], const std::byte* tile,
                          int key, FewSums<Format::kDim>& sums, uint32_t (&packed)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float2 params = Format::value_params(tile, key + half * 8 + lane() / 4);
    float weights[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float weight = exp2_fast(__fsub_rn(scores[half * 2 + i], reference[i]));
      sums.weights[i] = __fadd_rn(sums.weights[i], weight);
      sums.mins[i] = __fadd_rn(sums.mins[i], Format::times(weight, params.y));
      weights[i] = __fmul_rn(weight, ValueScales::weight_factor(params.x));
    }
    packed[half] = transpose(pack<__half>(weights[0], weights[1]));
  }
}

/// Attends to a tile. Its groups of 16 keys are taken kAtOnce at a time by loops that stay loops: unrolled,
/// they are more instructions than a multiprocessor keeps at hand. Scores move along meanwhile, as registers
/// have no index.
template <typename Format>
__device__ void attend_few(const AttentionArgs& a, const LaneRows& rows,
                           const typename Format::template QueryRows<1>& q,
                           const typename Format::ProductUnits& units, TileMemory<Format>& memory,
                           int first_key, FewSums<Format::kDim>& sums) {
  constexpr int kGroups = kTileKeys / 16, kAtOnce = 2;
  const uint32_t zero = hidden_zero(a);
  const std::byte* tile = memory.take_keys();
  float scores[kGroups][4] = {};
  const auto move_along = [&] {
#pragma unroll
    for (int g = 0; g < kGroups - kAtOnce; ++g)
#pragma unroll
      for (int j = 0; j < 4; ++j) scores[g][j] = scores[g + kAtOnce][j];
  };
#pragma unroll 1
  for (int g = 0; g < kGroups; g += kAtOnce) {
    move_along();
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      Format::multiply_keys_by_few(scores[kGroups - kAtOnce + i], q, units, tile, (g + i) * 16, zero);
  }
  memory.take_values();
  finish_few_scores(a, rows, first_key, scores);
  float max[2];
  find_few_max(scores, max);
  sums.raise(max);
  const float reference[2] = {reference_of(sums.max[0]), reference_of(sums.max[1])};
#pragma unroll 1
  for (int g = 0; g < kGroups; g += kAtOnce) {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      uint32_t weights[2];
      weigh_few<Format>(scores[i], reference, tile, (g + i) * 16, sums, weights);
      Format::multiply_values_by_few(sums.values, weights, tile, g + i, zero);
    }
    move_along();
  }
  memory.release();
}

/// body(row, i, d, first, second): of each row of the lane's that exists, numbers d and d + 1.
template <typename Format, typename Body>
__device__ void for_each_pair(const LaneRows& rows, const FewSums<Format::kDim>& sums, const Body& body) {
  for (int i = 0; i < 2; ++i) {
    if (!rows.exists[i]) continue;
#pragma unroll
    for (int m = 0; m < Format::kDim / 16; ++m)
      body(i, Format::column_at(2 * m, lane() / 4), sums.values[m][i], sums.values[m][i + 2]);
  }
}

template <typename Format>
__device__ void store_few_partials(const AttentionArgs& a, const AttentionTile& tile, const LaneRows& rows,
                                   int kv_head, int span, const FewSums<Format::kDim>& sums) {
  for_each_pair<Format>(rows, sums, [&](int i, int d, float first, float second) {
    *reinterpret_cast<float2*>(partial_row(a, tile, kv_head, span, rows.row[i]) + d) = {first, second};
  });
  for (int i = 0; i < 2; ++i)
    if (rows.exists[i] && lane() / 4 == 0)
      *reinterpret_cast<float2*>(partial_row(a, tile, kv_head, span, rows.row[i]) + a.head_dim) = {
          sums.max[i], sums.weights[i]};
}

template <typename Format>
__device__ void store_few_rows(const AttentionArgs& a, const AttentionTile& tile, const LaneRows& rows,
                               const FewSums<Format::kDim>& sums) {
  using T = typename Format::T;
  float factor[2];
  for (int i = 0; i < 2; ++i) factor[i] = last_factor(a, rows.head[i], sums.max[i], sums.weights[i]);
  for_each_pair<Format>(rows, sums, [&](int i, int d, float first, float second) {
    *reinterpret_cast<uint32_t*>(out_row<T>(a, tile, rows.row[i], rows.head[i]) + d) =
        pack<T>(__fmul_rn(first, factor[i]), __fmul_rn(second, factor[i]));
  });
}

/// `most_rows`: sequences of more are the wide kernel's.
template <typename Format>
__global__ __launch_bounds__(32, Format::kSpanBlocks) void span_attention_kernel(
    const __grid_constant__ AttentionArgs a, int most_rows, int spans_per_block, SpanTiles span_tiles) {
#if LMDEPLOY_HAS_MMA
  extern __shared__ float4 raw_memory[];
  const int kv_head = static_cast<int>(blockIdx.y);
  const AttentionTile tile = find_attention_tile<kSpanRows>(a, static_cast<int>(blockIdx.x));
  if (tile.num_rows == 0 || tile.sequence_rows > most_rows) return wait_for_previous_kernel();
  const Keys keys(a, tile);
  const BlockSpans spans(keys, spans_per_block, span_tiles);
  if (spans.none) return wait_for_previous_kernel();
  TileMemory<Format> memory(a, tile, keys, kv_head, reinterpret_cast<std::byte*>(raw_memory),
                            spans.first_tile, spans.end_tile);
  const typename Format::template QueryRows<1> q(a, tile, LaneRows(a, tile, kv_head, 0));
  const typename Format::ProductUnits units(q);
  const LaneRows rows(a, tile, kv_head, 0, lane() % 4 * 2, 1);
  // A block that has all keys takes them for one span, unless a row's sums are to have one order.
  const bool is_alone = spans.end_span - spans.first_span == 1 || (spans.blocks == 1 && !a.batch_invariant);
  FewSums<Format::kDim> sums;
  sums.clear();
  for (int t = spans.first_tile; t < spans.end_tile; ++t) {
    attend_few<Format>(a, rows, q, units, memory, t * kTileKeys, sums);
    if (is_alone || !spans.ends_span(t)) continue;
    sums.finish_span();
    store_few_partials<Format>(a, tile, rows, kv_head, span_tiles.span_of(t), sums);
    sums.clear();
  }
  if (is_alone) {
    sums.finish_span();
    return store_few_rows<Format>(a, tile, rows, sums);
  }
  finish_split<typename Format::T, 4>(a, tile, kv_head, spans);
#endif
}

template <typename Format>
bool run_few_rows(AttentionArgs args, int64_t tokens, int most_rows, const DeviceLimits& device,
                  Scratch& scratch, cudaStream_t stream) {
  constexpr int kBytes = Format::kTileBytes;
  if (kBytes > device.shared_bytes) return false;
  const int64_t tiles = tokens * args.group / kSpanRows + args.num_seqs, items = tiles * args.num_kv_heads;
  allow_shared_memory<span_attention_kernel<Format>>(kBytes);
  const int64_t slots = device.num_sms * blocks_at_once<span_attention_kernel<Format>>(32, kBytes);
  const int64_t real_items = std::min<int64_t>(tiles, tokens) * args.num_kv_heads;
  const SpanTiles span_tiles = choose_span_tiles(args, real_items, slots, /*most_spans=*/16);
  args.num_spans *= kSpanTiles / span_tiles.count();
  const int64_t per_block =
      items > kArrivals ? args.num_spans : choose_spans(args.num_spans, real_items, slots, /*least_waves=*/2);
  const int64_t splits = ceil_div(args.num_spans, per_block);
  if (args.num_spans > 1) take_partials(args, tokens, scratch);
  const dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>(args.num_kv_heads),
                  static_cast<unsigned>(splits));
  launch(span_attention_kernel<Format>, grid, 32, kBytes, stream, args, most_rows,
         static_cast<int>(per_block), span_tiles);
  return true;
}

}  // namespace
}  // namespace lmdeploy::cuda
