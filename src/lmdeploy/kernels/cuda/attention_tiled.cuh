// Attention on tensor cores (the tiling of Dao 2023, FlashAttention-2), 16 query rows a warp, 64 keys a tile.
//
// Two kernels, either of which takes any rows. `wide` has a warp for each 16 rows of up to 128: prompts.
// `narrow` has 16 rows in all, its four warps share each tile of keys, and several blocks can share a
// sequence: decoding. Both do the same arithmetic in the same order, so that their bits are equal.
//
// Weights are kept to twice 16 bits (a rounded part and what it lacks), each multiplied with the values, and
// summed by the same products: the result is as good as one in f32.
#pragma once

#include <cfloat>

#include "lmdeploy/kernels/cuda/attention.cuh"
#include "lmdeploy/kernels/cuda/launch.cuh"
#include "lmdeploy/kernels/cuda/mma.cuh"

namespace lmdeploy::cuda {
namespace {

constexpr int kTileKeys = 64;
constexpr int kWarpRows = 16;
constexpr int kNarrowWarps = 4;
constexpr int kNarrowThreads = kNarrowWarps * 32;
constexpr int kKeysOfWarp = kTileKeys / kNarrowWarps;
constexpr int kWeightStride = kTileKeys + 8;  // of the weights that narrow's warps share
constexpr float kLog2e = 1.4426950408889634f;

template <int kDim>
constexpr int kStride = kDim + 8;  // elements of a key in shared memory: rows begin in different banks
constexpr int kWideWarps = 8, kWideThreads = kWideWarps * 32;

__device__ inline int thread() { return static_cast<int>(threadIdx.x); }
__device__ inline int lane() { return thread() % 32; }

/// Keys that the rows of a tile see, and the element of the cache at which each key of a tile of keys begins.
struct Keys {
  int first, end;
  static constexpr int64_t kOutside = -1;  // reads as 0
  static constexpr int64_t kNowhere = -2;  // a wrong block id: reads as NaN

  __device__ Keys(const AttentionArgs& a, const AttentionTile& tile)
      : first(a.window == 0 ? 0 : max(0, tile.position(0, a.group) - a.window + 1)),
        end(min(tile.position(tile.num_rows - 1, a.group) + 1, a.max_blocks * a.block_len)) {}
  __device__ int first_tile() const { return first / kTileKeys; }
  __device__ int end_tile() const { return (end + kTileKeys - 1) / kTileKeys; }
  __device__ int64_t find(const AttentionArgs& a, const AttentionTile& tile, int kv_head, int key) const {
    if (key < first || key >= end) return kOutside;
    const int64_t block = a.block_table[tile.sequence * a.table_stride + key / a.block_len];
    if (block < 0 || block >= a.num_blocks) return kNowhere;
    return block * a.block_elements + a.k_offset +
           (int64_t{kv_head} * a.block_len + key % a.block_len) * a.head_dim;
  }
};

__device__ const uint4 kNaNs = {~0u, ~0u, ~0u, ~0u};

/// Starts the copy of a tile's keys, then its values, to `stage` [2 * kTileKeys][kStride].
template <typename T, int kDim, int kThreads>
__device__ void load_tile(const AttentionArgs& a, const int64_t* places, T* stage) {
  constexpr int kPerRow = kDim / 8;
  const T* cache = reinterpret_cast<const T*>(a.cache);
  const int64_t to_values = a.v_offset - a.k_offset;
#pragma unroll
  for (int n = 0; n < kTileKeys * kPerRow / kThreads; ++n) {
    const int i = thread() + n * kThreads, row = i / kPerRow, d = i % kPerRow * 8;
    const int64_t place = places[row];
    const bool exists = place >= 0 && d < a.head_dim;
    const T* from = exists ? cache + place + d : reinterpret_cast<const T*>(&kNaNs);
    const int bytes = exists || place == Keys::kNowhere ? 16 : 0;
    T* to = stage + row * kStride<kDim> + d;
    copy_async(to, from, bytes);
    copy_async(to + kTileKeys * kStride<kDim>, exists ? from + to_values : from, bytes);
  }
}

/// A ring of tiles of keys and values in shared memory. Each tile's places are found one tile ahead, so that
/// reading the block table takes no time of its own.
template <typename T, int kDim, int kThreads>
class TileRing {
  static_assert(kThreads >= 2 * kTileKeys);
  static constexpr int kElements = 2 * kTileKeys * kStride<kDim>;  // of a stage
  static constexpr int kStages = 2;
  static constexpr int kPlaces = 4;  // tiles

 public:
  static constexpr int kBytes = kStages * kElements * 2 + kPlaces * kTileKeys * 8;

  __device__ TileRing(const AttentionArgs& a, const AttentionTile& tile, const Keys& keys, int kv_head,
                      std::byte* memory, int first_tile, int end_tile)
      : a_(a),
        tile_(tile),
        keys_(keys),
        kv_head_(kv_head),
        first_(first_tile),
        end_(end_tile),
        places_(reinterpret_cast<int64_t*>(memory)),
        data_(reinterpret_cast<T*>(memory + kPlaces * kTileKeys * 8)) {
    if (thread() < 2 * kTileKeys) places_[thread()] = find_place(thread() / kTileKeys);
    found_ = 2;
    wait_for_previous_kernel();  // the block table has been there before
    __syncthreads();
    start_next();
    find_places();
    store_places();
  }
  /// The next tile: keys, then values; valid until the next call. All threads call it.
  __device__ const T* take() {
    wait_for_copies<0>();
    __syncthreads();
    const T* tile = data_ + taken_ % kStages * kElements;
    ++taken_;
    start_next();
    find_places();
    return tile;
  }
  /// After the work on a tile.
  __device__ void release() { store_places(); }

 private:
  __device__ int64_t find_place(int n) const {
    if (first_ + n >= end_) return Keys::kOutside;
    return keys_.find(a_, tile_, kv_head_, (first_ + n) * kTileKeys + thread() % kTileKeys);
  }
  __device__ void find_places() {
    if (thread() < kTileKeys) place_ = find_place(found_);
  }
  __device__ void store_places() {
    if (thread() < kTileKeys) places_[found_ % kPlaces * kTileKeys + thread()] = place_;
    ++found_;
  }
  __device__ void start_next() {
    if (first_ + started_ < end_)
      load_tile<T, kDim, kThreads>(a_, places_ + started_ % kPlaces * kTileKeys,
                                   data_ + started_ % kStages * kElements);
    commit_copies();
    ++started_;
  }

  const AttentionArgs& a_;
  const AttentionTile& tile_;
  const Keys& keys_;
  const int kv_head_, first_, end_;
  int found_ = 0, started_ = 0, taken_ = 0;  // tiles
  int64_t place_ = Keys::kOutside;
  int64_t* places_;  // [kPlaces][kTileKeys]
  T* data_;          // [kStages][2 * kTileKeys][kStride]
};

/// The two rows of a warp's 16 that a lane has a part of. Those beyond the tile's see what its last row sees;
/// a warp that has no other sees no key.
struct LaneRows {
  int row[2];  // of the tile
  bool exists[2];
  int first[2];     // key that the row sees
  int position[2];  // of the row, the last key it sees
  int head[2];
  float slope[2];

  __device__ LaneRows(const AttentionArgs& a, const AttentionTile& tile, int kv_head, int warp_row) {
    for (int i = 0; i < 2; ++i) {
      row[i] = warp_row + lane() / 4 + 8 * i;
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

/// A lane's part of 16 query rows.
template <typename T, int kDim>
struct Queries {
  uint32_t parts[kDim / 16][4];

  __device__ Queries(const AttentionArgs& a, const AttentionTile& tile, const LaneRows& rows) {
    const std::byte* row[2];
    for (int i = 0; i < 2; ++i)
      row[i] = !rows.exists[i] ? nullptr
                               : a.q + tile.token(rows.row[i], a.group) * a.q_stride_bytes +
                                     int64_t{rows.head[i]} * a.head_dim * 2;
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k)
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        const int d = k * 16 + part / 2 * 8 + lane() % 4 * 2;
        const std::byte* from = row[part % 2];
        parts[k][part] =
            from != nullptr && d < a.head_dim ? *reinterpret_cast<const uint32_t*>(from + d * 2) : 0;
      }
  }
};

/// scores[n] += q * keys^T for the kCount * 8 keys that `keys` begins with.
template <typename T, int kDim, int kCount>
__device__ void multiply_keys(float (&scores)[kCount][4], const Queries<T, kDim>& q, const T* keys) {
  const T* row = keys + (lane() % 8 + lane() / 16 * 8) * kStride<kDim> + lane() / 8 % 2 * 8;
#pragma unroll
  for (int k = 0; k < kDim / 16; ++k) {
#pragma unroll
    for (int n = 0; n < kCount; n += 2) {
      uint32_t b[4];
      load_matrices(b, row + n * 8 * kStride<kDim> + k * 16);
      mma<T>(scores[n], q.parts[k], b[0], b[1]);
      mma<T>(scores[n + 1], q.parts[k], b[2], b[3]);
    }
  }
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

/// Weighted values of a span: for each of the lane's rows, columns n * 8 + lane % 4 * 2 + {0, 1}.
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
  /// Makes `tile_max` count.
  __device__ void raise(const float (&tile_max)[2]) {
    float factor[2];
    for (int i = 0; i < 2; ++i) {
      const float both = fmaxf(max[i], tile_max[i]);
      factor[i] = both == max[i] ? 1 : exp2_fast(__fsub_rn(max[i], reference_of(both)));
      max[i] = both;
    }
    if (!__any_sync(~0u, factor[0] != 1 || factor[1] != 1)) return;
    for (int i = 0; i < 4; ++i) weights[i] = __fmul_rn(weights[i], factor[i / 2]);
#pragma unroll
    for (int n = 0; n < kCols / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) values[n][i] = __fmul_rn(values[n][i], factor[i / 2]);
  }
};

/// Of a pair's halves: the sign bit is set where the exponent is that of NaN and infinity.
template <typename T>
__device__ uint32_t carry_of_exponents(uint32_t pair) {
  constexpr uint32_t kExponents = std::is_same_v<T, __half> ? 0x7c007c00 : 0x7f807f80;
  return (pair & kExponents) + (0x80008000 - kExponents);
}
/// The halves of a pair that are NaN or infinite, as all ones.
template <typename T>
__device__ uint32_t not_finite(uint32_t pair) {
  return (carry_of_exponents<T>(pair) >> 15 & 0x00010001) * 0xffff;
}

/// Which of 16 keys the lane's rows see, as 1 and 0 of T: a factor of mma().
template <typename T>
__device__ void seen_keys(const LaneRows& rows, int first_key, uint32_t (&seen)[4]) {
  for (int part = 0; part < 4; ++part) {
    const int key = first_key + part / 2 * 8 + lane() % 4 * 2;
    seen[part] = pack<T>(rows.sees(part % 2, key) ? 1.0f : 0.0f, rows.sees(part % 2, key + 1) ? 1.0f : 0.0f);
  }
}

/// Where values of 16 keys and 2 * 8 columns are not finite, 0 stands for them in `b`, and rows that see them
/// become NaN: a weight of 0 would not keep them out of the other rows.
template <typename T>
__device__ void poison(uint32_t (&b)[4], const LaneRows& rows, int first_key, float (&first)[4],
                       float (&second)[4]) {
  uint32_t any = 0;
  for (int i = 0; i < 4; ++i) any |= carry_of_exponents<T>(b[i]);
  if (!__any_sync(~0u, (any & 0x80008000) != 0)) return;
  const uint32_t ones = pack<T>(1, 1);
  uint32_t bad[4], seen[4];
  for (int i = 0; i < 4; ++i) bad[i] = not_finite<T>(b[i]);
  seen_keys<T>(rows, first_key, seen);
  float count[2][4] = {};
  for (int j = 0; j < 2; ++j) mma<T>(count[j], seen, bad[2 * j] & ones, bad[2 * j + 1] & ones);
  for (int i = 0; i < 4; ++i) {
    if (count[0][i] > 0) first[i] = nanf("");
    if (count[1][i] > 0) second[i] = nanf("");
    b[i] &= ~bad[i];
  }
}

/// sums += weights of 16 keys * their values; `values` is the first key's first column.
template <typename T, int kDim, bool kEdge, int kCols>
__device__ void multiply_values(Sums<kCols>& sums, const uint32_t (&high)[4], const uint32_t (&low)[4],
                                const T* values, const LaneRows& rows, int first_key) {
  constexpr int kTiles = kCols / 8,
                kGroup = kTiles % 4 == 0 ? 4 : 2;  // columns that are in registers at once
  const uint32_t ones = pack<T>(1, 1);
  const T* row = values + (lane() % 8 + lane() / 8 % 2 * 8) * kStride<kDim> + lane() / 16 * 8;
  mma<T>(sums.weights, high, ones, ones);
#pragma unroll
  for (int n = 0; n < kTiles; n += kGroup) {
    uint32_t b[kGroup / 2][4];
#pragma unroll
    for (int j = 0; j < kGroup / 2; ++j) {
      load_transposed(b[j], row + (n + 2 * j) * 8);
      if constexpr (kEdge)
        poison<T>(b[j], rows, first_key, sums.values[n + 2 * j], sums.values[n + 2 * j + 1]);
    }
#pragma unroll
    for (int j = 0; j < kGroup; ++j)
      mma<T>(sums.values[n + j], high, b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
    if (n == 0) mma<T>(sums.weights, low, ones, ones);
#pragma unroll
    for (int j = 0; j < kGroup; ++j)
      mma<T>(sums.values[n + j], low, b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
  }
}

/// The same; keys that no row sees have no weight.
template <typename T, int kDim, bool kEdge, int kCols>
__device__ void add_values(Sums<kCols>& sums, const uint32_t (&high)[4], const uint32_t (&low)[4],
                           const T* values, const LaneRows& rows, int first_key) {
  if constexpr (kEdge) {
    const Sight sight(rows, first_key, 16);
    if (sight.none) return;
    if (!sight.all) return multiply_values<T, kDim, true>(sums, high, low, values, rows, first_key);
  }
  multiply_values<T, kDim, false>(sums, high, low, values, rows, first_key);
}

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

// ---- wide: a warp for each 16 rows ----

template <typename T, int kDim, bool kEdge>
__device__ void attend_tile(const AttentionArgs& a, const LaneRows& rows, const Queries<T, kDim>& q,
                            const T* tile, int first_key, Sums<kDim>& sums) {
  float scores[kTileKeys / 8][4] = {};
  multiply_keys<T, kDim>(scores, q, tile);
  finish_scores<kEdge>(a, rows, first_key, scores);
  float max[2];
  find_max(scores, max);
  sums.raise(max);
  const float reference[2] = {reference_of(sums.max[0]), reference_of(sums.max[1])};
#pragma unroll
  for (int k = 0; k < kTileKeys / 16; ++k) {
    uint32_t high[4], low[4];
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      const float* pair = &scores[2 * k + part / 2][part % 2 * 2];
      split_weights<T>(exp2_fast(__fsub_rn(pair[0], reference[part % 2])),
                       exp2_fast(__fsub_rn(pair[1], reference[part % 2])), high[part], low[part]);
    }
    add_values<T, kDim, kEdge>(sums, high, low, tile + (kTileKeys + k * 16) * kStride<kDim>, rows,
                               first_key + k * 16);
  }
}

/// The spans before the present one. It is needed once a span only: the compiler keeps it in local memory.
template <int kDim>
struct Total {
  float values[kDim / 2];
  float sum[2] = {0, 0}, max[2] = {-INFINITY, -INFINITY};
  bool empty = true;

  /// The sums of both, in `sums`.
  __device__ void join(Sums<kDim>& sums) {
    if (empty) return;
    for (int i = 0; i < 2; ++i) {
      const Join join(max[i], sums.max[i]);
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n)
#pragma unroll
        for (int j = 2 * i; j < 2 * i + 2; ++j)
          sums.values[n][j] = join(values[n * 4 + j], sums.values[n][j]);
      sums.weights[2 * i] = join(sum[i], sums.weights[2 * i]);
      sums.max[i] = join.max;
    }
  }
  __device__ void keep(const Sums<kDim>& sums) {
    empty = false;
    for (int i = 0; i < 2; ++i) sum[i] = sums.weights[2 * i], max[i] = sums.max[i];
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n)
#pragma unroll
      for (int j = 0; j < 4; ++j) values[n * 4 + j] = sums.values[n][j];
  }
};

template <typename T, int kCols>
__device__ void store_rows(const AttentionArgs& a, const AttentionTile& tile, const LaneRows& rows,
                           const Sums<kCols>& sums, int first_col) {
  for (int i = 0; i < 2; ++i) {
    if (!rows.exists[i]) continue;
    const float factor = last_factor(a, rows.head[i], sums.max[i], sums.weights[2 * i]);
    T* out = out_row<T>(a, tile, rows.row[i], rows.head[i]);
#pragma unroll
    for (int n = 0; n < kCols / 8; ++n) {
      const int d = first_col + n * 8 + lane() % 4 * 2;
      if (d < a.head_dim)
        *reinterpret_cast<uint32_t*>(out + d) =
            pack<T>(__fmul_rn(sums.values[n][2 * i], factor), __fmul_rn(sums.values[n][2 * i + 1], factor));
    }
  }
}

template <typename T, int kDim>
using WideRing = TileRing<T, kDim, kWideThreads>;

/// `least_rows`: sequences of fewer are the narrow kernel's.
template <typename T, int kDim>
__global__ __launch_bounds__(kWideThreads,
                             1) void wide_attention_kernel(const __grid_constant__ AttentionArgs a,
                                                           int least_rows) {
#if LMDEPLOY_HAS_MMA
  extern __shared__ float4 memory[];
  // The last rows see most keys: they begin, of all heads.
  const int block = static_cast<int>(gridDim.x - 1 - blockIdx.x), kv_head = block % a.num_kv_heads;
  const AttentionTile tile = find_attention_tile<kWideWarps * kWarpRows>(a, block / a.num_kv_heads);
  if (tile.num_rows == 0 || tile.sequence_rows < least_rows) return wait_for_previous_kernel();
  const Keys keys(a, tile);
  const LaneRows rows(a, tile, kv_head, thread() / 32 * kWarpRows);
  WideRing<T, kDim> ring(a, tile, keys, kv_head, reinterpret_cast<std::byte*>(memory), keys.first_tile(),
                         keys.end_tile());
  const Queries<T, kDim> q(a, tile, rows);
  Total<kDim> total;
  Sums<kDim> sums;
  sums.clear();
  for (int t = keys.first_tile(); t < keys.end_tile(); ++t) {
    const int first_key = t * kTileKeys;
    const T* loaded = ring.take();
    const Sight sight(rows, first_key, kTileKeys);
    if (sight.all)
      attend_tile<T, kDim, false>(a, rows, q, loaded, first_key, sums);
    else if (!sight.none)
      attend_tile<T, kDim, true>(a, rows, q, loaded, first_key, sums);
    ring.release();
    const bool last = t + 1 == keys.end_tile();
    if (!last && (first_key + kTileKeys) % kSpan != 0) continue;
    total.join(sums);
    if (last) break;
    total.keep(sums);
    sums.clear();
  }
  store_rows<T>(a, tile, rows, sums, 0);
#endif
}

// ---- narrow: 16 rows, the warps share each tile of keys, then the columns of the values ----

template <typename T, int kDim>
struct NarrowMemory {
  using Ring = TileRing<T, kDim, kNarrowThreads>;
  T high[kWarpRows * kWeightStride], low[kWarpRows * kWeightStride];
  float max[kNarrowWarps][kWarpRows];
  int is_last;
  static constexpr int kBytes =
      (2 * kWarpRows * kWeightStride * 2 + kNarrowWarps * kWarpRows * 4 + 16) / 16 * 16;
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

template <typename T, int kDim, bool kEdge>
__device__ void attend_shared_tile(const AttentionArgs& a, const LaneRows& rows, const Queries<T, kDim>& q,
                                   const T* tile, int first_key, NarrowMemory<T, kDim>& memory,
                                   Sums<kDim / kNarrowWarps>& sums) {
  const int warp = thread() / 32, warp_key = warp * kKeysOfWarp;
  float scores[kKeysOfWarp / 8][4] = {};
  multiply_keys<T, kDim>(scores, q, tile + warp_key * kStride<kDim>);
  finish_scores<kEdge>(a, rows, first_key + warp_key, scores);
  float max[2];
  find_max(scores, max);
  share_max(memory, max);
  sums.raise(max);
  for (int n = 0; n < kKeysOfWarp / 8; ++n)
    for (int i = 0; i < 2; ++i) {
      const float reference = reference_of(sums.max[i]);
      const int at = (lane() / 4 + 8 * i) * kWeightStride + warp_key + n * 8 + lane() % 4 * 2;
      split_weights<T>(exp2_fast(__fsub_rn(scores[n][2 * i], reference)),
                       exp2_fast(__fsub_rn(scores[n][2 * i + 1], reference)),
                       *reinterpret_cast<uint32_t*>(memory.high + at),
                       *reinterpret_cast<uint32_t*>(memory.low + at));
    }
  __syncthreads();
  const T* values = tile + kTileKeys * kStride<kDim> + warp * (kDim / kNarrowWarps);
#pragma unroll
  for (int k = 0; k < kTileKeys / 16; ++k) {
    const int at = lane() % 16 * kWeightStride + k * 16 + lane() / 16 * 8;
    uint32_t high[4], low[4];
    load_matrices(high, memory.high + at);
    load_matrices(low, memory.low + at);
    add_values<T, kDim, kEdge>(sums, high, low, values + k * 16 * kStride<kDim>, rows, first_key + k * 16);
  }
}

/// A span's row in the partial results: its values, max and sum.
__device__ inline float* partial_row(const AttentionArgs& a, int item, int span, int row) {
  return a.partials + ((int64_t{item} * a.num_spans + span) * kWarpRows + row) * (a.head_dim + 2);
}

template <int kCols>
__device__ void store_partial(const AttentionArgs& a, const LaneRows& rows, int item, int span,
                              const Sums<kCols>& sums) {
  const int warp = thread() / 32;
  for (int i = 0; i < 2; ++i) {
    if (!rows.exists[i]) continue;
    float* row = partial_row(a, item, span, rows.row[i]);
    for (int n = 0; n < kCols / 8; ++n) {
      const int d = warp * kCols + n * 8 + lane() % 4 * 2;
      if (d < a.head_dim)
        *reinterpret_cast<float2*>(row + d) = {sums.values[n][2 * i], sums.values[n][2 * i + 1]};
    }
    if (warp == 0 && lane() % 4 == 0)
      row[a.head_dim] = sums.max[i], row[a.head_dim + 1] = sums.weights[2 * i];
  }
}

/// Joins the spans of a tile, in order: by the last of the `blocks` that share it.
template <typename T>
__device__ void finish_split(const AttentionArgs& a, const AttentionTile& tile, int kv_head, int item,
                             int blocks, int first_span, int end_span, int& is_last) {
  __threadfence();
  __syncthreads();
  if (thread() == 0) {
    is_last = atomicAdd(a.arrivals + item, 1) == blocks - 1;
    if (is_last) a.arrivals[item] = 0;
    __threadfence();
  }
  __syncthreads();
  if (!is_last) return;
  for (int i = thread(); i < tile.num_rows * a.head_dim; i += kNarrowThreads) {
    const int row = i / a.head_dim, d = i % a.head_dim;
    float value = 0, sum = 0, max = -INFINITY;
#pragma unroll 4
    for (int span = first_span; span < end_span; ++span) {
      const float* partial = partial_row(a, item, span, row);
      const Join join(max, __ldcg(partial + a.head_dim));
      value = join(value, __ldcg(partial + d));
      sum = join(sum, __ldcg(partial + a.head_dim + 1));
      max = join.max;
    }
    const int head = kv_head * a.group + tile.head(row, a.group);
    out_row<T>(a, tile, row, head)[d] = from_float<T>(__fmul_rn(value, last_factor(a, head, max, sum)));
  }
}

/// `most_rows`: sequences of more are the wide kernel's. blockIdx.z has the spans from z * spans_per_block
/// on.
template <typename T, int kDim>
__global__ __launch_bounds__(kNarrowThreads) void narrow_attention_kernel(
    const __grid_constant__ AttentionArgs a, int most_rows, int spans_per_block) {
#if LMDEPLOY_HAS_MMA
  using Memory = NarrowMemory<T, kDim>;
  constexpr int kCols = kDim / kNarrowWarps, kSpanTiles = kSpan / kTileKeys;
  extern __shared__ float4 raw_memory[];
  auto& memory = *reinterpret_cast<Memory*>(raw_memory);
  const int kv_head = static_cast<int>(blockIdx.y);
  const AttentionTile tile = find_attention_tile<kWarpRows>(a, static_cast<int>(blockIdx.x));
  if (tile.num_rows == 0 || tile.sequence_rows > most_rows) return wait_for_previous_kernel();
  const Keys keys(a, tile);
  const int first_span = keys.first / kSpan, end_span = (keys.end + kSpan - 1) / kSpan;
  const int first = max(first_span, static_cast<int>(blockIdx.z) * spans_per_block),
            end = min(end_span, (static_cast<int>(blockIdx.z) + 1) * spans_per_block);
  if (first >= end) return wait_for_previous_kernel();
  const int first_tile = max(keys.first_tile(), first * kSpanTiles),
            end_tile = min(keys.end_tile(), end * kSpanTiles);
  const int item = static_cast<int>(blockIdx.x * gridDim.y + blockIdx.y);
  const LaneRows rows(a, tile, kv_head, 0);
  typename Memory::Ring ring(a, tile, keys, kv_head,
                             reinterpret_cast<std::byte*>(raw_memory) + Memory::kBytes, first_tile, end_tile);
  const Queries<T, kDim> q(a, tile, rows);
  Sums<kCols> sums, total;
  sums.clear();
  total.clear();
  for (int t = first_tile; t < end_tile; ++t) {
    const int first_key = t * kTileKeys;
    const T* loaded = ring.take();
    if (Sight(rows, first_key, kTileKeys).all)
      attend_shared_tile<T, kDim, false>(a, rows, q, loaded, first_key, memory, sums);
    else
      attend_shared_tile<T, kDim, true>(a, rows, q, loaded, first_key, memory, sums);
    ring.release();
    if ((t + 1) % kSpanTiles != 0 && t + 1 < end_tile) continue;
    if (a.partials != nullptr) {
      store_partial(a, rows, item, t / kSpanTiles, sums);
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
  if (a.partials == nullptr) return store_rows<T>(a, tile, rows, total, thread() / 32 * kCols);
  const int blocks = (end_span - 1) / spans_per_block - first_span / spans_per_block + 1;
  finish_split<T>(a, tile, kv_head, item, blocks, first_span, end_span, memory.is_last);
#endif
}

template <auto kKernel>
void allow_shared_memory(int bytes) {
  static const bool allowed = [&] {
    check(cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
          "give attention its shared memory");
    return true;
  }();
  static_cast<void>(allowed);
}

template <typename T, int kDim>
void run_wide(const AttentionArgs& args, int64_t tokens, int least_rows, cudaStream_t stream) {
  constexpr int kBytes = WideRing<T, kDim>::kBytes;
  const int64_t tiles = tokens * args.group / (kWideWarps * kWarpRows) + args.num_seqs;
  allow_shared_memory<wide_attention_kernel<T, kDim>>(kBytes);
  launch(wide_attention_kernel<T, kDim>, dim3(static_cast<unsigned>(tiles * args.num_kv_heads)), kWideThreads,
         kBytes, stream, args, least_rows);
}

/// Blocks that share a tile: so many that the device is full and stays so to the end, and that no block has
/// too many spans.
inline int64_t choose_splits(int64_t spans, int64_t items, int64_t slots) {
  constexpr int64_t kMostSpansOfBlock = 16;
  if (items > kArrivals) return 1;
  const int64_t least = ceil_div(spans, kMostSpansOfBlock);
  for (int64_t splits = least; splits < spans; ++splits) {
    const int64_t blocks = items * splits, waves = ceil_div(blocks, slots);
    if (blocks >= 3 * slots && 20 * blocks > 17 * waves * slots) return splits;
  }
  return spans;
}

template <typename T, int kDim>
void run_narrow(AttentionArgs args, int64_t tokens, int most_rows, const DeviceLimits& device,
                Scratch& scratch, cudaStream_t stream) {
  constexpr int kBytes = NarrowMemory<T, kDim>::kAllBytes;
  const int64_t tiles = tokens * args.group / kWarpRows + args.num_seqs, items = tiles * args.num_kv_heads;
  const int64_t slots = device.num_sms * std::max<int64_t>(1, device.shared_bytes / (kBytes + 1024));
  const int64_t per_block = ceil_div(args.num_spans, choose_splits(args.num_spans, items, slots));
  const int64_t splits = ceil_div(args.num_spans, per_block);
  if (splits > 1)
    args.partials =
        reinterpret_cast<float*>(scratch.bytes(items * args.num_spans * kWarpRows * (args.head_dim + 2) * 4));
  const dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>(args.num_kv_heads),
                  static_cast<unsigned>(splits));
  allow_shared_memory<narrow_attention_kernel<T, kDim>>(kBytes);
  launch(narrow_attention_kernel<T, kDim>, grid, kNarrowThreads, kBytes, stream, args, most_rows,
         static_cast<int>(per_block));
}

}  // namespace

template <typename T, int kDim>
bool run_tiled_attention(AttentionArgs args, int64_t tokens, const DeviceLimits& device, Scratch& scratch,
                         cudaStream_t stream) {
  if (NarrowMemory<T, kDim>::kAllBytes > device.shared_bytes) return false;
  int most_narrow_rows = INT32_MAX;
  // Longer heads would need more registers than a thread of the wide kernel has.
  if constexpr (kDim <= 128) {
    // The wide kernel pays where it fills at least half the device.
    const int64_t blocks = tokens * args.group / (kWideWarps * kWarpRows) * args.num_kv_heads;
    if (tokens > args.num_seqs && 2 * blocks >= device.num_sms &&
        WideRing<T, kDim>::kBytes <= device.shared_bytes) {
      most_narrow_rows = 2 * kWarpRows - 1;
      run_wide<T, kDim>(args, tokens, most_narrow_rows + 1, stream);
    }
  }
  if (most_narrow_rows == INT32_MAX || args.num_seqs > 1)
    run_narrow<T, kDim>(args, tokens, most_narrow_rows, device, scratch, stream);
  check_launch("attention", {tokens, args.num_kv_heads * args.group, args.head_dim});
  return true;
}

}  // namespace lmdeploy::cuda
