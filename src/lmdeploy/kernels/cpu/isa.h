// What one instruction set offers to the CPU back end: a table of functions on plain pointers. Tensors,
// checks and threads stay outside, so that no template or inline function of the standard library is compiled
// with instructions that the processor may lack (the linker keeps one copy of such a function for the whole
// program).
#pragma once

#include <cstddef>
#include <cstdint>

#include "lmdeploy/kernels/activation.h"

namespace lmdeploy::cpu {

/// Kinds of packed weights, a DType for ISA code.
enum class Kind : int32_t {
  kF32,
  kF16,
  kBF16,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kU4G32,
  kU4G128,
  kU5G32,
  kI8G64,
  kF8G64
};

/// Kinds whose columns are masked out of 32-bit words where they lie: column k arrives as its integer times
/// 16^(k % 8), or as it is where k % 8 is 7, and is multiplied with x divided by the same (exact above
/// 2^-102).
constexpr bool has_shifted_columns(Kind kind) {
  return kind >= Kind::kQ4_0 && kind != Kind::kQ8_0 && kind < Kind::kI8G64;
}
/// Kinds with a term that does not depend on the integers, a min or a bias; it is multiplied with sums of x.
constexpr bool needs_sums(Kind kind) {
  return kind >= Kind::kQ4_0 && kind != Kind::kQ8_0 && kind != Kind::kQ6_K && kind != Kind::kF8G64;
}

/// Kinds of integers with scales: linear_int8 takes them.
constexpr bool has_integers(Kind kind) { return kind >= Kind::kQ4_0 && kind != Kind::kF8G64; }

/// The least number of tokens for which linear_int8 gains by decoding panels once for all of them, not anew
/// for each tile: fewer if a tile has more to decode.
constexpr int kDecodeOnceTokens = 25;
constexpr int64_t decode_once_tokens(Kind kind) {
  const bool has_high_bits = kind == Kind::kQ5_0 || kind == Kind::kQ5_1 || kind == Kind::kQ5_K ||
                             kind == Kind::kQ6_K || kind == Kind::kU5G32;
  return has_high_bits ? kDecodeOnceTokens : 40;
}

/// What x is rounded to for products with some kinds of weights.
struct Rounding {
  bool int8 = false;  // with integers
  bool bf16 = false;  // with bf16

  constexpr bool to_int8(Kind kind) const { return int8 && has_integers(kind); }
  constexpr bool to_bf16(Kind kind) const { return bf16 && kind == Kind::kBF16; }
};

/// Kinds of rows of the KV cache.
enum class CacheKind : int32_t { kF32, kF16, kBF16, kU8, kU4 };
/// Rows of codes, each with a scale and a min.
constexpr bool is_coded(CacheKind kind) { return kind >= CacheKind::kU8; }

/// Columns that linear() sums before it adds to the total: part of the order of the sum. Quantised kinds sum
/// their scale groups first.
constexpr int64_t kColumnBlock = 256;
/// Scale groups of 32 columns, for the sums that min terms are multiplied with.
constexpr int64_t kSumGroup = 32;

/// The tokens of one linear() call, rearranged for the micro-kernel. Tile i of n holds tokens [i * tokens /
/// n, (i + 1) * tokens / n); a tile of T tokens that begins at token b is [cols][T] at x + b * cols.
struct PackedTokens {
  float* x;          // [tokens * cols], or nullptr
  float* shifted_x;  // the same for kinds with shifted columns, or nullptr
  float* sums;       // [tokens * (cols / kSumGroup)], tiles of [group][T], or nullptr
  // For linear_int8, all or none: x(t, k) is about scale(t, k / kSumGroup) * q(t, k), and `sums` are 2^-23 of
  // those of the rounded values. With q_unsigned, unsigned bytes that are 128 larger.
  int8_t* q;  // [tokens * cols], tiles of [word][T][4]: words of 8 columns' even ones, then of the odd ones
  float* q_scales;  // [2 * tokens * (cols / kSumGroup)], tiles of [group][2][T]: scales, -1.5 times them
  int32_t* q_sums;  // [tokens * (cols / 16)], tiles of [16 columns][T]: sums of q, signed
  uint32_t* pairs;  // for linear_bf16: x as bf16, [(cols + 1) / 2][T] pairs of columns; or nullptr
  int64_t tokens;
  int64_t cols;
  int64_t num_tiles;
  bool q_unsigned;
  bool decodes_once;  // linear_int8 decodes panels once for all tiles

  int64_t num_pairs() const { return (cols + 1) / 2; }
};

/// A multiple of the panels that most tiles of tokens are multiplied with side by side: of 2 and of 3.
constexpr int64_t kPanelsTogether = 6;

/// IsaOps::decoded_tile of AVX-512 with VNNI: with two panels 14 sums and 14 totals, all in registers.
constexpr int kDecodedTile = 7;

/// One range of panels of one part of a weight.
struct LinearRange {
  Kind kind;
  const std::byte* panels;
  int64_t panel_bytes;
  int64_t num_panels;
  PackedTokens tokens;
  const float* bias;   // of the range's first row; nullptr: none
  float* out;          // [tokens, rows], at the range's first row
  int64_t out_stride;  // floats
  int64_t rows;        // that exist; the last panel may be padded
  std::byte* scratch;  // linear_int8: decoded_scratch(cols) bytes of this thread where tokens.decodes_once
};

/// Attention of some rows of one sequence and the query heads of one kv head over the keys [first_key,
/// end_key): the running maximum, sum and weighted values of an online softmax.
struct AttentionSpan {
  CacheKind kind;
  const std::byte* k;          // this layer's and head's keys in block 0
  const std::byte* v;          // or k: values are the first value_dim elements of the keys
  int64_t row_bytes;           // from a row to the next
  int64_t params_offset;       // kU8, kU4: from k and v to their rows' scales and mins
  int64_t key_parts;           // pairs of them a key: 1, or 2 where each half of it has its own
  int64_t block_bytes;         // from a block to the next
  const int32_t* block_table;  // of the sequence
  int64_t block_len;
  int64_t head_dim;
  int64_t value_dim;
  int64_t first_key;  // earlier keys are not looked at: their blocks may be gone
  int64_t end_key;    // in the span of first_key, or its end
  int64_t next_end;   // at least end_key: keys up to it are the ones that this thread reads next
  int64_t num_queries;
  const float* q;      // packed by pack_queries
  int64_t group;       // queries of one token, one after the other
  int64_t first_keys;  // query i sees the last `window` of the keys [0, first_keys + i / group)
  int64_t window;
  float scale;
  float soft_cap;             // 0: none
  const float* alibi_slopes;  // [group]; nullptr: none
  bool alibi_in_bf16;
  float* max;      // [num_queries]
  float* sum;      // [num_queries]
  float* values;   // [num_queries][value_stride(value_dim)]
  float* scratch;  // attention_scratch(head_dim) floats of this thread
};
/// Keys are taken in tiles and the tiles in spans, both counted from key 0 of the sequence: the order of a
/// row's sums depends on nothing else.
constexpr int64_t kTileKeys = 64;
constexpr int64_t kSpanKeys = 512;
constexpr int64_t value_stride(int64_t value_dim) { return (value_dim + 15) / 16 * 16; }
/// K of a tile by dimension, V of a tile, the scores of a token tile of at most 16, scales and mins.
constexpr int64_t attention_scratch(int64_t head_dim) {
  return kTileKeys * (head_dim + value_stride(head_dim)) + (16 + 6) * kTileKeys;
}

/// The queries of num_queries / group tokens, as pack_queries takes them.
struct QueryRows {
  const float* q;
  int64_t stride;  // floats from a token to the next
  int64_t group;
  int64_t num_queries;
  int64_t head_dim;
  int64_t turned_run;  // 1: they stay as they are
  int64_t first_part;  // elements of the first part of a key; the rest is the second
};
/// [num_queries * head_dim] in tiles of [head_dim][T], then the sums of the first parts of all queries, those
/// of their second parts, and a row of scratch.
constexpr int64_t packed_query_floats(int64_t num_queries, int64_t head_dim) {
  return num_queries * (head_dim + 2) + head_dim;
}

/// One row that is normalised run by run.
struct NormRow {
  float* out;  // [runs * size], as x; may be x
  const float* x;
  const float* weight;
  const float* bias;  // nullptr: none
  int64_t size;       // of a run
  int64_t runs;
  int64_t weight_step;  // from a run's weights (and biases) to the next: 0 or size
  float eps;
  float offset;
  bool centred;  // LayerNorm: the mean is taken off first
};

struct IsaOps {
  int64_t token_tile;    // tokens in a full register tile
  int64_t float_tile;    // the same of linear, where no part of the weight goes another way
  int64_t decoded_tile;  // the same where linear_int8 decodes panels once
  bool unsigned_q;       // and wants PackedTokens::q_unsigned

  /// Fills the tiles [first_tile, end_tile) of `packed` from rows of x, `stride` floats apart.
  void (*pack_tokens)(const PackedTokens& packed, const float* x, int64_t stride, int64_t first_tile,
                      int64_t end_tile);
  void (*linear)(const LinearRange& range);
  /// The same for quantised kinds and tokens in bytes; nullptr: the instruction set has none.
  void (*linear_int8)(const LinearRange& range);
  /// The same for bf16 and tokens in bf16; nullptr: the instruction set has none.
  void (*linear_bf16)(const LinearRange& range);

  /// Fills packed_query_floats() for attention_span.
  void (*pack_queries)(float* packed, const QueryRows& rows);
  void (*attention_span)(const AttentionSpan& span);
  /// Merges a later span's state into (max, sum, values) of one query.
  void (*merge_spans)(float* max, float* sum, float* values, float other_max, float other_sum,
                      const float* other_values, int64_t value_dim);
  /// out = values / sum once a key of value 0 with the score `sink` (-inf: none) has joined.
  void (*finish_row)(float* out, const float* values, float max, float sum, float sink, int64_t value_dim);

  void (*norm)(const NormRow& row);
  void (*activate)(Activation activation, float* out, const float* x, int64_t n);
  void (*glu)(Activation activation, float* out, const float* gate, const float* up, int64_t n);
  void (*clamped_glu)(float* out, const float* gate, const float* up, int64_t n, float limit);
  void (*add)(float* out, const float* a, const float* b, int64_t n);
  void (*scale)(float* x, int64_t n, float factor);
  void (*clamp)(float* x, int64_t n, float limit);
  void (*soft_cap)(float* x, int64_t n, float cap);
  /// out[i] = sum_j weights[j] * x[rows[j] * stride + i], j rising in [0, count)
  void (*weighted_sum)(float* out, int64_t n, const float* x, int64_t stride, const int32_t* rows,
                       const float* weights, int64_t count);
  /// One token: `heads` heads of head_dim, `half` pairs each.
  void (*rope)(float* x, const float* table, int64_t heads, int64_t head_dim, int64_t half, bool interleaved);
  /// f32 to an f32, f16 or bf16 row.
  void (*store_row)(CacheKind kind, std::byte* dst, const float* src, int64_t n);
  /// f32 to a kU8 or kU4 row, and its scale and min in f16 to `params`: see Kernels::kv_write.
  void (*quantize_row)(CacheKind kind, std::byte* codes, std::byte* params, const float* src, int64_t n,
                       int64_t parts);
  /// dst = src, turned in runs of `run` elements: see Kernels::kv_write.
  void (*turn_row)(float* dst, const float* src, int64_t n, int64_t run);
};

namespace portable {
const IsaOps& ops();
}
namespace avx2 {
const IsaOps& ops();
}
namespace avx2vnni {
void linear_int8(const LinearRange& range);
}
namespace avx512 {
const IsaOps& ops();
}
namespace avx512vnni {
void linear_int8(const LinearRange& range);
}
namespace avx512bf16 {
void linear_bf16(const LinearRange& range);
}

}  // namespace lmdeploy::cpu
