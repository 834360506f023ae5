// Attention on tensor cores (the tiling of Dao 2023, FlashAttention-2), 64 keys a tile: prompts, with a warp
// for each 16 rows of up to 128. Few rows are attention_narrow.cuh's (plain elements) or
// attention_spans.cuh's (codes): a .cu file includes the one that its Format takes. Either takes any rows and
// does the same arithmetic in the same order, so that their bits are equal.
//
// A Format (attention_elements.cuh, attention_codes.cuh) says how the cache is read and multiplied.
#pragma once

#include "lmdeploy/kernels/cuda/attention_ring.cuh"
#include "lmdeploy/kernels/cuda/attention_split.cuh"

namespace lmdeploy::cuda {
namespace {

constexpr int kWideWarps = 8, kWideThreads = kWideWarps * 32;

/// Attention of the sequences of at most `most_rows` rows. False, and nothing done, on a device that has too
/// little shared memory.
template <typename Format>
bool run_few_rows(AttentionArgs args, int64_t tokens, int most_rows, const DeviceLimits& device,
                  Scratch& scratch, cudaStream_t stream);

template <typename Format>
using WideSums = typename Format::template Sums<Format::kDim>;

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
      Format::weigh(sums, part % 2, exp2_fast(__fsub_rn(pair[0], reference[part % 2])),
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

template <typename Format>
void run_wide(const AttentionArgs& args, int64_t tokens, int least_rows, cudaStream_t stream) {
  constexpr int kBytes = WideRing<Format>::kBytes;
  const int64_t tiles = tokens * args.group / (kWideWarps * kWarpRows) + args.num_seqs;
  allow_shared_memory<wide_attention_kernel<Format>>(kBytes);
  launch(wide_attention_kernel<Format>, dim3(static_cast<unsigned>(tiles * args.num_kv_heads)), kWideThreads,
         kBytes, stream, args, least_rows);
}

}  // namespace

template <typename Format>
bool run_tiled_attention(AttentionArgs args, int64_t tokens, const DeviceLimits& device, Scratch& scratch,
                         cudaStream_t stream) {
  bool wide = false;
  // Longer heads would need more registers than a thread of the wide kernel has.
  if constexpr (Format::kDim <= 128) {
    // The wide kernel pays where it fills at least half the device.
    const int64_t blocks = tokens * args.group / (kWideWarps * kWarpRows) * args.num_kv_heads;
    wide = tokens > args.num_seqs && 2 * blocks >= device.num_sms &&
           WideRing<Format>::kBytes <= device.shared_bytes;
  }
  const int most_few = wide ? 2 * kWarpRows - 1 : INT32_MAX;
  if ((!wide || args.num_seqs > 1) && !run_few_rows<Format>(args, tokens, most_few, device, scratch, stream))
    return false;
  if constexpr (Format::kHasPromptKernel)
    if (wide && suits_prompt_attention<Format>(args, device)) {
      run_prompt_attention<Format>(args, tokens, most_few + 1, stream);
      wide = false;
    }
  if constexpr (Format::kDim <= 128)
    if (wide) run_wide<Format>(args, tokens, most_few + 1, stream);
  check_launch("attention", {tokens, args.num_kv_heads * args.group, args.head_dim});
  return true;
}

}  // namespace lmdeploy::cuda
