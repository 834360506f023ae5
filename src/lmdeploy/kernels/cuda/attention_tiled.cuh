// Attention on tensor cores (the tiling of Dao 2023, FlashAttention-2), 16 query rows a warp, 64 keys a tile.
//
// Two kernels, either of which takes any rows. `wide` has a warp for each 16 rows of up to 128: prompts.
// `narrow` has 16 rows in all, its four warps share each tile of keys, and several blocks can share a
// sequence: decoding. Both do the same arithmetic in the same order, so that their bits are equal.
//
// A Format (attention_elements.cuh, attention_codes.cuh) says how the cache is read and multiplied.
#pragma once

#include "lmdeploy/kernels/cuda/attention_rows.cuh"

namespace lmdeploy::cuda {
namespace {

constexpr int kNarrowThreads = kNarrowWarps * 32;
constexpr int kKeysOfWarp = kTileKeys / kNarrowWarps;
constexpr int kWeightStride = kTileKeys + 8;  // of the weights that narrow's warps share
constexpr int kWideWarps = 8, kWideThreads = kWideWarps * 32;

/// A ring of tiles of keys and values in shared memory. Each tile's places are found one tile ahead, so that
/// reading the block table takes no time of its own.
template <typename Format, int kThreads>
class TileRing {
  static_assert(kThreads >= 2 * kTileKeys);
  static constexpr int kStages = Format::kStages, kPlaces = 4;  // tiles
  static_assert(kStages < kPlaces);

 public:
  static constexpr int kBytes = kStages * Format::kTileBytes + kPlaces * kTileKeys * 8;

  __device__ TileRing(const AttentionArgs& a, const AttentionTile& tile, const Keys& keys, int kv_head,
                      std::byte* memory, int first_tile, int end_tile)
      : a_(a),
        tile_(tile),
        keys_(keys),
        kv_head_(kv_head),
        first_(first_tile),
        end_(end_tile),
        places_(reinterpret_cast<int64_t*>(memory)),
        data_(memory + kPlaces * kTileKeys * 8) {
    if (thread() < 2 * kTileKeys) places_[thread()] = find_place(thread() / kTileKeys);
    found_ = 2;
    wait_for_previous_kernel();  // the block table has been there before
    __syncthreads();
    for (int i = 1; i < kStages; ++i) start_next();
    find_places();
    store_places();
  }
  /// The next tile: keys, then values; valid until the next call. All threads call it.
  __device__ const std::byte* take() {
    wait_for_copies<kStages - 2>();
    __syncthreads();
    const std::byte* tile = data_ + taken_ % kStages * Format::kTileBytes;
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
    return keys_.template find<Format>(a_, tile_, kv_head_, (first_ + n) * kTileKeys + thread() % kTileKeys);
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
      Format::template load_tile<kThreads>(a_, kv_head_, places_ + started_ % kPlaces * kTileKeys,
                                           data_ + started_ % kStages * Format::kTileBytes);
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
  std::byte* data_;  // [kStages][Format::kTileBytes]
};

/// sums += weights of 16 keys * their values; keys that no row sees have no weight.
template <typename Format, bool kEdge, typename OfSpan>
__device__ void add_values(OfSpan& sums, const uint32_t (&high)[4], const uint32_t (&low)[4],
                           const std::byte* tile, int k, int first_n, const LaneRows& rows, int first_key) {
  if constexpr (kEdge) {
    const Sight sight(rows, first_key, 16);
    if (sight.none) return;
    if (!sight.all)
      return Format::template multiply_values<true>(sums, high, low, tile, k, first_n, rows, first_key);
  }
  Format::template multiply_values<false>(sums, high, low, tile, k, first_n, rows, first_key);
}

// ---- wide: a warp for each 16 rows ----

template <typename Format>
using WideSums = typename Format::template Sums<Format::kDim, kTileKeys / 16>;

template <typename Format, bool kEdge>
__device__ void attend_tile(const AttentionArgs& a, const LaneRows& rows, const typename Format::Queries& q,
                            const std::byte* tile, int first_key, WideSums<Format>& sums) {
  float scores[kTileKeys / 8][4] = {};
  Format::multiply_keys(scores, q, tile, 0);
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
      Format::weigh(sums, part % 2, k, exp2_fast(__fsub_rn(pair[0], reference[part % 2])),
                    exp2_fast(__fsub_rn(pair[1], reference[part % 2])), tile,
                    k * 16 + part / 2 * 8 + lane() % 4 * 2, high[part], low[part]);
    }
    add_values<Format, kEdge>(sums, high, low, tile, k, 0, rows, first_key + k * 16);
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

template <typename Format, int kCols>
__device__ void store_rows(const AttentionArgs& a, const AttentionTile& tile, const LaneRows& rows,
                           const Sums<kCols>& sums, int first_n) {
  using T = typename Format::T;
  for (int i = 0; i < 2; ++i) {
    if (!rows.exists[i]) continue;
    const float factor = last_factor(a, rows.head[i], sums.max[i], sums.weights[2 * i]);
    T* out = out_row<T>(a, tile, rows.row[i], rows.head[i]);
#pragma unroll
    for (int n = 0; n < kCols / 8; ++n) {
      const float first = __fmul_rn(sums.values[n][2 * i], factor),
                  second = __fmul_rn(sums.values[n][2 * i + 1], factor);
      const int d = Format::column(first_n + n, 0);
      if (!Format::kPairs)
        out[d] = from_float<T>(first), out[Format::column(first_n + n, 1)] = from_float<T>(second);
      else if (d < a.head_dim)
        *reinterpret_cast<uint32_t*>(out + d) = pack<T>(first, second);
    }
  }
}

template <typename Format>
using WideRing = TileRing<Format, kWideThreads>;

/// `least_rows`: sequences of fewer are the narrow kernel's.
template <typename Format>
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
  WideRing<Format> ring(a, tile, keys, kv_head, reinterpret_cast<std::byte*>(memory), keys.first_tile(),
                        keys.end_tile());
  const typename Format::Queries q(a, tile, rows);
  Total<Format::kDim> total;
  WideSums<Format> sums;
  sums.clear();
  for (int t = keys.first_tile(); t < keys.end_tile(); ++t) {
    const int first_key = t * kTileKeys;
    const std::byte* loaded = ring.take();
    const Sight sight(rows, first_key, kTileKeys);
    if (sight.all)
      attend_tile<Format, false>(a, rows, q, loaded, first_key, sums);
    else if (!sight.none)
      attend_tile<Format, true>(a, rows, q, loaded, first_key, sums);
    ring.release();
    const bool last = t + 1 == keys.end_tile();
    if (!last && (first_key + kTileKeys) % kSpan != 0) continue;
    sums.finish_span();
    total.join(sums);
    if (last) break;
    total.keep(sums);
    sums.clear();
  }
  store_rows<Format>(a, tile, rows, sums, 0);
#endif
}

// ---- narrow: 16 rows, the warps share each tile of keys, then the columns of the values ----

template <typename Format>
struct NarrowMemory {
  using T = typename Format::T;
  using Ring = TileRing<Format, kNarrowThreads>;
  T high[kWarpRows * kWeightStride], low[kWarpRows * kWeightStride];
  float max[kNarrowWarps][kWarpRows];
  float group_sums[2][kNarrowWarps][kWarpRows];  // of codes: weights and mins
  int is_last;
  static constexpr int kBytes =
      (2 * kWarpRows * kWeightStride * 2 + 3 * kNarrowWarps * kWarpRows * 4 + 16) / 16 * 16;
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
using NarrowSums = typename Format::template Sums<Format::kDim / kNarrowWarps, 1>;

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
      Format::weigh(sums, i, 0, exp2_fast(__fsub_rn(scores[n][2 * i], reference)),
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

/// A span's row in the partial results: its values, max and sum.
__device__ inline float* partial_row(const AttentionArgs& a, int item, int span, int row) {
  return a.partials + ((int64_t{item} * a.num_spans + span) * kWarpRows + row) * (a.head_dim + 2);
}

template <typename Format, int kCols>
__device__ void store_partial(const AttentionArgs& a, const LaneRows& rows, int item, int span,
                              const Sums<kCols>& sums) {
  const int warp = thread() / 32;
  for (int i = 0; i < 2; ++i) {
    if (!rows.exists[i]) continue;
    float* row = partial_row(a, item, span, rows.row[i]);
    for (int n = 0; n < kCols / 8; ++n) {
      const int d = Format::column(warp * (kCols / 8) + n, 0);
      if (!Format::kPairs) {
        row[d] = sums.values[n][2 * i];
        row[Format::column(warp * (kCols / 8) + n, 1)] = sums.values[n][2 * i + 1];
      } else if (d < a.head_dim) {
        *reinterpret_cast<float2*>(row + d) = {sums.values[n][2 * i], sums.values[n][2 * i + 1]};
      }
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
template <typename Format>
__global__ __launch_bounds__(kNarrowThreads, Format::kNarrowBlocks) void narrow_attention_kernel(
    const __grid_constant__ AttentionArgs a, int most_rows, int spans_per_block) {
#if LMDEPLOY_HAS_MMA
  using Memory = NarrowMemory<Format>;
  constexpr int kCols = Format::kDim / kNarrowWarps, kSpanTiles = kSpan / kTileKeys;
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
  const typename Format::Queries q(a, tile, rows);
  NarrowSums<Format> sums;
  Sums<kCols> total;
  sums.clear();
  total.clear();
  for (int t = first_tile; t < end_tile; ++t) {
    const int first_key = t * kTileKeys;
    const std::byte* loaded = ring.take();
    if (Sight(rows, first_key, kTileKeys).all)
      attend_shared_tile<Format, false>(a, rows, q, loaded, first_key, memory, sums);
    else
      attend_shared_tile<Format, true>(a, rows, q, loaded, first_key, memory, sums);
    ring.release();
    if ((t + 1) % kSpanTiles != 0 && t + 1 < end_tile) continue;
    sums.finish_shared_span(memory);
    if (a.partials != nullptr) {
      store_partial<Format>(a, rows, item, t / kSpanTiles, sums);
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
  const int blocks = (end_span - 1) / spans_per_block - first_span / spans_per_block + 1;
  finish_split<typename Format::T>(a, tile, kv_head, item, blocks, first_span, end_span, memory.is_last);
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

/// On a multiprocessor.
template <auto kKernel>
int blocks_at_once(int threads, int shared_bytes) {
  static const int blocks = [&] {
    int count = 0;
    check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&count, kKernel, threads,
                                                        static_cast<size_t>(shared_bytes)),
          "find how many blocks of attention run at once");
    return std::max(1, count);
  }();
  return blocks;
}

template <typename Format>
void run_wide(const AttentionArgs& args, int64_t tokens, int least_rows, cudaStream_t stream) {
  constexpr int kBytes = WideRing<Format>::kBytes;
  const int64_t tiles = tokens * args.group / (kWideWarps * kWarpRows) + args.num_seqs;
  allow_shared_memory<wide_attention_kernel<Format>>(kBytes);
  launch(wide_attention_kernel<Format>, dim3(static_cast<unsigned>(tiles * args.num_kv_heads)), kWideThreads,
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

template <typename Format>
void run_narrow(AttentionArgs args, int64_t tokens, int most_rows, const DeviceLimits& device,
                Scratch& scratch, cudaStream_t stream) {
  constexpr int kBytes = NarrowMemory<Format>::kAllBytes;
  const int64_t tiles = tokens * args.group / kWarpRows + args.num_seqs, items = tiles * args.num_kv_heads;
  allow_shared_memory<narrow_attention_kernel<Format>>(kBytes);
  const int64_t slots =
      device.num_sms * blocks_at_once<narrow_attention_kernel<Format>>(kNarrowThreads, kBytes);
  const int64_t per_block = ceil_div(args.num_spans, choose_splits(args.num_spans, items, slots));
  const int64_t splits = ceil_div(args.num_spans, per_block);
  if (splits > 1)
    args.partials =
        reinterpret_cast<float*>(scratch.bytes(items * args.num_spans * kWarpRows * (args.head_dim + 2) * 4));
  const dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>(args.num_kv_heads),
                  static_cast<unsigned>(splits));
  launch(narrow_attention_kernel<Format>, grid, kNarrowThreads, kBytes, stream, args, most_rows,
         static_cast<int>(per_block));
}

}  // namespace

template <typename Format>
bool run_tiled_attention(AttentionArgs args, int64_t tokens, const DeviceLimits& device, Scratch& scratch,
                         cudaStream_t stream) {
  if (NarrowMemory<Format>::kAllBytes > device.shared_bytes) return false;
  int most_narrow_rows = INT32_MAX;
  // Longer heads would need more registers than a thread of the wide kernel has.
  if constexpr (Format::kDim <= 128) {
    // The wide kernel pays where it fills at least half the device.
    const int64_t blocks = tokens * args.group / (kWideWarps * kWarpRows) * args.num_kv_heads;
    if (tokens > args.num_seqs && 2 * blocks >= device.num_sms &&
        WideRing<Format>::kBytes <= device.shared_bytes) {
      most_narrow_rows = 2 * kWarpRows - 1;
      run_wide<Format>(args, tokens, most_narrow_rows + 1, stream);
    }
  }
  if (most_narrow_rows == INT32_MAX || args.num_seqs > 1)
    run_narrow<Format>(args, tokens, most_narrow_rows, device, scratch, stream);
  check_launch("attention", {tokens, args.num_kv_heads * args.group, args.head_dim});
  return true;
}

}  // namespace lmdeploy::cuda
