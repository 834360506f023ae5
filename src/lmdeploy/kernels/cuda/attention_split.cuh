// Attention whose spans of keys are dealt out to several blocks of threads: partial results and how the last
// block joins them.
#pragma once

#include <algorithm>

#include "lmdeploy/kernels/cuda/attention_rows.cuh"

namespace lmdeploy::cuda {
namespace {

/// A span's row in the partial results: its values, max and sum, and room to whole 16 bytes.
__host__ __device__ inline int partial_stride(const AttentionArgs& a) { return a.head_dim + 4; }
__device__ inline float* partial_row(const AttentionArgs& a, const AttentionTile& tile, int kv_head, int span,
                                     int row) {
  const int64_t of_all = int64_t{tile.first_token} * a.group + tile.first_row + row;
  return a.partials + ((int64_t{kv_head} * a.num_spans + span) * a.partial_rows + of_all) * partial_stride(a);
}

constexpr int kSpanTiles = kSpan / kTileKeys;

/// How many tiles a span has: 2^log2, kSpanTiles or fewer.
struct SpanTiles {
  int log2;
  __host__ __device__ int count() const { return 1 << log2; }
  /// The span that has the tile.
  __device__ int span_of(int tile) const { return tile >> log2; }
};
constexpr SpanTiles kWholeSpans = {2};
static_assert(1 << kWholeSpans.log2 == kSpanTiles);

/// What keys of a sequence are a block's, which has spans_per_block spans from blockIdx.z * spans_per_block
/// on. A span is kSpan keys, or fewer where a row's sums need not have one order.
struct BlockSpans {
  int first_span, end_span;  // of the sequence
  int first_tile, end_tile;  // of the block
  int blocks;                // that share the sequence
  SpanTiles tiles;
  bool none;  // the block has no keys

  __device__ BlockSpans(const Keys& keys, int spans_per_block, SpanTiles tiles_of_span)
      : first_span(tiles_of_span.span_of(keys.first_tile())),
        end_span(tiles_of_span.span_of(keys.end_tile() + tiles_of_span.count() - 1)),
        tiles(tiles_of_span) {
    const int first = max(first_span, static_cast<int>(blockIdx.z) * spans_per_block),
              end = min(end_span, (static_cast<int>(blockIdx.z) + 1) * spans_per_block);
    none = first >= end;
    first_tile = max(keys.first_tile(), first << tiles.log2);
    end_tile = min(keys.end_tile(), end << tiles.log2);
    blocks = (end_span - 1) / spans_per_block - first_span / spans_per_block + 1;
  }
  /// Whether tile t is the last one of a span, or the block's last.
  __device__ bool ends_span(int t) const {
    return tiles.span_of(t) != tiles.span_of(t + 1) || t + 1 == end_tile;
  }
};

/// Spans of four elements of a row, in order.
struct JoinedSpans {
  float values[4] = {}, sum = 0, max = -INFINITY;

  __device__ void add(const AttentionArgs& a, const float* partial, int d) {
    const float2 max_and_sum = __ldcg(reinterpret_cast<const float2*>(partial + a.head_dim));
    const float4 more = __ldcg(reinterpret_cast<const float4*>(partial + d));
    const Join join(max, max_and_sum.x);
    values[0] = join(values[0], more.x), values[1] = join(values[1], more.y);
    values[2] = join(values[2], more.z), values[3] = join(values[3], more.w);
    sum = join(sum, max_and_sum.y);
    max = join.max;
  }
  template <typename T>
  __device__ void store(const AttentionArgs& a, const AttentionTile& tile, int kv_head, int row,
                        int d) const {
    const int head = kv_head * a.group + tile.head(row, a.group);
    const float factor = last_factor(a, head, max, sum);
    auto* out = reinterpret_cast<uint32_t*>(out_row<T>(a, tile, row, head) + d);
    out[0] = pack<T>(__fmul_rn(values[0], factor), __fmul_rn(values[1], factor));
    out[1] = pack<T>(__fmul_rn(values[2], factor), __fmul_rn(values[3], factor));
  }
};

/// Joins the spans of a tile, in order: by the last of the blocks that share it. All threads call it. A
/// thread joins kAtOnce pieces of four elements together, so that what it reads for them is on its way at
/// once.
template <typename T, int kAtOnce>
__device__ void finish_split(const AttentionArgs& a, const AttentionTile& tile, int kv_head,
                             const BlockSpans& spans) {
  __shared__ int is_last;
  const int item = static_cast<int>(blockIdx.x * gridDim.y + blockIdx.y);
  __threadfence();
  __syncthreads();
  if (spans.blocks > 1) {
    if (thread() == 0) {
      is_last = atomicAdd(a.arrivals + item, 1) == spans.blocks - 1;
      if (is_last) a.arrivals[item] = 0;
      __threadfence();
    }
    __syncthreads();
    if (!is_last) return;
  }
  const int each = a.head_dim / 4, count = tile.num_rows * each, threads = static_cast<int>(blockDim.x);
  const int64_t to_next_span = a.partial_rows * partial_stride(a);
  for (int first = thread(); first < count; first += kAtOnce * threads) {
    JoinedSpans joined[kAtOnce];
    int row[kAtOnce], d[kAtOnce];
    const float* partial[kAtOnce];
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const int i = n == 0 ? first : min(first + n * threads, count - 1);
      row[n] = i / each, d[n] = i % each * 4;
      partial[n] = partial_row(a, tile, kv_head, spans.first_span, row[n]);
    }
#pragma unroll(kAtOnce > 1 ? 2 : 4)
    for (int span = spans.first_span; span < spans.end_span; ++span)
#pragma unroll
      for (int n = 0; n < kAtOnce; ++n) {
        joined[n].add(a, partial[n], d[n]);
        partial[n] += to_next_span;
      }
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n)
      if (first + n * threads < count) joined[n].template store<T>(a, tile, kv_head, row[n], d[n]);
  }
}

/// On a multiprocessor.
template <auto kKernel>
int blocks_at_once(int threads, int shared_bytes) {
  static PerDevice<int> blocks;
  return blocks.get([&] {
    int count = 0;
    check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&count, kKernel, threads,
                                                        static_cast<size_t>(shared_bytes)),
          "find how many blocks of attention run at once");
    return std::max(1, count);
  });
}

/// Tiles of a span: fewer than kSpanTiles where the device has blocks to spare, but not so few that joining
/// the spans takes longer: up to `most_spans` of several tiles, and up to 16 of one.
inline SpanTiles choose_span_tiles(const AttentionArgs& args, int64_t items, int64_t slots, int most_spans) {
  constexpr int kMostOfOneTile = 16;
  SpanTiles tiles = kWholeSpans;
  while (tiles.log2 > 0 && args.num_spans > 1 && !args.batch_invariant) {
    const SpanTiles fewer = {tiles.log2 - 1};
    const int64_t spans = int64_t{args.num_spans} * kSpanTiles / fewer.count();
    if (spans > (fewer.count() > 1 ? most_spans : kMostOfOneTile) || items * spans > slots) break;
    tiles = fewer;
  }
  return tiles;
}

/// Spans of a block: so few that the device, which runs `slots` blocks at once, is full `least_waves` times
/// and stays so to the end.
inline int64_t choose_spans(int64_t spans, int64_t items, int64_t slots, int64_t least_waves) {
  constexpr int64_t kMostSpansOfBlock = 16;
  for (int64_t each = std::min(spans, kMostSpansOfBlock); each > 1; --each) {
    const int64_t blocks = items * ceil_div(spans, each), waves = ceil_div(blocks, slots);
    if (blocks >= least_waves * slots && 20 * blocks > 17 * waves * slots) return each;
  }
  return 1;
}

/// Room for the partial results of all rows.
inline void take_partials(AttentionArgs& args, int64_t tokens, Scratch& scratch) {
  args.partial_rows = tokens * args.group;
  args.partials = reinterpret_cast<float*>(
      scratch.bytes(args.num_kv_heads * args.num_spans * args.partial_rows * partial_stride(args) * 4));
}

}  // namespace
}  // namespace lmdeploy::cuda
