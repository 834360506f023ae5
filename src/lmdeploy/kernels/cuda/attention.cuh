// What the attention kernels share: arguments, tiles of query rows, a score's bias.
#pragma once

#include "lmdeploy/kernels/cuda/cuda_kernels.h"
#include "lmdeploy/kernels/cuda/kv_place.cuh"
#include "lmdeploy/kernels/cuda/ragged.cuh"
#include "lmdeploy/kernels/cuda/types.cuh"

namespace lmdeploy::cuda {

/// Keys of a span, a multiple of every tile. A sequence's spans are counted from its first key; each is
/// attended to with a softmax of its own, and they are merged in order: a row's bits depend neither on how
/// many blocks of threads share its spans nor on the rows beside it.
constexpr int kSpan = 256;

struct AttentionArgs {
  std::byte* out;
  int64_t out_stride_bytes;
  const std::byte* q;
  int64_t q_stride_bytes;
  DType dtype;  // of q and out
  const std::byte* cache;
  int64_t block_elements;      // of all layers
  int64_t k_offset, v_offset;  // of this layer in a block
  int64_t num_blocks;
  const int32_t *query_start, *kv_len, *block_table;
  int64_t table_stride;
  int num_seqs, max_blocks;
  int group;  // query heads of one kv head
  int num_kv_heads, head_dim, value_dim, block_len;
  bool latent;    // V is the front of K
  bool wide;      // plain attention: rows of the cache are whole 16-byte accesses
  int tile_keys;  // plain attention: keys of a tile
  float scale, soft_cap;
  int window;                   // 0: all keys
  const float *sinks, *slopes;  // may be null
  bool alibi_in_bf16;
  bool batch_invariant;  // a row's sums have one order, whatever the rows beside it and the keys' split
  CodePlace codes;       // of a cache in codes, in place of the offsets above
  int num_spans;         // of the longest sequence that the block table has room for
  float* partials;       // of split work: a span's values, max and sum for each row
  int64_t partial_rows;  // on tensor cores: rows of all sequences
  int32_t* arrivals;     // of split work on tensor cores: blocks of each tile that are done, 0 between calls
};

/// Query rows of one block of threads: rows (token, head of the group) of one sequence.
struct AttentionTile {
  int sequence;
  int first_row, num_rows;  // of the sequence's; none: no such tile
  int sequence_rows;
  int first_token;     // of the sequence in q
  int first_position;  // of the sequence's first row
  int kv_len;

  __device__ int token(int r, int group) const { return first_token + (first_row + r) / group; }
  __device__ int head(int r, int group) const { return (first_row + r) % group; }
  __device__ int position(int r, int group) const { return first_position + (first_row + r) / group; }
};

/// Sequence s has the tiles from floor(query_start[s] * group / kRows) + s on: enough for its rows.
template <int kRows>
__device__ AttentionTile find_attention_tile(const AttentionArgs& a, int tile) {
  const auto first_tile = [&](int s) {
    return static_cast<int>(int64_t{a.query_start[s]} * a.group / kRows) + s;
  };
  const int s = find_owner(a.num_seqs, tile, first_tile);
  const int begin = a.query_start[s], count = a.query_start[s + 1] - begin;
  const int first_row = (tile - first_tile(s)) * kRows, rows = count * a.group;
  const int kv_len = a.kv_len[s];
  return {s, first_row, max(0, min(kRows, rows - first_row)), rows, begin, kv_len - count, kv_len};
}

/// Of a key for the row at `position`.
__device__ inline float alibi(const AttentionArgs& a, float slope, int key, int position) {
  if (!a.alibi_in_bf16) return __fmul_rn(slope, static_cast<float>(key - position));
  const auto rounded = [](float value) { return __bfloat162float(__float2bfloat16_rn(value)); };
  return __fmul_rn(a.scale, rounded(__fmul_rn(rounded(slope), rounded(static_cast<float>(key)))));
}

/// Attention in f32 for every case, over a cache of `Cached`.
template <typename Cached>
void run_plain_attention(AttentionArgs args, int64_t tokens, const DeviceLimits& device, Scratch& scratch,
                         cudaStream_t stream);
constexpr int64_t kMostHeadDim = 1024;

/// Attention on tensor cores, q and out being of the Format's T. False, and nothing done, on a device that
/// has too little shared memory.
template <typename Format>
bool run_tiled_attention(AttentionArgs args, int64_t tokens, const DeviceLimits& device, Scratch& scratch,
                         cudaStream_t stream);
/// A cache of T, head_dim at most kDim.
template <typename T, int kDim>
struct Elements;
/// A cache in codes, head_dim kDim.
template <typename T, int kDim, int kBits>
struct Codes;

/// attention_prompt.cuh, for sequences of at least `least_rows`; it is not batch_invariant. Formats of up to
/// 128 columns have it.
template <typename Format>
void run_prompt_attention(const AttentionArgs& args, int64_t tokens, int least_rows, cudaStream_t stream);
constexpr int kPromptSharedBytes = 220 << 10;
template <typename Format>
bool suits_prompt_attention(const AttentionArgs& a, const DeviceLimits& device) {
  return device.code.has_wgmma && !a.batch_invariant && device.shared_bytes >= kPromptSharedBytes &&
         Format::suits_prompts(a);
}
constexpr int64_t kMostTiledHeadDim = 256;

}  // namespace lmdeploy::cuda
