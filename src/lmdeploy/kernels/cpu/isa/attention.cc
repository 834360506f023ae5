// Attention of some query rows over one span of keys: online softmax over tiles of kTileKeys keys. Both
// products run on the register tile of micro.h: scores = K^T q with K transposed into the cache, values = V^T
// p. Of a cache of codes both are products with the codes; a key's scale and min come in afterwards:
//   q . (code * scale + min) = scale * (q . code) + min * sum(q),
//   sum_j p_j * (code_j * scale_j + min_j) = sum_j (p_j * scale_j) * code_j + sum_j p_j * min_j.
#include "lmdeploy/kernels/cpu/isa/functions.h"
#include "lmdeploy/kernels/cpu/isa/micro.h"

namespace lmdeploy::cpu::LMDEPLOY_ISA {
namespace {

constexpr float kMinusInf = -__builtin_inff();
constexpr int kTile = static_cast<int>(kTileKeys);

/// Scales and mins of the rows of a tile: [kTileKeys] each.
struct Params {
  float* scale;
  float* min;
};

struct Scratch {
  float* keys;  // [kTileKeys / 16][head_dim][16]: K of a tile, or of one panel
  /// [kTileKeys][value_stride]: V of a tile as f32, or rows of the cache that do not lie together.
  float* rows;
  float* scores;  // [16][kTileKeys]
  Params k[2];    // of codes: of the parts of the keys
  Params v;

  explicit Scratch(const AttentionSpan& s) {
    keys = s.scratch;
    rows = keys + kTileKeys * s.head_dim;
    scores = rows + kTileKeys * value_stride(s.head_dim);
    float* params = scores + 16 * kTileKeys;
    k[0] = {params, params + kTileKeys};
    k[1] = {params + 2 * kTileKeys, params + 3 * kTileKeys};
    v = {params + 4 * kTileKeys, params + 5 * kTileKeys};
  }
};

/// A tile of K or V: [keys][value_stride(head_dim)] floats, `stride` apart.
struct Rows {
  const float* data;
  int64_t stride;
};

/// The keys of a tile: panels made for all of them, or rows of the cache from which each is made when it is
/// used.
struct Keys {
  const std::byte* rows = nullptr;
  const std::byte* ahead = nullptr;  // rows that are read soon, asked for meanwhile
};

/// A tile of V: widened, or rows of the cache that are widened where they are used.
struct Values {
  Rows widened = {};
  const std::byte* rows = nullptr;
  const std::byte* ahead = nullptr;  // as in Keys
};

/// Asks for rows that lie together, evenly while others are multiplied: all at once they would wait for each
/// other, and the products for them. Two tiles do not fit into the first cache, unless they are of 4 bits.
template <CacheKind kKind>
LMD_INLINE void ask_for(const std::byte* row) {
  __builtin_prefetch(row, /*write=*/0, /*locality=*/kKind == CacheKind::kU4 ? 3 : 2);
}

/// The weight of a score that much below the largest: below e^-64 none, so that products with values are
/// seldom subnormal, which would take many times as long.
LMD_INLINE VecF weight_of(VecF distance) { return exp(distance, -64); }

/// The base of an online softmax: exp(-inf - base) is 0 even while nothing but -inf has been seen.
LMD_INLINE VecF softmax_base(VecF max) { return max == kMinusInf ? VecF{} : max; }

/// Keys of a tile, counted from its first.
struct Range {
  int64_t begin;
  int64_t end;
};

/// What one query sees of the tile [tile_key, tile_key + n): both ends rise with the query.
LMD_INLINE Range seen_keys(const AttentionSpan& s, int64_t query, int64_t tile_key, int64_t n) {
  const auto in_tile = [=](int64_t key) {
    return key < tile_key ? 0 : key - tile_key < n ? key - tile_key : n;
  };
  const int64_t end = s.first_keys + query / s.group;
  return {in_tile(end - s.window), in_tile(end)};
}

template <CacheKind kKind>
LMD_INLINE VecF widen_halves(VecU16 v) {
  return kKind == CacheKind::kF16 ? f16_to_f32(v) : bf16_to_f32(v);
}

template <CacheKind kKind>
void widen_halves(float* dst, const std::byte* src, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(dst + i, widen_halves<kKind>(load_as<VecU16>(src + i * 2)));
  if (i == n) return;
  VecU16 rest{};
  __builtin_memcpy(&rest, src + i * 2, static_cast<size_t>(n - i) * 2);
  store(dst + i, widen_halves<kKind>(rest), n - i);
}

void widen(float* dst, CacheKind kind, const std::byte* src, int64_t n) {
  if (kind == CacheKind::kF16) return widen_halves<CacheKind::kF16>(dst, src, n);
  if (kind == CacheKind::kBF16) return widen_halves<CacheKind::kBF16>(dst, src, n);
  __builtin_memcpy(dst, src, static_cast<size_t>(n) * sizeof(float));
}

/// Which bits of a byte are a code.
enum class Bits { kAll, kLow, kHigh };

template <Bits kBits>
LMD_INLINE VecF code_of(VecU8 bytes) {
  const VecI wide = widen(bytes);
  return to_f32(kBits == Bits::kAll ? wide : kBits == Bits::kLow ? wide & 15 : wide >> 4);
}
template <Bits kBits>
void widen_codes(float* dst, const std::byte* src, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(dst + i, code_of<kBits>(load_as<VecU8>(src + i)));
  if (i == n) return;
  VecU8 rest{};
  __builtin_memcpy(&rest, src + i, static_cast<size_t>(n - i));
  store(dst + i, code_of<kBits>(rest), n - i);
}

void widen_row(float* dst, const AttentionSpan& s, const std::byte* src) {
  if (!is_coded(s.kind)) return widen(dst, s.kind, src, s.head_dim);
  if (s.kind == CacheKind::kU8) return widen_codes<Bits::kAll>(dst, src, s.head_dim);
  widen_codes<Bits::kLow>(dst, src, s.row_bytes);
  widen_codes<Bits::kHigh>(dst + s.row_bytes, src, s.head_dim - s.row_bytes);
}

/// Rows of one block that lie one after the other.
struct CachedRows {
  const std::byte* data;
  const std::byte* block_params;  // of the block's first row
  int64_t offset;                 // in the block
  int64_t count;
};

/// Widens rows; columns past head_dim become 0.
void widen_rows(float* rows, const AttentionSpan& s, CachedRows from) {
  const int64_t stride = value_stride(s.head_dim);
  if (stride == s.head_dim && !is_coded(s.kind)) return widen(rows, s.kind, from.data, from.count * stride);
  for (int64_t j = 0; j < from.count; ++j, rows += stride) {
    widen_row(rows, s, from.data + j * s.row_bytes);
    for (int64_t d = s.head_dim; d < stride; ++d) rows[d] = 0;
  }
}

/// fn(first, rows) for all runs of `keys` of a tile that lie in one block; `first` counts from the tile's.
template <typename Fn>
LMD_INLINE void for_runs(const AttentionSpan& s, const std::byte* cache, int64_t tile_key, Range keys,
                         const Fn& fn) {
  for (int64_t j = keys.begin; j < keys.end;) {
    const int64_t offset = (tile_key + j) % s.block_len;
    const std::byte* block = cache + s.block_table[(tile_key + j) / s.block_len] * s.block_bytes;
    const int64_t count = s.block_len - offset < keys.end - j ? s.block_len - offset : keys.end - j;
    fn(j, CachedRows{block + offset * s.row_bytes, block + s.params_offset, offset, count});
    j += count;
  }
}

/// K or V of `keys` of a tile as f32: where they lie if that is one piece of whole vectors, else in `rows`.
/// What lies before the first and after the last key is not defined.
Rows load_tile(float* rows, const AttentionSpan& s, const std::byte* cache, int64_t tile_key, Range keys) {
  const int64_t stride = value_stride(s.head_dim);
  Rows tile = {rows, stride};
  for_runs(s, cache, tile_key, keys, [&](int64_t first, CachedRows run) {
    if (run.count == kTileKeys && s.kind == CacheKind::kF32 && stride == s.head_dim) {
      tile.data = reinterpret_cast<const float*>(run.data);
    } else {
      widen_rows(rows + first * stride, s, run);
    }
  });
  return tile;
}

/// The rows of a tile, s.row_bytes apart, with some bytes to read after the last: where they lie, or in
/// `copy`. Rows that are not of `keys` may hold anything.
const std::byte* gather_rows(float* scratch, const AttentionSpan& s, const std::byte* cache, int64_t tile_key,
                             Range keys) {
  auto* copy = reinterpret_cast<std::byte*>(scratch);
  const std::byte* rows = copy;
  for_runs(s, cache, tile_key, keys, [&](int64_t first, CachedRows run) {
    if (s.block_len % kTileKeys == 0) {
      rows = run.data - first * s.row_bytes;
    } else {
      __builtin_memcpy(copy + first * s.row_bytes, run.data, static_cast<size_t>(run.count * s.row_bytes));
    }
  });
  return rows;
}

/// panel[i][j] = the code in these bits of columns[i][j], for `n` columns.
template <Bits kBits>
LMD_INLINE void widen_columns(float* panel, const uint8_t (&columns)[kByteColumns][16], int64_t n) {
#pragma GCC unroll 4
  for (int64_t i = 0; i < n; ++i)
    for (int lane = 0; lane < 16; lane += kLanes)
      store(panel + i * 16 + lane, code_of<kBits>(load_as<VecU8>(&columns[i][lane])));
}

template <CacheKind kKind>
void transpose_codes(float* panel, const AttentionSpan& s, const std::byte* rows, const std::byte* ahead) {
  const auto at_most = [](int64_t n) { return n < kByteColumns ? n : kByteColumns; };
  for (int64_t d = 0; d < s.row_bytes; d += kByteColumns, panel += kByteColumns * 16) {
    uint8_t columns[kByteColumns][16];
    transpose_bytes(columns, rows + d, s.row_bytes);
    if (ahead != nullptr)
      for (int64_t line = 0; line < 16 * kByteColumns; line += 64) ask_for<kKind>(ahead + 16 * d + line);
    if constexpr (kKind == CacheKind::kU8) {
      widen_columns<Bits::kAll>(panel, columns, at_most(s.row_bytes - d));
    } else {
      widen_columns<Bits::kLow>(panel, columns, at_most(s.row_bytes - d));
      widen_columns<Bits::kHigh>(panel + s.row_bytes * 16, columns, at_most(s.head_dim - s.row_bytes - d));
    }
  }
}

template <CacheKind kKind>
LMD_INLINE SquareRow load_square_row(const std::byte* p) {
  if constexpr (kKind == CacheKind::kF32) return load_as<SquareRow>(p);
  return kKind == CacheKind::kF16 ? square_row_of_f16(p) : square_row_of_bf16(p);
}
template <CacheKind kKind>
void transpose_floats(float* panel, const AttentionSpan& s, const std::byte* rows, const std::byte* ahead) {
  constexpr int64_t kBytes = kKind == CacheKind::kF32 ? 4 : 2;  // of an element
  const int64_t whole = s.head_dim / kSquare * kSquare;
  for (int64_t first = 0; first < 16; first += kSquare) {
    const std::byte* from = rows + first * s.row_bytes;
    for (int64_t d = 0; d < whole; d += kSquare) {
      if (ahead != nullptr)
        for (int64_t at = 0; at < kSquare * kSquare * kBytes; at += 64)
          ask_for<kKind>(ahead + first * s.row_bytes + d * kSquare * kBytes + at);
      transpose_square(panel + d * 16 + first,
                       [&](int i) { return load_square_row<kKind>(from + i * s.row_bytes + d * kBytes); });
    }
  }
  for (int64_t i = 0; i < 16; ++i)
    for (int64_t d = whole; d < s.head_dim; ++d)
      widen(panel + d * 16 + i, kKind, rows + i * s.row_bytes + d * kBytes, 1);
}

/// panel[d][j] = element or code d of row j of 16 rows, s.row_bytes apart. Asks for those at `ahead`, if any.
void transpose_panel(float* panel, const AttentionSpan& s, const std::byte* rows, const std::byte* ahead) {
  if (s.kind == CacheKind::kU8) return transpose_codes<CacheKind::kU8>(panel, s, rows, ahead);
  if (s.kind == CacheKind::kU4) return transpose_codes<CacheKind::kU4>(panel, s, rows, ahead);
  if (s.kind == CacheKind::kF16) return transpose_floats<CacheKind::kF16>(panel, s, rows, ahead);
  if (s.kind == CacheKind::kBF16) return transpose_floats<CacheKind::kBF16>(panel, s, rows, ahead);
  transpose_floats<CacheKind::kF32>(panel, s, rows, ahead);
}

/// Scales and mins of a tile's rows, which have `parts` pairs each. Those that are not of `keys` may be
/// anything.
void load_params(Params* params, int64_t parts, const AttentionSpan& s, const std::byte* cache,
                 int64_t tile_key, Range keys) {
  std::byte copy[2 * kTileKeys * 4];
  const std::byte* pairs = copy;
  for_runs(s, cache, tile_key, keys, [&](int64_t first, CachedRows run) {
    const std::byte* from = run.block_params + run.offset * parts * 4;
    if (s.block_len % kTileKeys == 0)
      pairs = from - first * parts * 4;
    else
      __builtin_memcpy(copy + first * parts * 4, from, static_cast<size_t>(run.count * parts) * 4);
  });
  for (int64_t part = 0; part < parts; ++part) {
    for (int64_t j = 0; j < kTileKeys; j += kLanes) {
      VecU pair = load_as<VecU>(pairs + j * 4);
      if (parts > 1)
        for (int i = 0; i < kLanes; ++i) pair[i] = load_as<uint32_t>(pairs + ((j + i) * parts + part) * 4);
      store(params[part].scale + j, f16_to_f32(__builtin_convertvector(pair & 0xffffu, VecU16)));
      store(params[part].min + j, f16_to_f32(__builtin_convertvector(pair >> 16, VecU16)));
    }
  }
}

/// Scores of one query become cap(scale * score) + alibi, see AttentionOptions.
void adjust_scores(float* scores, Range seen, const AttentionSpan& s, int64_t query, int64_t tile_key) {
  const int64_t position = s.first_keys + query / s.group - 1;
  const VecF slope = splat(s.alibi_slopes == nullptr ? 0 : s.alibi_slopes[query % s.group]);
  const auto in_bf16 = [](VecF v) { return bf16_to_f32(f32_to_bf16(v)); };
  for (int64_t j = seen.begin / kLanes * kLanes; j < seen.end; j += kLanes) {
    const VecI key = lane_index() + static_cast<int32_t>(tile_key + j);
    VecF score = load(scores + j) * s.scale;
    if (s.soft_cap > 0) score = tanh(score / s.soft_cap) * s.soft_cap;
    if (s.alibi_slopes != nullptr)
      score += s.alibi_in_bf16 ? in_bf16(in_bf16(slope) * in_bf16(to_f32(key))) * s.scale
                               : slope * to_f32(key - static_cast<int32_t>(position));
    store(scores + j, score);
  }
}

/// What a query does not see of keys [j, j + kLanes) becomes `hidden`.
LMD_INLINE VecF masked(Range seen, int64_t j, VecF v, float hidden) {
  if (j >= seen.begin && j + kLanes <= seen.end) return v;
  const VecI key = lane_index() + static_cast<int32_t>(j);
  const VecI visible = (key >= static_cast<int32_t>(seen.begin)) & (key < static_cast<int32_t>(seen.end));
  return visible ? v : splat(hidden);
}

/// Weights of codes: each times its row's scale. Returns the sum of weight * min.
float scale_weights(float* weights, Range seen, Params params) {
  VecF mins{};
  for (int64_t j = seen.begin / kLanes * kLanes; j < seen.end; j += kLanes) {
    const VecF weight = load(weights + j);
    mins += masked(seen, j, weight * load(params.min + j), 0);
    store(weights + j, weight * load(params.scale + j));
  }
  return reduce_add(mins);
}

LMD_INLINE float largest_score(const float* scores, Range seen, float scale) {
  VecF most = splat(kMinusInf);
  for (int64_t j = seen.begin / kLanes * kLanes; j < seen.end; j += kLanes)
    most = larger(masked(seen, j, load(scores + j) * scale, kMinusInf), most);
  return reduce_max(most);
}

/// Scores become weights; returns their sum, lane by lane.
LMD_INLINE VecF weigh(float* scores, Range seen, float scale, float base) {
  VecF total{};
#pragma GCC unroll 4
  for (int64_t j = seen.begin / kLanes * kLanes; j < seen.end; j += kLanes) {
    const VecF weight = masked(seen, j, weight_of(load(scores + j) * scale - base), 0);
    store(scores + j, weight);
    total += weight;
  }
  return total;
}

/// What earlier values shrink by when the base of the softmax is no longer `max`.
LMD_INLINE VecF shrink_of(VecF max, VecF base) { return max == base ? splat(1) : weight_of(max - base); }

/// One number of each query of a tile, in whole vectors.
struct PerQuery {
  float of[(kTokenTile + kLanes - 1) / kLanes * kLanes] = {};
};

/// The maxima of T queries join those of the scores seen since; the new bases, and what earlier values shrink
/// by.
template <int T>
LMD_INLINE void move_bases(float* max, const PerQuery& most, PerQuery& base, PerQuery& shrink) {
  PerQuery before;
  __builtin_memcpy(before.of, max, T * sizeof(float));
  for (int t = 0; t < T; t += kLanes) {
    const VecF old_max = load(before.of + t), new_max = larger(load(most.of + t), old_max);
    const VecF new_base = softmax_base(new_max);
    store(before.of + t, new_max);
    store(base.of + t, new_base);
    store(shrink.of + t, shrink_of(old_max, new_base));
  }
  __builtin_memcpy(max, before.of, T * sizeof(float));
}

/// Turns the scores of the keys that T queries see of a tile into weights; shrink.of[t] is what the earlier
/// values of query t shrink by. Step by step for all of them: the steps of one wait for each other.
template <int T>
void soften(float* scores, const Range (&seen)[T], float scale, float* max, float* sum, PerQuery& shrink) {
  constexpr Range kAll = {0, kTile};
  const auto is_all = [](Range range) { return range.begin == 0 && range.end == kTile; };
  PerQuery most, base;
  VecF total[T];
  for (int t = 0; t < T; ++t) {
    const float* row = scores + t * kTile;
    most.of[t] = is_all(seen[t]) ? largest_score(row, kAll, scale) : largest_score(row, seen[t], scale);
  }
  move_bases<T>(max, most, base, shrink);
  for (int t = 0; t < T; ++t) {
    float* row = scores + t * kTile;
    total[t] = is_all(seen[t]) ? weigh(row, kAll, scale, base.of[t]) : weigh(row, seen[t], scale, base.of[t]);
  }
  for (int t = 0; t < T; ++t) sum[t] = sum[t] * shrink.of[t] + reduce_add(total[t]);
}

/// Sixteen columns of the rows of a tile of V: widened, or elements or codes where they lie.
struct FloatColumns {
  const float* data;
  int64_t stride;
  LMD_INLINE Row16 operator()(int64_t row) const { return load16(data + row * stride); }
};
template <CacheKind kKind>
struct CachedColumns {
  static constexpr int kBytes = kKind == CacheKind::kF32 ? 4 : 2;
  const std::byte* data;
  int64_t stride;
  const std::byte* ahead;

  CachedColumns(const Values& v, int64_t row_bytes, int64_t d)
      : data(v.rows + d * kBytes), stride(row_bytes), ahead(v.ahead + d * kBytes * kTileKeys) {}
  LMD_INLINE Row16 operator()(int64_t row) const {
    ask_for<kKind>(ahead + row * 16 * kBytes);
    if constexpr (kKind == CacheKind::kF32)
      return load16(reinterpret_cast<const float*>(data + row * stride));
    return kKind == CacheKind::kF16 ? load16_f16(data + row * stride) : load16_bf16(data + row * stride);
  }
};
template <CacheKind kKind, Bits kBits>
struct CodeColumns {
  static constexpr int kPerByte = kKind == CacheKind::kU4 ? 2 : 1;
  const std::byte* data;
  int64_t stride;
  const std::byte* ahead;

  CodeColumns(const Values& v, int64_t row_bytes, int64_t d)
      : data(v.rows + d - (kBits == Bits::kHigh ? row_bytes : 0)),
        stride(row_bytes),
        ahead(v.ahead + d * kTileKeys / kPerByte) {}
  LMD_INLINE Row16 operator()(int64_t row) const {
    ask_for<kKind>(ahead + row * 16 / kPerByte);
    Row16 r;
    for (int i = 0; i < kVecs; ++i) r.v[i] = code_of<kBits>(load_as<VecU8>(data + row * stride + i * kLanes));
    return r;
  }
};

/// Sums of weight * value over what each of T queries sees of a tile, keys rising.
template <int T, typename Columns>
LMD_INLINE void sum_values(Row16 (&sums)[T], const Columns& columns, const float* weights,
                           const Range (&seen)[T]) {
  const auto add_keys = [&](int t, int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) add_product(sums[t], columns(k), weights[t * kTile + k]);
  };
  const Range all = {seen[T - 1].begin, seen[0].end};  // what all queries see: empty in narrow windows
  int64_t next[T];
  for (int t = 0; t < T; ++t) {
    next[t] = all.begin < seen[t].end ? all.begin : seen[t].end;
    sums[t] = Row16{};
    add_keys(t, seen[t].begin, next[t]);
  }
#pragma GCC unroll 4
  for (int64_t k = all.begin; k < all.end; ++k) {
    const Row16 column = columns(k);
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) add_product(sums[t], column, weights[t * kTile + k]);
  }
  for (int t = 0; t < T; ++t) add_keys(t, next[t] < all.end ? all.end : next[t], seen[t].end);
}

/// sum_values() of columns [d, d + 16).
template <int T>
LMD_INLINE void sum_columns(Row16 (&sums)[T], const AttentionSpan& s, const Values& v, int64_t d,
                            const float* weights, const Range (&seen)[T]) {
  if (v.rows == nullptr)
    sum_values<T>(sums, FloatColumns{v.widened.data + d, v.widened.stride}, weights, seen);
  else if (s.kind == CacheKind::kF16)
    sum_values<T>(sums, CachedColumns<CacheKind::kF16>(v, s.row_bytes, d), weights, seen);
  else if (s.kind == CacheKind::kBF16)
    sum_values<T>(sums, CachedColumns<CacheKind::kBF16>(v, s.row_bytes, d), weights, seen);
  else if (s.kind == CacheKind::kF32)
    sum_values<T>(sums, CachedColumns<CacheKind::kF32>(v, s.row_bytes, d), weights, seen);
  else if (s.kind == CacheKind::kU8)
    sum_values<T>(sums, CodeColumns<CacheKind::kU8, Bits::kAll>(v, s.row_bytes, d), weights, seen);
  else if (d < s.row_bytes)
    sum_values<T>(sums, CodeColumns<CacheKind::kU4, Bits::kLow>(v, s.row_bytes, d), weights, seen);
  else
    sum_values<T>(sums, CodeColumns<CacheKind::kU4, Bits::kHigh>(v, s.row_bytes, d), weights, seen);
}

/// Scores of the codes of a panel of keys become those of the keys.
template <int T>
LMD_INLINE void decode_scores(Row16 (&scores)[T], Params params, int64_t panel, const float* q_sums) {
  const Row16 scale = load16(params.scale + panel * 16), min = load16(params.min + panel * 16);
  for (int t = 0; t < T; ++t) {
    Row16 decoded = min * q_sums[t];
    add_product(decoded, scores[t], scale);
    scores[t] = decoded;
  }
}

/// Queries [first, first + T) times the tile of n keys that begins at `tile_key`.
template <int T>
void attend_tile(const AttentionSpan& s, const Scratch& scratch, const Keys& k, const Values& v,
                 int64_t first, int64_t tile_key, int64_t n) {
  Range seen[T];
  for (int t = 0; t < T; ++t) seen[t] = seen_keys(s, first + t, tile_key, n);
  const float* q = s.q + first * s.head_dim;
  const float* q_sums = s.q + s.num_queries * s.head_dim + first;
  const int64_t first_part = s.key_parts == 2 ? s.row_bytes : s.head_dim;
  for (int64_t panel = seen[0].begin / 16; panel * 16 < seen[T - 1].end; ++panel) {
    const float* keys = scratch.keys + (k.rows == nullptr ? panel * s.head_dim * 16 : 0);
    if (k.rows != nullptr)
      transpose_panel(scratch.keys, s, k.rows + panel * 16 * s.row_bytes,
                      k.ahead == nullptr ? nullptr : k.ahead + panel * 16 * s.row_bytes);
    Row16 sums[T];
    multiply<T>(sums, keys, 16, q, first_part);
    if (is_coded(s.kind)) decode_scores<T>(sums, scratch.k[0], panel, q_sums);
    if (s.key_parts == 2) {
      Row16 rest[T];
      multiply<T>(rest, keys + first_part * 16, 16, q + first_part * T, s.head_dim - first_part);
      decode_scores<T>(rest, scratch.k[1], panel, q_sums + s.num_queries);
      for (int t = 0; t < T; ++t) sums[t] = sums[t] + rest[t];
    }
    for (int t = 0; t < T; ++t) store16(scratch.scores + t * kTile + panel * 16, sums[t]);
  }
  const bool adjusted = s.soft_cap > 0 || s.alibi_slopes != nullptr;
  float mins[T] = {};
  PerQuery shrink;
  for (int t = 0; adjusted && t < T; ++t)
    adjust_scores(scratch.scores + t * kTile, seen[t], s, first + t, tile_key);
  soften<T>(scratch.scores, seen, adjusted ? 1 : s.scale, s.max + first, s.sum + first, shrink);
  for (int t = 0; is_coded(s.kind) && t < T; ++t)
    mins[t] = scale_weights(scratch.scores + t * kTile, seen[t], scratch.v);
  const int64_t stride = value_stride(s.value_dim);
  for (int64_t d = 0; d < stride; d += 16) {
    Row16 sums[T];
    sum_columns<T>(sums, s, v, d, scratch.scores, seen);
    for (int t = 0; t < T; ++t) {
      float* values = s.values + (first + t) * stride + d;
      if (is_coded(s.kind)) sums[t] = sums[t] + mins[t];
      add_product(sums[t], load16(values), shrink.of[t]);
      store16(values, sums[t]);
    }
  }
}

/// attend_tile for T = `size`, which is in [1, kMax].
template <int kMax>
LMD_INLINE void attend_tile_of(int64_t size, const AttentionSpan& s, const Scratch& scratch, const Keys& k,
                               const Values& v, int64_t first, int64_t tile_key, int64_t n) {
  if constexpr (kMax > 1) {
    if (size != kMax) return attend_tile_of<kMax - 1>(size, s, scratch, k, v, first, tile_key, n);
  }
  attend_tile<kMax>(s, scratch, k, v, first, tile_key, n);
}

float sum_of(const float* x, int64_t n) {
  VecF sum{};
  for (int64_t i = 0; i < n; i += kLanes) sum += load(x + i, n - i);
  return reduce_add(sum);
}

/// Whether the rows of a tile lie together and are used once, by one tile of queries: then what is made of
/// them need not leave the first cache, and those that are read next are asked for one by one, meanwhile.
LMD_INLINE bool streams_rows(const AttentionSpan& s, int64_t num_query_tiles) {
  return num_query_tiles == 1 && s.block_len % kTileKeys == 0;
}

/// Whether a tile's values are asked for while its keys are read, and the next tile's keys while its values
/// are. Codes, half as many bytes, come soon enough a whole tile ahead.
LMD_INLINE bool asks_in_turn(const AttentionSpan& s) { return !is_coded(s.kind) && s.v != s.k; }

/// The rows of the tile at `tile_key`; nullptr if this thread does not read them.
const std::byte* rows_of_tile(const AttentionSpan& s, const std::byte* cache, int64_t tile_key) {
  return tile_key < s.next_end ? gather_rows(nullptr, s, cache, tile_key, {0, 1}) : nullptr;
}

/// Asks for what load_params() reads of the next tile, if this thread reads one. Inlined: calls of a function
/// that does nothing else GCC leaves out.
LMD_INLINE void ask_for_params(const AttentionSpan& s, const std::byte* cache, int64_t parts,
                               int64_t tile_key) {
  const int64_t next = tile_key + kTileKeys;
  if (next >= s.next_end) return;
  for_runs(s, cache, next, {0, 1}, [&](int64_t, CachedRows run) {
    for (int64_t at = 0; at < kTileKeys * parts * 4; at += 64)
      __builtin_prefetch(run.block_params + run.offset * parts * 4 + at);
  });
}

Keys make_keys(const Scratch& scratch, const AttentionSpan& s, int64_t tile_key, Range keys,
               int64_t num_query_tiles) {
  if (streams_rows(s, num_query_tiles)) {
    return {.rows = rows_of_tile(s, s.k, tile_key),
            .ahead = asks_in_turn(s) ? rows_of_tile(s, s.v, tile_key)
                                     : rows_of_tile(s, s.k, tile_key + kTileKeys)};
  }
  const std::byte* rows = gather_rows(scratch.rows, s, s.k, tile_key, keys);
  for (int64_t j = keys.begin / 16 * 16; j < keys.end; j += 16)
    transpose_panel(scratch.keys + j * s.head_dim, s, rows + j * s.row_bytes, nullptr);
  return {};
}
Values make_values(const Scratch& scratch, const AttentionSpan& s, int64_t tile_key, Range keys,
                   int64_t num_query_tiles) {
  const bool whole_vectors = is_coded(s.kind) ? s.row_bytes % 16 == 0 : s.head_dim % 16 == 0;
  if (!streams_rows(s, num_query_tiles) || !whole_vectors)
    return {.widened = load_tile(scratch.rows, s, s.v, tile_key, keys)};
  const std::byte* rows = rows_of_tile(s, s.v, tile_key);
  const std::byte* ahead = rows_of_tile(s, asks_in_turn(s) ? s.k : s.v, tile_key + kTileKeys);
  return {.rows = rows, .ahead = ahead == nullptr ? rows : ahead};
}

LMD_INLINE int64_t num_query_tiles(int64_t num_queries) {
  return (num_queries + kTokenTile - 1) / kTokenTile;
}

}  // namespace

void pack_queries(float* packed, const QueryRows& rows) {
  const int64_t num_queries = rows.num_queries, head_dim = rows.head_dim;
  const int64_t num_tiles = num_query_tiles(num_queries);
  float* sums = packed + num_queries * head_dim;
  float* turned = sums + 2 * num_queries;
  for (int64_t tile = 0; tile < num_tiles; ++tile) {
    const int64_t begin = tile_begin(tile, num_queries, num_tiles);
    const int64_t size = tile_begin(tile + 1, num_queries, num_tiles) - begin;
    for (int64_t t = 0; t < size; ++t) {
      const int64_t query = begin + t;
      const float* row = rows.q + query / rows.group * rows.stride + query % rows.group * head_dim;
      if (rows.turned_run > 1) {
        turn_row(turned, row, head_dim, rows.turned_run);
        row = turned;
      }
      for (int64_t d = 0; d < head_dim; ++d) packed[begin * head_dim + d * size + t] = row[d];
      sums[query] = sum_of(row, rows.first_part);
      sums[num_queries + query] = sum_of(row + rows.first_part, head_dim - rows.first_part);
    }
  }
}

void attention_span(const AttentionSpan& s) {
  Scratch scratch(s);
  for (int64_t i = 0; i < s.num_queries; ++i) {
    s.max[i] = kMinusInf;
    s.sum[i] = 0;
  }
  __builtin_memset(s.values, 0,
                   static_cast<size_t>(s.num_queries * value_stride(s.value_dim)) * sizeof(float));
  const int64_t num_tiles = num_query_tiles(s.num_queries);
  const auto wanted = [&s](int64_t tile_key) {
    const int64_t begin = s.first_key > tile_key ? s.first_key - tile_key : 0;
    return Range{begin, s.end_key - tile_key < kTileKeys ? s.end_key - tile_key : kTileKeys};
  };
  for (int64_t key = s.first_key / kTileKeys * kTileKeys; key < s.end_key; key += kTileKeys) {
    const Range keys = wanted(key);
    if (is_coded(s.kind)) {
      load_params(scratch.k, s.key_parts, s, s.k, key, keys);
      load_params(&scratch.v, 1, s, s.v, key, keys);
      if (streams_rows(s, num_tiles)) {
        ask_for_params(s, s.k, s.key_parts, key);
        ask_for_params(s, s.v, 1, key);
      }
    }
    const Keys k = make_keys(scratch, s, key, keys, num_tiles);
    const Values v = make_values(scratch, s, key, keys, num_tiles);
    for (int64_t tile = 0; tile < num_tiles; ++tile) {
      const int64_t begin = tile_begin(tile, s.num_queries, num_tiles);
      const int64_t end = tile_begin(tile + 1, s.num_queries, num_tiles);
      if (seen_keys(s, begin, key, keys.end).begin < seen_keys(s, end - 1, key, keys.end).end)
        attend_tile_of<kTokenTile>(end - begin, s, scratch, k, v, begin, key, keys.end);
    }
  }
}

void merge_spans(float* max, float* sum, float* values, float other_max, float other_sum,
                 const float* other_values, int64_t value_dim) {
  const float new_max = other_max > *max ? other_max : *max;
  const VecF base = softmax_base(splat(new_max));
  const float mine = shrink_of(splat(*max), base)[0];
  const float other = shrink_of(splat(other_max), base)[0];
  *max = new_max;
  *sum = *sum * mine + other_sum * other;
  for (int64_t d = 0; d < value_stride(value_dim); d += kLanes)
    store(values + d, load(values + d) * mine + load(other_values + d) * other);
}

void finish_row(float* out, const float* values, float max, float sum, float sink, int64_t value_dim) {
  const VecF base = softmax_base(splat(sink > max ? sink : max));
  const float shrink = shrink_of(splat(max), base)[0];
  const float total = sum * shrink + (sink == kMinusInf ? 0 : shrink_of(splat(sink), base)[0]);
  const float factor = shrink / total;
  for (int64_t d = 0; d < value_dim; d += kLanes) store(out + d, load(values + d) * factor, value_dim - d);
}

}  // namespace lmdeploy::cpu::LMDEPLOY_ISA
