// Attention in f32, of any shape: an online softmax over each span, spans merged in order. A thread computes
// the scores of one key for some rows, then owns some dimensions of the values.
#pragma once

#include "lmdeploy/kernels/cuda/attention.cuh"

namespace lmdeploy::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kTileRows = 8;  // query rows of a block: heads of one group, then tokens

// Adds a span's (max, sum) to the total's; the values are to be weighted by total and span.
struct Merge {
  float max, sum, total_weight, span_weight;
};
__device__ Merge merge(float total_max, float total_sum, float max, float sum) {
  const float both = fmaxf(total_max, max);
  const float total_weight = total_max == -INFINITY ? 0 : expf(total_max - both);
  const float span_weight = max == -INFINITY ? 0 : expf(max - both);
  return {both, __fmaf_rn(sum, span_weight, __fmul_rn(total_sum, total_weight)), total_weight, span_weight};
}
__device__ float merged(const Merge& m, float total, float value) {
  return __fmaf_rn(value, m.span_weight, __fmul_rn(total, m.total_weight));
}

// What a row's values are multiplied with at last; a sink is one more key, of value 0.
__device__ float final_weight(const AttentionArgs& a, int head, float max, float sum) {
  if (a.sinks == nullptr) return 1 / sum;
  const Merge m = merge(max, sum, a.sinks[head], 1);
  return m.total_weight / m.sum;
}

// rows[j][d] = row first_key + j of the cache for the keys below `end`, 0 for those beyond.
template <typename Cached>
__device__ void load_elements(const AttentionArgs& a, const AttentionTile& tile, int64_t offset,
                              int first_key, int end, int dim, float* rows, int stride) {
  constexpr int kWide = kWidth<Cached>;
  const int step = a.wide ? kWide : 1;
  const int per_row = (dim + step - 1) / step;
  for (int i = static_cast<int>(threadIdx.x); i < a.tile_keys * per_row; i += kThreads) {
    const int j = i / per_row, d = i % per_row * step, key = first_key + j;
    float* to = rows + j * stride + d;
    if (key >= end) {
      for (int n = 0; n < step; ++n) to[n] = 0;
      continue;
    }
    const int64_t block = a.block_table[tile.sequence * a.table_stride + key / a.block_len];
    if (block < 0 || block >= a.num_blocks) {
      for (int n = 0; n < step; ++n) to[n] = nanf("");
      continue;
    }
    const Cached* from = reinterpret_cast<const Cached*>(a.cache) + block * a.block_elements + offset +
                         int64_t{key % a.block_len} * a.head_dim + d;
    if (a.wide) {
      const auto pack = *reinterpret_cast<const Pack<Cached, kWide>*>(from);
      for (int n = 0; n < kWide; n += 4)
        *reinterpret_cast<float4*>(to + n) = {to_float(pack.values[n]), to_float(pack.values[n + 1]),
                                              to_float(pack.values[n + 2]), to_float(pack.values[n + 3])};
    } else {
      *to = to_float(*from);
    }
  }
}

// The same of codes, `step` bytes of a row at a time: to[n], and in u4 to[n + row_bytes], get their numbers.
template <typename Cached>
__device__ void decode(const CodePlace& place, const std::byte* plane, int row, bool is_key, int first,
                       int step, float* to) {
  const auto* codes = reinterpret_cast<const uint8_t*>(plane + place.codes(row)) + first;
  const auto* params = reinterpret_cast<const __half2*>(plane + place.params(row, is_key));
  const float2 low = __half22float2(params[0]);
  if constexpr (std::is_same_v<Cached, U8>) {
    for (int n = 0; n < step; ++n) to[n] = __fmaf_rn(codes[n], low.x, low.y);
  } else {
    const float2 high = __half22float2(params[is_key ? place.key_parts - 1 : 0]);
    for (int n = 0; n < step; ++n) {
      to[n] = __fmaf_rn(codes[n] & 15, low.x, low.y);
      const int second = place.row_bytes + n;
      if (first + second < place.head_dim) to[second] = __fmaf_rn(codes[n] >> 4, high.x, high.y);
    }
  }
}
template <typename Cached>
__device__ void load_codes(const AttentionArgs& a, const AttentionTile& tile, int kv_head, bool is_key,
                           int first_key, int end, float* rows, int stride) {
  const CodePlace& place = a.codes;
  const int step = place.row_bytes % 4 == 0 ? 4 : 1, per_row = place.row_bytes / step;
  for (int i = static_cast<int>(threadIdx.x); i < a.tile_keys * per_row; i += kThreads) {
    const int j = i / per_row, first = i % per_row * step, key = first_key + j;
    float* to = rows + j * stride + first;
    const int64_t block =
        key < end ? a.block_table[tile.sequence * a.table_stride + key / a.block_len] : int64_t{-1};
    if (block >= 0 && block < a.num_blocks) {
      decode<Cached>(place, a.cache + place.plane(block, kv_head, is_key), key % a.block_len, is_key, first,
                     step, to);
      continue;
    }
    const float value = key < end ? nanf("") : 0;
    for (int n = 0; n < step; ++n) {
      to[n] = value;
      if (first + place.row_bytes + n < place.head_dim) to[place.row_bytes + n] = value;
    }
  }
}

// rows[j][d] = row first_key + j of the cache for the keys below `end`, 0 for those beyond.
template <typename Cached>
__device__ void load_keys(const AttentionArgs& a, const AttentionTile& tile, int kv_head, bool is_key,
                          int first_key, int end, float* rows, int stride) {
  if constexpr (kIsCodes<Cached>)
    load_codes<Cached>(a, tile, kv_head, is_key, first_key, end, rows, stride);
  else
    load_elements<Cached>(a, tile,
                          (is_key ? a.k_offset : a.v_offset) + int64_t{kv_head} * a.block_len * a.head_dim,
                          first_key, end, is_key ? a.head_dim : a.value_dim, rows, stride);
}

// A query's runs as kv_write() turned the keys'.
__device__ void turn_queries(const AttentionArgs& a, float* q, int stride) {
  const int run = a.codes.turned_run, pairs = a.head_dim / 2;
  for (int h = 1; h < run; h *= 2) {
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kTileRows * pairs; i += kThreads) {
      const int pair = i % pairs;
      float* x = q + i / pairs * stride + pair / h * 2 * h + pair % h;
      const float sum = x[0] + x[h], difference = x[0] - x[h];
      x[0] = sum, x[h] = difference;
    }
  }
  __syncthreads();
  const float factor = 1 / sqrtf(static_cast<float>(run));
  for (int i = static_cast<int>(threadIdx.x); i < kTileRows * a.head_dim; i += kThreads)
    q[i / a.head_dim * stride + i % a.head_dim] *= factor;
}

// Shared memory of a block.
struct Shared {
  float* q;      // [kTileRows][stride]
  float* rows;   // [tile_keys][stride]: keys, then values
  float* p;      // [tile_keys][kTileRows]: scores, then weights
  float* max;    // [kTileRows]
  float* sum;    // [kTileRows]
  float* decay;  // [kTileRows]: of what has been summed up
  int stride;

  __host__ __device__ static int stride_of(int head_dim) { return (head_dim + 3) / 4 * 4 + 4; }
  static int64_t bytes(int head_dim, int tile_keys) {
    return 4 *
           ((kTileRows + tile_keys) * int64_t{stride_of(head_dim)} + tile_keys * kTileRows + 3 * kTileRows);
  }
  __device__ Shared(float* memory, int head_dim, int tile_keys) : stride(stride_of(head_dim)) {
    q = memory;
    rows = q + kTileRows * stride;
    p = rows + tile_keys * stride;
    max = p + tile_keys * kTileRows;
    sum = max + kTileRows;
    decay = sum + kTileRows;
  }
};

__device__ float head_bias(const AttentionArgs& a, int head, int key, int position) {
  return a.slopes == nullptr ? 0 : alibi(a, a.slopes[head], key, position);
}

// A score's last steps; -inf where the row does not see the key.
__device__ float finish_score(const AttentionArgs& a, const AttentionTile& tile, int kv_head, int r, int key,
                              float product) {
  const int position = tile.position(r, a.group);
  if (r >= tile.num_rows || key > position || (a.window > 0 && key <= position - a.window)) return -INFINITY;
  float score = product * a.scale;
  if (a.soft_cap > 0) score = a.soft_cap * tanhf(score / a.soft_cap);
  return score + head_bias(a, kv_head * a.group + tile.head(r, a.group), key, position);
}

// p[j][r] = score of key first_key + j for row r. Each thread takes one key and kRows rows: a key's numbers
// are read from shared memory once for all of them.
template <int kRows>
__device__ void compute_scores(const AttentionArgs& a, const AttentionTile& tile, const Shared& s,
                               int kv_head, int first_key) {
  const int j = static_cast<int>(threadIdx.x) % a.tile_keys;
  const int first_row = static_cast<int>(threadIdx.x) / a.tile_keys * kRows;
  const float *k = s.rows + j * s.stride, *q = s.q + first_row * s.stride;
  float4 sums[kRows] = {};
  for (int d = 0; d < a.head_dim; d += 4) {
    const float4 y = *reinterpret_cast<const float4*>(k + d);
    for (int r = 0; r < kRows; ++r) {
      const float4 x = *reinterpret_cast<const float4*>(q + r * s.stride + d);
      sums[r].x = fmaf(x.x, y.x, sums[r].x);
      sums[r].y = fmaf(x.y, y.y, sums[r].y);
      sums[r].z = fmaf(x.z, y.z, sums[r].z);
      sums[r].w = fmaf(x.w, y.w, sums[r].w);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    const float product = (sums[r].x + sums[r].y) + (sums[r].z + sums[r].w);
    s.p[j * kTileRows + first_row + r] =
        finish_score(a, tile, kv_head, first_row + r, first_key + j, product);
  }
}

// Scores become weights relative to the new maximum.
__device__ void update_softmax(const AttentionArgs& a, const Shared& s) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int r = static_cast<int>(threadIdx.x) / 32; r < kTileRows; r += kWarps) {
    float max = -INFINITY, sum = 0;
    for (int j = lane; j < a.tile_keys; j += 32) max = fmaxf(max, s.p[j * kTileRows + r]);
    const float old_max = s.max[r];
    max = fmaxf(old_max, warp_max(max));
    for (int j = lane; j < a.tile_keys; j += 32) {
      float& p = s.p[j * kTileRows + r];
      p = p == -INFINITY ? 0 : expf(p - max);
      sum += p;
    }
    sum = warp_sum(sum);
    __syncwarp();  // all lanes have read the old maximum
    if (lane > 0) continue;
    const float decay = old_max == -INFINITY ? 0 : expf(old_max - max);
    s.decay[r] = decay;
    s.sum[r] = fmaf(s.sum[r], decay, sum);
    s.max[r] = max;
  }
}

// Each thread owns the dimensions threadIdx.x + i * kThreads of all rows.
template <int kDims>
using Values = float[kDims][kTileRows];

// Where not every row sees every key, a weight of 0 keeps NaN and infinity of the others out of it.
template <int kDims, bool kAllSeen>
__device__ void add_values(const AttentionArgs& a, const Shared& s, int num_keys, Values<kDims>& values) {
  for (int r = 0; r < kTileRows; ++r)
    for (int i = 0; i < kDims; ++i) values[i][r] *= s.decay[r];
  for (int j = 0; j < num_keys; ++j) {
    float v[kDims];
    for (int i = 0; i < kDims; ++i) {
      const int d = static_cast<int>(threadIdx.x) + i * kThreads;
      v[i] = d < a.value_dim ? s.rows[j * s.stride + d] : 0;
    }
    const auto* packs = reinterpret_cast<const Pack<float, 4>*>(s.p + j * kTileRows);
    const Pack<float, 4> weights[2] = {packs[0], packs[1]};
    for (int r = 0; r < kTileRows; ++r) {
      const float p = weights[r / 4].values[r % 4];
      if (!kAllSeen && p == 0) continue;
      for (int i = 0; i < kDims; ++i) values[i][r] = fmaf(p, v[i], values[i][r]);
    }
  }
}

// A span's keys [begin, end): values, s.max and s.sum of it alone.
template <typename Cached, int kDims>
__device__ void attend_span(const AttentionArgs& a, const AttentionTile& tile, const Shared& s, int kv_head,
                            int begin, int end, Values<kDims>& values) {
  const int tid = static_cast<int>(threadIdx.x);
  __syncthreads();  // the span before has been merged
  for (int r = 0; r < kTileRows; ++r)
    for (int i = 0; i < kDims; ++i) values[i][r] = 0;
  if (tid < kTileRows) s.max[tid] = -INFINITY, s.sum[tid] = 0;
  // Every row sees the keys [first_seen, end_seen).
  const int end_seen = tile.position(0, a.group) + 1;
  const int first_seen = a.window == 0 ? 0 : tile.position(tile.num_rows - 1, a.group) - a.window + 1;
  for (int key = begin; key < end; key += a.tile_keys) {
    __syncthreads();  // the rows before have been read
    load_keys<Cached>(a, tile, kv_head, /*is_key=*/true, key, end, s.rows, s.stride);
    __syncthreads();
    if (a.tile_keys == 64)
      compute_scores<4>(a, tile, s, kv_head, key);
    else if (a.tile_keys == 32)
      compute_scores<2>(a, tile, s, kv_head, key);
    else
      compute_scores<1>(a, tile, s, kv_head, key);
    __syncthreads();
    update_softmax(a, s);
    if (!a.latent) load_keys<Cached>(a, tile, kv_head, /*is_key=*/false, key, end, s.rows, s.stride);
    __syncthreads();
    if (key >= first_seen && key + a.tile_keys <= end_seen)
      add_values<kDims, true>(a, s, a.tile_keys, values);
    else
      add_values<kDims, false>(a, s, min(a.tile_keys, end - key), values);
  }
  __syncthreads();
}

__device__ float* partial_row(const AttentionArgs& a, int64_t tile, int kv_head, int span, int r) {
  return a.partials +
         (((tile * a.num_kv_heads + kv_head) * a.num_spans + span) * kTileRows + r) * (a.value_dim + 2);
}

template <typename Cached, int kDims>
__global__ __launch_bounds__(kThreads) void attention_kernel(const __grid_constant__ AttentionArgs a) {
  extern __shared__ float4 memory[];
  const int tid = static_cast<int>(threadIdx.x), kv_head = static_cast<int>(blockIdx.y);
  const AttentionTile tile = find_attention_tile<kTileRows>(a, static_cast<int>(blockIdx.x));
  if (tile.num_rows == 0) return;
  const Shared s(reinterpret_cast<float*>(memory), a.head_dim, a.tile_keys);
  const int last_position = tile.position(tile.num_rows - 1, a.group);
  const int first_key = a.window == 0 ? 0 : max(0, tile.position(0, a.group) - a.window + 1);
  const int end_key = min(last_position + 1, a.max_blocks * a.block_len);
  // The columns beyond head_dim, up to whole float4s, are 0 in keys and queries.
  for (int i = tid; i < (kTileRows + a.tile_keys) * s.stride; i += kThreads) s.q[i] = 0;
  __syncthreads();
  for (int i = tid; i < tile.num_rows * a.head_dim; i += kThreads) {
    const int r = i / a.head_dim, d = i % a.head_dim, head = kv_head * a.group + tile.head(r, a.group);
    s.q[r * s.stride + d] =
        load_any(a.q + tile.token(r, a.group) * a.q_stride_bytes, a.dtype, int64_t{head} * a.head_dim + d);
  }
  if constexpr (std::is_same_v<Cached, U4>)
    if (a.codes.turned_run > 1) turn_queries(a, s.q, s.stride);
  Values<kDims> total, values;
  float total_max[kTileRows], total_sum[kTileRows];
  for (int r = 0; r < kTileRows; ++r) {
    total_max[r] = -INFINITY, total_sum[r] = 0;
    for (int i = 0; i < kDims; ++i) total[i][r] = 0;
  }
  const bool split = a.partials != nullptr;
  const int first_span = split ? static_cast<int>(blockIdx.z) : 0;
  const int end_span = split ? first_span + 1 : (end_key + kSpan - 1) / kSpan;
  for (int span = max(first_span, first_key / kSpan); span < end_span; ++span) {
    const int begin = max(span * kSpan, first_key / a.tile_keys * a.tile_keys),
              end = min((span + 1) * kSpan, end_key);
    if (begin >= end) break;
    attend_span<Cached, kDims>(a, tile, s, kv_head, begin, end, values);
    for (int r = 0; r < kTileRows; ++r) {
      if (s.max[r] == -INFINITY && s.sum[r] == 0) continue;
      const Merge m = merge(total_max[r], total_sum[r], s.max[r], s.sum[r]);
      total_max[r] = m.max, total_sum[r] = m.sum;
      for (int i = 0; i < kDims; ++i) total[i][r] = merged(m, total[i][r], values[i][r]);
    }
  }
  for (int r = 0; r < tile.num_rows; ++r) {
    const int head = kv_head * a.group + tile.head(r, a.group);
    float* partial = split ? partial_row(a, blockIdx.x, kv_head, first_span, r) : nullptr;
    const float weight = split ? 1 : final_weight(a, head, total_max[r], total_sum[r]);
    for (int i = 0; i < kDims; ++i) {
      const int d = tid + i * kThreads;
      if (d >= a.value_dim) break;
      if (split)
        partial[d] = total[i][r];
      else
        store_any(a.out + tile.token(r, a.group) * a.out_stride_bytes, a.dtype,
                  int64_t{head} * a.value_dim + d, total[i][r] * weight);
    }
    if (split && tid == 0) partial[a.value_dim] = total_max[r], partial[a.value_dim + 1] = total_sum[r];
  }
}

// Merges the spans of each row, in order.
__global__ __launch_bounds__(kThreads) void merge_kernel(const __grid_constant__ AttentionArgs a) {
  const int kv_head = static_cast<int>(blockIdx.y), r = static_cast<int>(blockIdx.z);
  const AttentionTile tile = find_attention_tile<kTileRows>(a, static_cast<int>(blockIdx.x));
  if (r >= tile.num_rows) return;
  const int head = kv_head * a.group + tile.head(r, a.group);
  for (int d = static_cast<int>(threadIdx.x); d < a.value_dim; d += kThreads) {
    float max = -INFINITY, sum = 0, value = 0;
    for (int span = 0; span < a.num_spans; ++span) {
      const float* partial = partial_row(a, blockIdx.x, kv_head, span, r);
      const float span_max = partial[a.value_dim], span_sum = partial[a.value_dim + 1];
      if (span_max == -INFINITY && span_sum == 0) continue;
      const Merge m = merge(max, sum, span_max, span_sum);
      value = merged(m, value, partial[d]);
      max = m.max, sum = m.sum;
    }
    store_any(a.out + tile.token(r, a.group) * a.out_stride_bytes, a.dtype, int64_t{head} * a.value_dim + d,
              value * final_weight(a, head, max, sum));
  }
}

template <typename Cached, int kDims>
void launch_plain(const AttentionArgs& args, dim3 grid, cudaStream_t stream) {
  constexpr int64_t kWithoutAsking = 48 * 1024;
  const int64_t shared_bytes = Shared::bytes(args.head_dim, args.tile_keys);
  if (shared_bytes > kWithoutAsking)
    check(cudaFuncSetAttribute(attention_kernel<Cached, kDims>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shared_bytes)),
          "give attention its shared memory");
  attention_kernel<Cached, kDims><<<grid, kThreads, static_cast<size_t>(shared_bytes), stream>>>(args);
}

}  // namespace

/// Of one dtype of the cache.
template <typename Cached>
void run_plain_attention(AttentionArgs args, int64_t tokens, const DeviceLimits& device, Scratch& scratch,
                         cudaStream_t stream) {
  if constexpr (!kIsCodes<Cached>)
    args.wide = args.head_dim % kWidth<Cached> == 0 && reinterpret_cast<uintptr_t>(args.cache) % 16 == 0;
  args.tile_keys = args.head_dim <= 128 ? 64 : args.head_dim <= 256 ? 32 : 16;
  const int64_t tiles = tokens * args.group / kTileRows + args.num_seqs;
  // Where the tiles alone leave multiprocessors idle, each span gets a block of its own.
  const bool split = args.num_spans > 1 && tiles * args.num_kv_heads < 2 * device.num_sms;
  if (split)
    args.partials = reinterpret_cast<float*>(
        scratch.bytes(4 * tiles * args.num_kv_heads * args.num_spans * kTileRows * (args.value_dim + 2)));
  const dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>(args.num_kv_heads),
                  split ? static_cast<unsigned>(args.num_spans) : 1);
  const int64_t dims = ceil_div(args.value_dim, kThreads);
  if (dims == 1)
    launch_plain<Cached, 1>(args, grid, stream);
  else if (dims == 2)
    launch_plain<Cached, 2>(args, grid, stream);
  else if (dims <= 5)
    launch_plain<Cached, 5>(args, grid, stream);
  else
    launch_plain<Cached, 8>(args, grid, stream);
  check_launch("attention", {tokens, args.num_kv_heads * args.group, args.head_dim});
  if (!split) return;
  merge_kernel<<<dim3(grid.x, grid.y, kTileRows), kThreads, 0, stream>>>(args);
  check_launch("attention's merge", {tokens, args.num_kv_heads * args.group, args.head_dim});
}

}  // namespace lmdeploy::cuda
