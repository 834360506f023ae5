// What the attention kernels on tensor cores share: which keys which rows see, a tile's scores, and how spans
// of keys are joined.
#pragma once

#include <cfloat>

#include "lmdeploy/kernels/cuda/attention.cuh"
#include "lmdeploy/kernels/cuda/launch.cuh"
#include "lmdeploy/kernels/cuda/mma.cuh"

namespace lmdeploy::cuda {
namespace {

constexpr int kTileKeys = 64;
constexpr int kWarpRows = 16;
constexpr int kNarrowWarps = 4;  // that share 16 rows
constexpr float kLog2e = 1.4426950408889634f;

__device__ inline int thread() { return static_cast<int>(threadIdx.x); }
__device__ inline int lane() { return thread() % 32; }

/// Keys that the rows of a tile see, and where the cache has each of them.
struct Keys {
  int first, end;
  static constexpr int64_t kOutside = -1;  // reads as 0
  static constexpr int64_t kNowhere = -2;  // a wrong block id: reads as NaN

  __device__ Keys(const AttentionArgs& a, const AttentionTile& tile)
      : first(a.window == 0 ? 0 : max(0, tile.position(0, a.group) - a.window + 1)),
        end(min(tile.position(tile.num_rows - 1, a.group) + 1, a.max_blocks * a.block_len)) {}
  __device__ int first_tile() const { return first / kTileKeys; }
  __device__ int end_tile() const { return (end + kTileKeys - 1) / kTileKeys; }
  /// Format::place() of the key's block and row, or one of the above.
  template <typename Format>
  __device__ int64_t find(const AttentionArgs& a, const AttentionTile& tile, int kv_head, int key) const {
    if (key < first || key >= end) return kOutside;
    const int64_t block = a.block_table[tile.sequence * a.table_stride + key / a.block_len];
    if (block < 0 || block >= a.num_blocks) return kNowhere;
    return Format::place(a, block, kv_head, key % a.block_len);
  }
};

__device__ const uint4 kNaNs = {~0u, ~0u, ~0u, ~0u};

/// The two of a warp's rows that a lane has a part of. Those beyond the tile's see what its last row sees; a
/// warp that has no other sees no key.
struct LaneRows {
  int row[2];  // of the tile
  bool exists[2];
  int first[2];     // key that the row sees
  int position[2];  // of the row, the last key it sees
  int head[2];
  float slope[2];

  /// Rows l/4 and l/4 + 8 of the warp's 16, as the results of mma() lie.
  __device__ LaneRows(const AttentionArgs& a, const AttentionTile& tile, int kv_head, int warp_row)
      : LaneRows(a, tile, kv_head, warp_row, lane() / 4, 8) {}
  __device__ LaneRows(const AttentionArgs& a, const AttentionTile& tile, int kv_head, int warp_row,
                      int lane_row, int step) {
    for (int i = 0; i < 2; ++i) {
      row[i] = warp_row + lane_row + step * i;
      exists[i] = row[i] < tile.num_rows;
      const int like = min(row[i], tile.num_rows - 1);
      position[i] = warp_row < tile.num_rows ? tile.position(like, a.group) : -1;
      first[i] = a.window == 0 ? 0 : position[i] - a.window + 1;
      head[i] = kv_head * a.group + tile.head(like, a.group);
      slope[i] = a.slopes == nullptr ? 0 : a.slopes[head[i]];
    }
  }
  __device__ bool sees(int i, int key) const { return key <= position[i] && key >= first[i]; }
};

/// Of the lane's row `i` in q; null where there is none.
__device__ inline const std::byte* query_row(const AttentionArgs& a, const AttentionTile& tile,
                                             const LaneRows& rows, int i) {
  if (!rows.exists[i]) return nullptr;
  return a.q + tile.token(rows.row[i], a.group) * a.q_stride_bytes + int64_t{rows.head[i]} * a.head_dim * 2;
}

/// A product that soft cap and ALiBi make a score.
__device__ inline float long_score(const AttentionArgs& a, float product, float slope, int key,
                                   int position) {
  float score = __fmul_rn(product, a.scale);
  if (a.soft_cap > 0) score = __fmul_rn(a.soft_cap, tanhf(__fdiv_rn(score, a.soft_cap)));
  if (a.slopes != nullptr) score = __fadd_rn(score, alibi(a, slope, key, position));
  return __fmul_rn(score, kLog2e);
}

/// Products become scores in powers of two; -inf where a row does not see the key. The lane's keys of
/// scores[n] are first_key + n * 8 + lane % 4 * 2 + {0, 1}.
template <bool kEdge, int kCount>
__device__ void finish_scores(const AttentionArgs& a, const LaneRows& rows, int first_key,
                              float (&scores)[kCount][4]) {
  const int lane_key = first_key + lane() % 4 * 2;
  if (a.soft_cap == 0 && a.slopes == nullptr) {
    const float scale = __fmul_rn(a.scale, kLog2e);
#pragma unroll
    for (int n = 0; n < kCount; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[n][i] = __fmul_rn(scores[n][i], scale);
  } else {
#pragma unroll
    for (int n = 0; n < kCount; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        scores[n][i] =
            long_score(a, scores[n][i], rows.slope[i / 2], lane_key + n * 8 + i % 2, rows.position[i / 2]);
  }
  if constexpr (kEdge) {
#pragma unroll
    for (int n = 0; n < kCount; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (!rows.sees(i / 2, lane_key + n * 8 + i % 2)) scores[n][i] = -INFINITY;
  }
}

/// Largest score of each of the lane's rows. NaN is less than any number: it reaches the weights.
template <int kCount>
__device__ void find_max(const float (&scores)[kCount][4], float (&max)[2]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float m = -INFINITY;
#pragma unroll
    for (int n = 0; n < kCount; ++n) m = fmaxf(m, fmaxf(scores[n][2 * i], scores[n][2 * i + 1]));
    m = fmaxf(m, __shfl_xor_sync(~0u, m, 1));
    max[i] = fmaxf(m, __shfl_xor_sync(~0u, m, 2));
  }
}

/// What 2^(x - max) subtracts: a row that has seen nothing has weights of 0, not NaN.
__device__ inline float reference_of(float max) { return max == -INFINITY ? 0 : max; }

/// Two weights, and what their rounding lost.
template <typename T>
__device__ void split_weights(float first, float second, uint32_t& high, uint32_t& low) {
  high = pack<T>(first, second);
  const float2 rounded = unpack<T>(high);
  low = pack<T>(__fsub_rn(first, rounded.x), __fsub_rn(second, rounded.y));
}

/// Whether all of a warp's rows see all of `count` keys, and whether none sees any.
struct Sight {
  bool all, none;
  __device__ Sight(const LaneRows& rows, int first_key, int count) {
    const int last = first_key + count - 1;
    bool every = true, any = false;
    for (int i = 0; i < 2; ++i) {
      every = every && rows.sees(i, first_key) && rows.sees(i, last);
      any = any || (rows.position[i] >= first_key && rows.first[i] <= last);
    }
    all = __all_sync(~0u, every);
    none = !__any_sync(~0u, any);
  }
};

/// Makes `tile_max` count; whether what has been summed is to be multiplied with the rows' factors.
__device__ inline bool raise_max(float (&max)[2], const float (&tile_max)[2], float (&factor)[2]) {
  for (int i = 0; i < 2; ++i) {
    const float both = fmaxf(max[i], tile_max[i]);
    factor[i] = both == max[i] ? 1 : exp2_fast(__fsub_rn(max[i], reference_of(both)));
    max[i] = both;
  }
  return __any_sync(~0u, factor[0] != 1 || factor[1] != 1);
}

/// Weighted values of a span, for each of the lane's rows: of Format::column(n, {0, 1}).
template <int kCols>
struct Sums {
  float values[kCols / 8][4];
  float weights[4];  // sums of them: [0] and [2], the others are equal
  float max[2];

  __device__ void clear() {
#pragma unroll
    for (int n = 0; n < kCols / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) values[n][i] = 0;
    for (float& weight : weights) weight = 0;
    max[0] = max[1] = -INFINITY;
  }
  /// After a span's last tile.
  __device__ void finish_span() {}
  /// Makes `tile_max` count.
  __device__ void raise(const float (&tile_max)[2]) {
    float factor[2];
    if (raise_max(max, tile_max, factor)) scale(factor);
  }
  __device__ void scale(const float (&factor)[2]) {
    for (int i = 0; i < 4; ++i) weights[i] = __fmul_rn(weights[i], factor[i / 2]);
#pragma unroll
    for (int n = 0; n < kCols / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) values[n][i] = __fmul_rn(values[n][i], factor[i / 2]);
  }
};

/// How a span's sums join those before it.
struct Join {
  float max, total_factor, span_factor;
  __device__ Join(float total_max, float span_max) : max(fmaxf(total_max, span_max)) {
    total_factor = exp2_fast(__fsub_rn(total_max, reference_of(max)));
    span_factor = exp2_fast(__fsub_rn(span_max, reference_of(max)));
  }
  __device__ float operator()(float total, float span) const {
    return __fmaf_rn(span, span_factor, __fmul_rn(total, total_factor));
  }
};

/// What a row's values are multiplied with at last; a sink is one more key, of value 0.
__device__ inline float last_factor(const AttentionArgs& a, int head, float max, float sum) {
  if (a.sinks == nullptr) return 1 / sum;
  const float sink = a.sinks[head] * kLog2e;
  const Join join(max, isinf(a.sinks[head]) ? sink : fminf(fmaxf(sink, -FLT_MAX), FLT_MAX));
  return join.total_factor / join(sum, 1);
}

template <typename T>
__device__ T* out_row(const AttentionArgs& a, const AttentionTile& tile, int row, int head) {
  return reinterpret_cast<T*>(a.out + tile.token(row, a.group) * a.out_stride_bytes) +
         int64_t{head} * a.head_dim;
}

}  // namespace
}  // namespace lmdeploy::cuda
