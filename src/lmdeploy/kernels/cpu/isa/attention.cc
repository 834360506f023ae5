// Attention of some query rows over one span of keys: online softmax over tiles of kTileKeys keys. Both
// products run on the register tile of micro.h: scores = K^T q with K transposed into the cache, values = V^T
// p.
#include "lmdeploy/kernels/cpu/isa/functions.h"
#include "lmdeploy/kernels/cpu/isa/micro.h"

namespace lmdeploy::cpu::LMDEPLOY_ISA {
namespace {

constexpr float kMinusInf = -__builtin_inff();
constexpr int kTile = static_cast<int>(kTileKeys);

struct Scratch {
  float* keys;    // [kTileKeys / 16][head_dim][16]: K of a tile
  float* rows;    // [kTileKeys][value_stride]: a tile of K or V as f32, where it must be widened
  float* scores;  // [16][kTileKeys]
};

/// A tile of K or V: [keys][value_stride(head_dim)] floats, `stride` apart.
struct Rows {
  const float* data;
  int64_t stride;
};

LMD_INLINE float exp_of(float x) { return exp(splat(x))[0]; }

/// The base of an online softmax: exp(-inf - base) is 0 even while nothing but -inf has been seen.
LMD_INLINE float softmax_base(float max) { return max == kMinusInf ? 0 : max; }

LMD_INLINE int64_t keys_of(const AttentionSpan& s, int64_t query) { return s.first_keys + query / s.group; }

template <Kind kKind>
LMD_INLINE VecF widen_halves(VecU16 v) {
  return kKind == Kind::kF16 ? f16_to_f32(v) : bf16_to_f32(v);
}

template <Kind kKind>
void widen_halves(float* dst, const std::byte* src, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(dst + i, widen_halves<kKind>(load_as<VecU16>(src + i * 2)));
  if (i == n) return;
  VecU16 rest{};
  __builtin_memcpy(&rest, src + i * 2, static_cast<size_t>(n - i) * 2);
  store(dst + i, widen_halves<kKind>(rest), n - i);
}

void widen(float* dst, Kind kind, const std::byte* src, int64_t n) {
  if (kind == Kind::kF16) return widen_halves<Kind::kF16>(dst, src, n);
  if (kind == Kind::kBF16) return widen_halves<Kind::kBF16>(dst, src, n);
  __builtin_memcpy(dst, src, static_cast<size_t>(n) * sizeof(float));
}

/// Widens `num_rows` rows that lie one after the other; columns past head_dim become 0.
void widen_rows(float* rows, const AttentionSpan& s, const std::byte* src, int64_t num_rows) {
  const int64_t stride = value_stride(s.head_dim);
  if (stride == s.head_dim) return widen(rows, s.kind, src, num_rows * stride);
  const int64_t row_bytes = s.head_dim * (s.kind == Kind::kF32 ? 4 : 2);
  for (int64_t j = 0; j < num_rows; ++j, rows += stride, src += row_bytes) {
    widen(rows, s.kind, src, s.head_dim);
    for (int64_t d = s.head_dim; d < stride; ++d) rows[d] = 0;
  }
}

/// Keys [first, first + n) of K or V as f32: where they lie if that is one piece of whole vectors, else in
/// `rows`. What follows the last key is not defined.
Rows load_tile(float* rows, const AttentionSpan& s, const std::byte* cache, int64_t first, int64_t n) {
  const int64_t stride = value_stride(s.head_dim);
  const int64_t row_bytes = s.head_dim * (s.kind == Kind::kF32 ? 4 : 2);
  for (int64_t j = 0; j < n;) {
    const int64_t offset = (first + j) % s.block_len;
    const std::byte* block = cache + s.block_table[(first + j) / s.block_len] * s.block_bytes;
    const int64_t rest = s.block_len - offset < n - j ? s.block_len - offset : n - j;
    if (rest == kTileKeys && s.kind == Kind::kF32 && stride == s.head_dim)
      return {reinterpret_cast<const float*>(block + offset * row_bytes), stride};
    widen_rows(rows + j * stride, s, block + offset * row_bytes, rest);
    j += rest;
  }
  return {rows, stride};
}

/// Asks for a tile that is read soon: tiles lie in scattered blocks and are read in strides, which the
/// processor does not foresee.
void prefetch_tile(const AttentionSpan& s, const std::byte* cache, int64_t first, int64_t n) {
  const int64_t row_bytes = s.head_dim * (s.kind == Kind::kF32 ? 4 : 2);
  for (int64_t j = 0; j < n;) {
    const int64_t offset = (first + j) % s.block_len;
    const std::byte* block = cache + s.block_table[(first + j) / s.block_len] * s.block_bytes;
    const int64_t rest = s.block_len - offset < n - j ? s.block_len - offset : n - j;
    for (int64_t line = 0; line < rest * row_bytes; line += 64)
      __builtin_prefetch(block + offset * row_bytes + line, /*write=*/0, /*locality=*/2);
    j += rest;
  }
}

/// keys[j / 16][d][j % 16] = rows[j][d] for the first n keys, and some more to fill a vector.
void transpose_keys(float* keys, Rows rows, int64_t head_dim, int64_t n) {
  for (int64_t j = 0; j < n; j += kSquare) {
    float* panel = keys + j / 16 * head_dim * 16 + j % 16;
    int64_t d = 0;
    for (; d + kSquare <= head_dim; d += kSquare)
      transpose_square(panel + d * 16, 16, rows.data + j * rows.stride + d, rows.stride);
    for (; d < head_dim; ++d)
      for (int64_t i = 0; i < kSquare; ++i) panel[d * 16 + i] = rows.data[(j + i) * rows.stride + d];
  }
}

/// Turns the scores of one query's `n` visible keys into weights; returns what the earlier values shrink by.
float soften(float* scores, int64_t n, float scale, float& max, float& sum) {
  const auto visible = [n](int64_t j) { return lane_index() < static_cast<int32_t>(n - j); };
  VecF most = splat(kMinusInf);
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) most = larger(load(scores + j) * scale, most);
  if (j < n) most = larger(visible(j) ? load(scores + j) * scale : most, most);
  const float tile_max = reduce_max(most);
  const float new_max = tile_max > max ? tile_max : max;
  const float base = softmax_base(new_max);
  VecF total{};
  for (j = 0; j + kLanes <= n; j += kLanes) {
    const VecF weight = exp(load(scores + j) * scale - base);
    store(scores + j, weight);
    total += weight;
  }
  if (j < n) {
    const VecF weight = visible(j) ? exp(load(scores + j) * scale - base) : VecF{};
    store(scores + j, weight);
    total += weight;
  }
  const float shrink = exp_of(max - base);
  sum = sum * shrink + reduce_add(total);
  max = new_max;
  return shrink;
}

/// Queries [first, first + T) times one tile of keys that begins at key `first_key`.
template <int T>
void attend_tile(const AttentionSpan& s, const Scratch& scratch, Rows v, int64_t first, int64_t first_key,
                 int64_t tile_keys) {
  const float* q = s.q + first * s.head_dim;
  for (int64_t panel = 0; panel * 16 < tile_keys; ++panel) {
    Row16 sums[T];
    multiply<T>(sums, scratch.keys + panel * s.head_dim * 16, 16, q, s.head_dim);
    for (int t = 0; t < T; ++t) store16(scratch.scores + t * kTile + panel * 16, sums[t]);
  }
  int64_t visible[T];
  float shrink[T];
  for (int t = 0; t < T; ++t) {
    const int64_t keys = keys_of(s, first + t) - first_key;
    visible[t] = keys < 0 ? 0 : keys < tile_keys ? keys : tile_keys;
    shrink[t] = visible[t] == 0 ? 1
                                : soften(scratch.scores + t * kTile, visible[t], s.scale, s.max[first + t],
                                         s.sum[first + t]);
  }
  const int64_t stride = value_stride(s.head_dim);
  for (int64_t d = 0; d < stride; d += 16) {
    Row16 sums[T];
    multiply<T, kTile>(sums, v.data + d, v.stride, scratch.scores, visible[0]);
    for (int t = 0; t < T; ++t) {
      // Later queries see all keys of the first and perhaps some more.
      for (int64_t k = visible[0]; k < visible[t]; ++k)
        add_product(sums[t], load16(v.data + k * v.stride + d), scratch.scores[t * kTile + k]);
      float* values = s.values + (first + t) * stride + d;
      add_product(sums[t], load16(values), shrink[t]);
      store16(values, sums[t]);
    }
  }
}

/// attend_tile for T = `size`, which is in [1, kMax].
template <int kMax>
LMD_INLINE void attend_tile_of(int64_t size, const AttentionSpan& s, const Scratch& scratch, Rows v,
                               int64_t first, int64_t first_key, int64_t tile_keys) {
  if constexpr (kMax > 1) {
    if (size != kMax) return attend_tile_of<kMax - 1>(size, s, scratch, v, first, first_key, tile_keys);
  }
  attend_tile<kMax>(s, scratch, v, first, first_key, tile_keys);
}

LMD_INLINE int64_t num_query_tiles(int64_t num_queries) {
  return (num_queries + kTokenTile - 1) / kTokenTile;
}

}  // namespace

void pack_queries(float* packed, const float* q, int64_t stride, int64_t group, int64_t num_queries,
                  int64_t head_dim) {
  const int64_t num_tiles = num_query_tiles(num_queries);
  for (int64_t tile = 0; tile < num_tiles; ++tile) {
    const int64_t begin = tile_begin(tile, num_queries, num_tiles);
    const int64_t size = tile_begin(tile + 1, num_queries, num_tiles) - begin;
    for (int64_t t = 0; t < size; ++t) {
      const float* row = q + (begin + t) / group * stride + (begin + t) % group * head_dim;
      for (int64_t d = 0; d < head_dim; ++d) packed[begin * head_dim + d * size + t] = row[d];
    }
  }
}

void attention_span(const AttentionSpan& s) {
  const int64_t stride = value_stride(s.head_dim);
  const Scratch scratch = {s.scratch, s.scratch + kTileKeys * s.head_dim,
                           s.scratch + kTileKeys * (s.head_dim + stride)};
  for (int64_t i = 0; i < s.num_queries; ++i) {
    s.max[i] = kMinusInf;
    s.sum[i] = 0;
  }
  __builtin_memset(s.values, 0, static_cast<size_t>(s.num_queries * stride) * sizeof(float));
  const int64_t num_tiles = num_query_tiles(s.num_queries);
  for (int64_t key = s.first_key; key < s.end_key; key += kTileKeys) {
    const int64_t n = s.end_key - key < kTileKeys ? s.end_key - key : kTileKeys;
    prefetch_tile(s, s.v, key, n);
    transpose_keys(scratch.keys, load_tile(scratch.rows, s, s.k, key, n), s.head_dim, n);
    const Rows v = load_tile(scratch.rows, s, s.v, key, n);
    const int64_t next = key + kTileKeys;
    if (next < s.end_key)
      prefetch_tile(s, s.k, next, s.end_key - next < kTileKeys ? s.end_key - next : kTileKeys);
    for (int64_t tile = 0; tile < num_tiles; ++tile) {
      const int64_t begin = tile_begin(tile, s.num_queries, num_tiles);
      const int64_t end = tile_begin(tile + 1, s.num_queries, num_tiles);
      if (keys_of(s, end - 1) > key) attend_tile_of<kTokenTile>(end - begin, s, scratch, v, begin, key, n);
    }
  }
}

void merge_spans(float* max, float* sum, float* values, float other_max, float other_sum,
                 const float* other_values, int64_t head_dim) {
  const float new_max = other_max > *max ? other_max : *max;
  const float base = softmax_base(new_max);
  const float mine = exp_of(*max - base);
  const float other = exp_of(other_max - base);
  *max = new_max;
  *sum = *sum * mine + other_sum * other;
  for (int64_t d = 0; d < value_stride(head_dim); d += kLanes)
    store(values + d, load(values + d) * mine + load(other_values + d) * other);
}

void finish_row(float* out, const float* values, float sum, int64_t head_dim) {
  for (int64_t d = 0; d < head_dim; d += kLanes) store(out + d, load(values + d) / sum, head_dim - d);
}

}  // namespace lmdeploy::cpu::LMDEPLOY_ISA
