// The list of ops. The comment above an op is its specification; back ends add no behaviour to it.
//
// Conventions: `tokens` is the number of rows of a ragged step. Tensors live in memory of `allocator()`; for
// the CPU and the reference that is host memory. Activations have activation_dtype(); every op also takes the
// other float types that its comment names. Calls run in order, on a device after they have returned;
// to_host() waits for them. One thread at a time uses a Kernels object.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lmdeploy/core/tensor.h"
#include "lmdeploy/core/thread_pool.h"
#include "lmdeploy/kernels/activation.h"

namespace lmdeploy {

/// A weight matrix [rows (out), cols (in)] in the layout that one back end's linear() and embedding() read.
/// It may consist of several parts stacked by rows (q, k, v), each of its own kind. Made by
/// Kernels::pack_weight() only.
class PackedWeight {
 public:
  virtual ~PackedWeight() = default;
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  /// Column j as stored is multiplied with x's column column_order()[j]; empty: with column j.
  std::span<const int32_t> column_order() const { return column_order_; }
  /// Memory held, for the start-up report.
  virtual size_t bytes() const = 0;

 protected:
  PackedWeight(int64_t rows, int64_t cols, std::span<const int32_t> column_order)
      : rows_(rows), cols_(cols), column_order_(column_order.begin(), column_order.end()) {}

 private:
  int64_t rows_;
  int64_t cols_;
  std::vector<int32_t> column_order_;  // [cols], or empty
};

/// One block holds `block_len` tokens of K and V of `num_layers` layers: [num_layers][2 (K, V)][num_kv_heads]
/// planes. In float types a plane is [block_len][head_dim] elements. In u8 and u4 it is [block_len] rows of
/// codes and then, from a multiple of 4 bytes on, [block_len][parts][2] f16: each row's scale and min; a key
/// in u4 (of a cache that is not latent) has a pair for each half. An element is code * scale + min. Byte d
/// of a row of u4 holds element d, of the first half, in its low bits and element (head_dim + 1) / 2 + d, of
/// the second (past the last one: 0), in its high bits: a vector of bytes is two vectors of neighbours.
struct KvLayout {
  DType dtype = DType::kF32;  // f64 (ref only), f32, f16, bf16; u8, u4: 8 or 4 bits, a scale and a min a row
  int64_t num_layers = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t block_len = 64;  // tokens
  /// Multi-head latent attention: V is the first `latent_dim` elements of each K row, and only K is stored:
  /// [num_layers][num_kv_heads] planes. 0: V has rows of its own, of head_dim elements.
  int64_t latent_dim = 0;

  int64_t value_dim() const { return latent_dim > 0 ? latent_dim : head_dim; }
  /// Whether rows are codes with a scale and a min.
  bool quantized() const { return dtype == DType::kU8 || dtype == DType::kU4; }
  /// Elements of the runs that keys are turned in (Kernels::kv_write); 1: they are stored as they are. The
  /// rows of a latent cache are values too, which stay.
  int64_t turned_run() const { return dtype == DType::kU4 && latent_dim == 0 ? head_dim & -head_dim : 1; }
  /// Pairs of scale and min of a key; a value has one.
  int64_t key_parts() const { return dtype == DType::kU4 && latent_dim == 0 ? 2 : 1; }
  /// The largest code.
  int64_t max_code() const { return dtype == DType::kU8 ? 255 : 15; }
  /// Bytes of a row of elements or codes.
  int64_t row_bytes() const {
    return lmdeploy::row_bytes(dtype, dtype == DType::kU4 ? head_dim + head_dim % 2 : head_dim);
  }
  /// Where the scales and mins of a plane begin.
  int64_t codes_bytes() const { return (block_len * row_bytes() + 3) / 4 * 4; }
  int64_t key_plane_bytes() const { return plane_bytes(key_parts()); }
  int64_t value_plane_bytes() const { return latent_dim > 0 ? 0 : plane_bytes(1); }
  int64_t layer_bytes() const { return num_kv_heads * (key_plane_bytes() + value_plane_bytes()); }
  int64_t block_bytes() const { return num_layers * layer_bytes(); }
  /// Elements of K and V, of a layer and of all: where rows are plain elements.
  int64_t layer_elements() const { return (latent_dim > 0 ? 1 : 2) * num_kv_heads * block_len * head_dim; }
  int64_t block_elements() const { return num_layers * layer_elements(); }

  static constexpr int64_t kParamBytes = 4;  // of a scale and a min

 private:
  int64_t plane_bytes(int64_t parts) const {
    return quantized() ? codes_bytes() + block_len * parts * kParamBytes : block_len * row_bytes();
  }
};

/// The pool of blocks; data points to num_blocks * layout.block_bytes() bytes.
struct KvCacheView {
  KvLayout layout;
  std::byte* data = nullptr;
  int64_t num_blocks = 0;
};

/// Which rows of a step belong to which sequence, and where its keys are. All i32.
struct AttentionBatch {
  ConstTensorView
      query_start;         // [num_seqs + 1]: rows [query_start[s], query_start[s+1]) belong to sequence s
  ConstTensorView kv_len;  // [num_seqs]: keys in the cache, the step's own tokens included
  ConstTensorView block_table;  // [num_seqs, max_blocks]: block ids in token order
};

enum class NormKind : uint8_t {
  kRms,    // x * rsqrt(mean(x^2) + eps)
  kLayer,  // (x - mean(x)) * rsqrt(mean((x - mean(x))^2) + eps)
};

struct NormOptions {
  float eps = 1e-6f;
  float offset = 0;  // 1: the checkpoint stores weight - 1 (Gemma)
  NormKind kind = NormKind::kRms;
  int64_t group = 0;  // elements that are normalised together (a head); 0: the whole row
  std::optional<ConstTensorView> bias = std::nullopt;  // as weight
};

struct RopeOptions {
  int64_t head_dim = 0;
  bool interleaved = false;  // pairs (2j, 2j+1) instead of (j, j + rotary_dim/2)
  int64_t first = 0;         // element of the head at which the rotated ones begin
};

struct AttentionOptions {
  float scale = 1;  // applied to q.k
  int64_t layer = 0;
  int64_t num_heads = 0;  // query heads; a multiple of the cache's num_kv_heads
  int64_t window = 0;     // a row sees its own key and the window - 1 before it; 0: all
  float soft_cap = 0;     // c: scores become c * tanh(score / c); 0: none
  /// [num_heads] f32: a key of value 0 with this score takes part in each head's softmax (gpt-oss).
  std::optional<ConstTensorView> sinks = std::nullopt;
  /// [num_heads] f32: slope * (j - p) is added to the score of key j for the row at position p (ALiBi; Press
  /// et al. 2021), after the soft cap.
  std::optional<ConstTensorView> alibi_slopes = std::nullopt;
  /// Falcon's ALiBi: scale * bf16(bf16(slope) * bf16(j)) is added instead.
  bool alibi_in_bf16 = false;
};

/// How router logits become experts and weights (Kernels::route).
struct RouteOptions {
  bool sigmoid = false;            // scores are sigmoid(logit); else softmax over all experts
  bool softmax_of_chosen = false;  // weights are the softmax over the chosen logits (gpt-oss)
  bool renormalize = false;        // weights are divided by their p-norm
  float norm_p = 1;
  float norm_eps = 0;  // added to the sum before dividing (DeepSeek-V3: 1e-20)
  float scale = 1;     // multiplies the weights at last
  /// Experts are taken from the `groups_kept` best of `num_groups` groups of neighbours only. A group's score
  /// is the sum of its `group_best` largest choice scores.
  int64_t num_groups = 1, groups_kept = 1, group_best = 1;
};

/// A change to one logit: l < 0 ? l * repetition : l / repetition, then l - penalty, then l + bias.
struct LogitEdit {
  int32_t id = 0;
  float repetition = 1, penalty = 0, bias = 0;
};

/// How to draw a token from a row of logits (Kernels::start_draws).
struct TokenDraw {
  int32_t row = 0;                        // of the logits
  int32_t first_edit = 0, num_edits = 0;  // of the row; ids differ
  float temperature = 0;                  // 0: the largest logit, of equal ones the lowest id
  int32_t top_k = 0;                      // <= 0: off
  float top_p = 1, min_p = 0;
  double uniform = 0;  // the random number, in [0, 1)
};

struct DrawnToken {
  enum class Outcome : int32_t {
    kDrawn,
    kNotFinite,  // NaN or +inf among the logits, or none above -inf
    kNoneLeft,   // the same after the edits
    kTooMany,    // more tokens to sort than a device does; the edits have been made
  };
  Outcome outcome = Outcome::kDrawn;
  int32_t token = -1;
  float max = 0;  // the largest logit, NaN where there is one: after the edits but for kNotFinite
};

/// Calls of ops that were recorded, to be made again. Of one back end, which must outlive it.
class Recording {
 public:
  virtual ~Recording() = default;
  /// Makes the calls again, on the same memory with what is in it now. False, and nothing done, when memory
  /// of the back end's own has moved since.
  virtual bool run() = 0;
};

class Kernels {
 public:
  virtual ~Kernels() = default;
  virtual std::string name() const = 0;  // "ref", "cpu-avx2", ...
  virtual Allocator& allocator() const = 0;
  /// Dtype of hidden states and logits: f32 on the CPU, f64 in the reference.
  virtual DType activation_dtype() const = 0;
  /// Dtype of what stays wider than 16-bit hidden states, logits and rope tables: f32, f64 in the reference.
  DType wide_dtype() const { return activation_dtype() == DType::kF64 ? DType::kF64 : DType::kF32; }
  /// Whether activations may have `dtype`: activation_dtype(), and wide_dtype() too; any float type in the
  /// reference. Those of one call have one dtype but where the op says otherwise.
  virtual bool takes_activation(DType dtype) const {
    return dtype == activation_dtype() || dtype == wide_dtype();
  }
  /// Whether the KV cache may hold `dtype`.
  virtual bool takes_kv_dtype(DType dtype) const = 0;
  virtual ThreadPool& threads() const = 0;
  /// Whether allocator() is memory that the host cannot read.
  virtual bool has_own_memory() const { return false; }
  /// Bytes of allocator() that are free now.
  virtual size_t available_memory() const;

  /// Records the calls that `ops` makes, without making them: no copies between host and device among them,
  /// and the same calls have been made before. Null where calls cost so little that nothing is gained, or
  /// where there is no memory for a recording.
  virtual std::unique_ptr<Recording> record(const std::function<void()>& ops) const;

  /// `host` for ops to read: the view itself where they read host memory, else a copy in `buffer`, which
  /// grows when it is too small. `host` may change after the call. Contiguous rows.
  ConstTensorView to_device(ConstTensorView host, Tensor& buffer) const;
  /// The same for a tensor that stays.
  Tensor to_device(Tensor host) const;
  /// Writes host memory of the same dtype and shape to `out`. Contiguous rows.
  void copy_from_host(TensorView out, ConstTensorView host) const;
  /// `x` for the host to read, all calls before being done: the view itself, or a copy in `buffer`.
  ConstTensorView to_host(ConstTensorView x, Tensor& buffer) const;

  /// Stacks `parts` ([rows_i, cols], each any float or quantised kind, contiguous rows) into one weight. The
  /// parts are read once and not kept. Where their columns are not in x's order ("act-order" of GPTQ, whose
  /// groups are of like columns), `column_order` [cols] says which of x's columns each is: a permutation.
  /// Such a weight is for linear() and its like, not for embedding(). Throws Error(kUnsupported) for a kind
  /// that the back end cannot hold.
  std::unique_ptr<PackedWeight> pack_weight(std::span<const ConstTensorView> parts,
                                            std::span<const int32_t> column_order = {}) const;

  /// out[t, :] = table[ids[t], :]            ids [tokens] i32 in [0, table.rows()); out [tokens, cols]
  void embedding(TensorView out, ConstTensorView ids, const PackedWeight& table) const;

  /// Whether the back end draws tokens: where the host can read logits it draws from them itself.
  virtual bool draws_tokens() const { return false; }
  /// Draws a token from each row draws[i].row of `logits` [rows, vocab_size] (wide_dtype()) after the row's
  /// edits, which stay in it: what engine/token_draw.h gives, in the same arithmetic but for the order of
  /// sums. No two draws of one row. The spans are host memory and may change after the call.
  void start_draws(TensorView logits, std::span<const TokenDraw> draws,
                   std::span<const LogitEdit> edits) const;
  /// Waits for what the last start_draws() has drawn, and for nothing after it. Valid until the next one.
  std::span<const DrawnToken> finish_draws() const;
  /// ids[t] = the token of draw draws[t] of the last start_draws(), where draws[t] is not negative. ids,
  /// draws [tokens] i32.
  void take_drawn(TensorView ids, ConstTensorView draws) const;

  /// out[t, n] = sum_k x[t, order[k]] * weight[n, k] (+ bias[n])        x [tokens, cols], out [tokens, rows],
  /// bias [rows] f32, order the weight's column_order(); out may be of wide_dtype(). On the CPU the order of
  /// the sum depends on cols alone, not on `tokens`: a row's result is bit-equal in any batch. What CUDA
  /// promises: docs/design.md.
  void linear(TensorView out, ConstTensorView x, const PackedWeight& weight,
              std::optional<ConstTensorView> bias = std::nullopt) const;

  /// linear(up, x, weight, bias), then glu(out, up, activation). A back end that does both at once leaves
  /// `up` alone: it is not to be read.
  void linear_glu(TensorView out, TensorView up, ConstTensorView x, const PackedWeight& weight,
                  std::optional<ConstTensorView> bias, Activation activation) const;

  /// out[t,i] = normalised(x)[t,i] * (weight[i] + offset) (+ bias[i]), see NormKind.
  /// x, out [tokens, hidden], may be one buffer; weight, bias [hidden] f32. With options.group each run of
  /// that many elements is normalised on its own; weight and bias have [group] elements for all runs, or
  /// [hidden]. Sums are in f32 (f64 in ref).
  void norm(TensorView out, ConstTensorView x, ConstTensorView weight, const NormOptions& options) const;

  /// residual[t,i] += x[t,i]; out = norm(residual, weight, options), of whole rows
  void add_norm(TensorView out, TensorView residual, ConstTensorView x, ConstTensorView weight,
                const NormOptions& options) const;

  /// table[t, j] = cos(a) * scale[s], table[t, half + j] = sin(a) * scale[s] with a = positions[t] *
  /// inv_freq[s, j], s = table_idx[t]. positions, table_idx [tokens] i32; inv_freq [num_tables, half] f64;
  /// scale [num_tables] f64; table [tokens, 2 * half]. Angles are computed in f64.
  void rope_table(TensorView table, ConstTensorView positions, ConstTensorView inv_freq,
                  ConstTensorView scale, ConstTensorView table_idx) const;

  /// Rotates each head of x [tokens, heads * head_dim] in place by its token's row of `table` [tokens,
  /// rotary_dim], which may be of wide_dtype(): (a, b) -> (a cos - b sin, b cos + a sin); elements before
  /// options.first and from first + rotary_dim on pass through.
  void rope(TensorView x, ConstTensorView table, RopeOptions options) const;

  /// Copies k, v [tokens, num_kv_heads * head_dim] into the cache: token t goes to slot slots[t] (i64; block
  /// * block_len + offset) of `layer`. Values are rounded to the cache's dtype. A latent cache takes no v:
  /// pass k.
  /// In u8 and u4 each token's row x of one head (each half of a key in u4), in f32, becomes the same bytes
  /// on all back ends: with f16() the nearest f16 within +-65504, all other operations in f32 and L the
  /// largest code,
  ///   min = f16(min(x)), scale = f16(max(0, max(x) - min) / L),
  ///   code = round(clamp((x - min) * (1 / scale), 0, L)), ties to even; 0 where scale is 0.
  /// So |decoded - x| <= scale / 2 but for the roundings of min and scale, and equal values are exact as far
  /// as f16 is. Where x has a NaN or an infinity, scale and min are NaN. Keys in u4 are first turned, and
  /// attention() turns q alike, which leaves q . k as it is: 16 steps a row are too few beside an outlier
  /// channel, and this deals it out to all. With n = turned_run(), each run of n elements becomes H x /
  /// sqrt(n), H[i][j] = (-1)^popcount(i & j): for h = 1, 2, 4, ... < n the pairs (a, b) of elements i and i +
  /// h, i & h = 0, become (a + b, a - b), and all are multiplied by f32 1 / sqrt(n).
  void kv_write(const KvCacheView& cache, int64_t layer, ConstTensorView k, ConstTensorView v,
                ConstTensorView slots) const;

  /// rope(x, table, options), then kv_write(cache, layer, k, v, slots) with k the last heads of x.
  void rope_kv_write(TensorView x, ConstTensorView table, RopeOptions options, const KvCacheView& cache,
                     int64_t layer, ConstTensorView v, ConstTensorView slots) const;

  /// Causal attention over the paged cache. For row t of sequence s at position p = kv_len[s] -
  /// (query_start[s+1] - t): out[t, h] = sum_j softmax_j(score(j)) V[j, g], g = h * num_kv_heads / num_heads,
  /// score(j) = cap(scale * q[t, h] . K[j, g]) + alibi, j = max(0, p - window + 1)..p; see AttentionOptions.
  /// q [tokens, num_heads * head_dim], out [tokens, num_heads * value_dim]; may not overlap. Sums in f32 (f64
  /// in ref); the CPU takes weights below e^-64 times the largest seen so far for 0. A row's result does not
  /// depend on the other sequences, nor on how its prompt was cut into steps. Block ids that lie wholly
  /// before the window of all rows of a sequence are not looked at, beyond that they must be ids of the
  /// cache.
  void attention(TensorView out, ConstTensorView q, const KvCacheView& cache, const AttentionBatch& batch,
                 const AttentionOptions& options) const;

  /// out[t,i] = act(x[t,i]) * x[t, n + i]; x [tokens, 2n], out [tokens, n]
  void glu(TensorView out, ConstTensorView x, Activation activation) const;

  /// out[t,i] = (u + 1) * g / (1 + exp(-1.702 g)), g = min(x[t,i], limit), u = clamp(x[t, n + i], -limit,
  /// limit) (gpt-oss)
  void clamped_glu(TensorView out, ConstTensorView x, float limit) const;

  /// out[t,i] = act(x[t,i]); out may be x.
  void activate(TensorView out, ConstTensorView x, Activation activation) const;

  /// out[t,i] = a[t,i] + b[t,i]; out may be a or b.
  void add(TensorView out, ConstTensorView a, ConstTensorView b) const;

  /// x[t,i] = x[t,i] * factor
  void scale(TensorView x, float factor) const;

  /// x[t,i] = x[t,i] * factors[t]; factors [tokens] f32
  void scale_rows(TensorView x, ConstTensorView factors) const;

  /// x[t,i] = x[t,i] / (1 + exp(-gate[t,0])); gate [tokens, 1]
  void gate_rows(TensorView x, ConstTensorView gate) const;

  /// x[t,i] = min(max(x[t,i], -limit), limit)
  void clamp(TensorView x, float limit) const;

  /// x[t,i] = cap * tanh(x[t,i] / cap)
  void soft_cap(TensorView x, float cap) const;

  /// Chooses k experts of each token from logits [tokens, experts]: those with the largest choice score,
  /// which is the score (see RouteOptions) plus correction[e] (f32 [experts], optional); of equal ones the
  /// lower id; NaN is less than any number. ids [tokens, k] i32, by falling choice score; weights [tokens, k]
  /// from the scores without correction.
  void route(TensorView ids, TensorView weights, ConstTensorView logits,
             std::optional<ConstTensorView> correction, const RouteOptions& options) const;

  /// Sorts the tokens * k pairs (t, j) of ids [tokens, k] by expert, then by t * k + j. expert_start [experts
  /// + 1] i32: rows of expert e in that order; row_tokens [tokens * k] i32: the token of each; pair_rows
  /// [tokens, k] i32: the row of each pair.
  void sort_by_expert(TensorView expert_start, TensorView row_tokens, TensorView pair_rows,
                      ConstTensorView ids) const;

  /// linear() with weight experts[e] and bias[e] for rows [expert_start[e], expert_start[e + 1]). All experts
  /// have one shape; bias [experts, rows] f32.
  void expert_linear(TensorView out, ConstTensorView x, std::span<const PackedWeight* const> experts,
                     ConstTensorView expert_start, std::optional<ConstTensorView> bias = std::nullopt) const;

  /// out[t,i] = sum_j weights[t,j] * x[pair_rows[t,j], i], j rising; weights [tokens, k], pair_rows [tokens,
  /// k] i32
  void combine_experts(TensorView out, ConstTensorView x, ConstTensorView weights,
                       ConstTensorView pair_rows) const;

  /// out[t,i] = x[t,i]; the two may not overlap.
  void copy(TensorView out, ConstTensorView x) const;

  /// out[r, :] = x[rows[r], :]               rows [n] i32
  void gather_rows(TensorView out, ConstTensorView x, ConstTensorView rows) const;

 protected:
  // Ops that are sequences of others: what a back end can do at once it overrides.
  virtual void do_linear_glu(TensorView out, TensorView up, ConstTensorView x, const PackedWeight& weight,
                             std::optional<ConstTensorView> bias, Activation activation) const;
  virtual void do_rope_kv_write(TensorView x, ConstTensorView table, RopeOptions options,
                                const KvCacheView& cache, int64_t layer, ConstTensorView v,
                                ConstTensorView slots) const;

 private
     :  // A back end without the op does not compile. Shapes and dtypes have been checked; no empty tensors.
  /// `rows`: of all parts.
  virtual std::unique_ptr<PackedWeight> do_pack_weight(std::span<const ConstTensorView> parts, int64_t rows,
                                                       std::span<const int32_t> column_order) const = 0;
  virtual void do_embedding(TensorView out, ConstTensorView ids, const PackedWeight& table) const = 0;
  virtual void do_linear(TensorView out, ConstTensorView x, const PackedWeight& weight,
                         std::optional<ConstTensorView> bias) const = 0;
  virtual void do_norm(TensorView out, ConstTensorView x, ConstTensorView weight,
                       const NormOptions& options) const = 0;
  virtual void do_add_norm(TensorView out, TensorView residual, ConstTensorView x, ConstTensorView weight,
                           const NormOptions& options) const = 0;
  virtual void do_rope_table(TensorView table, ConstTensorView positions, ConstTensorView inv_freq,
                             ConstTensorView scale, ConstTensorView table_idx) const = 0;
  virtual void do_rope(TensorView x, ConstTensorView table, RopeOptions options) const = 0;
  virtual void do_kv_write(const KvCacheView& cache, int64_t layer, ConstTensorView k, ConstTensorView v,
                           ConstTensorView slots) const = 0;
  virtual void do_attention(TensorView out, ConstTensorView q, const KvCacheView& cache,
                            const AttentionBatch& batch, const AttentionOptions& options) const = 0;
  virtual void do_glu(TensorView out, ConstTensorView x, Activation activation) const = 0;
  virtual void do_clamped_glu(TensorView out, ConstTensorView x, float limit) const = 0;
  virtual void do_activate(TensorView out, ConstTensorView x, Activation activation) const = 0;
  virtual void do_add(TensorView out, ConstTensorView a, ConstTensorView b) const = 0;
  virtual void do_scale(TensorView x, float factor) const = 0;
  virtual void do_scale_rows(TensorView x, ConstTensorView factors) const = 0;
  virtual void do_gate_rows(TensorView x, ConstTensorView gate) const = 0;
  virtual void do_clamp(TensorView x, float limit) const = 0;
  virtual void do_soft_cap(TensorView x, float cap) const = 0;
  virtual void do_route(TensorView ids, TensorView weights, ConstTensorView logits,
                        std::optional<ConstTensorView> correction, const RouteOptions& options) const = 0;
  virtual void do_sort_by_expert(TensorView expert_start, TensorView row_tokens, TensorView pair_rows,
                                 ConstTensorView ids) const = 0;
  virtual void do_expert_linear(TensorView out, ConstTensorView x,
                                std::span<const PackedWeight* const> experts, ConstTensorView expert_start,
                                std::optional<ConstTensorView> bias) const = 0;
  virtual void do_combine_experts(TensorView out, ConstTensorView x, ConstTensorView weights,
                                  ConstTensorView pair_rows) const = 0;
  virtual void do_copy(TensorView out, ConstTensorView x) const = 0;
  virtual void do_gather_rows(TensorView out, ConstTensorView x, ConstTensorView rows) const = 0;

  virtual void do_start_draws(TensorView logits, std::span<const TokenDraw> draws,
                              std::span<const LogitEdit> edits) const;
  virtual std::span<const DrawnToken> do_finish_draws() const;
  virtual void do_take_drawn(TensorView ids, ConstTensorView draws) const;

  // For back ends with memory of their own.
  /// Where copies of that size from the device go fastest.
  virtual Allocator& host_memory(size_t bytes) const;
  virtual void do_upload(std::byte* device, const std::byte* host, size_t bytes) const;
  virtual void do_download(std::byte* host, const std::byte* device, size_t bytes) const;
};

/// Instruction sets of the CPU back end, worst first.
enum class CpuIsa { kPortable, kAvx2, kAvx2Vnni, kAvx512, kAvx512Vnni, kAvx512BF16 };
std::string_view to_string(CpuIsa isa);
/// The fastest of those that both this build and this processor have: kAvx512BF16 where it beats f32.
CpuIsa best_cpu_isa();
bool cpu_isa_available(CpuIsa isa);

/// The judge: f64, plain loops (threaded), never optimised.
std::unique_ptr<Kernels> make_ref_kernels(std::shared_ptr<ThreadPool> threads);

struct CpuOptions {
  CpuIsa isa = best_cpu_isa();
  /// linear() and expert_linear() round x to what the weights are multiplied with fastest. With integers (all
  /// quantised kinds but f8_g64): to signed bytes, with one scale for 32 columns of a row, |rounded - x| <=
  /// max|x of the 32| / 254, values below 2^-100 count as 0; not on kPortable. With bf16: to bf16, below
  /// 2^-126 to 0, on kAvx512BF16. Everything else stays in f32.
  bool rounded_activations = false;
};
/// Throws Error(kUnsupported) when `options.isa` is not available.
std::unique_ptr<Kernels> make_cpu_kernels(std::shared_ptr<ThreadPool> threads,
                                          const CpuOptions& options = {});

/// Of the CUDA toolkit that this build was made with, 1000 * major + 10 * minor; 0: there is no CUDA back
/// end.
int cuda_toolkit_version();
/// A graphics card that the CUDA back end can use.
struct CudaDevice {
  std::string name;
  int major = 0, minor = 0;  // compute capability
  size_t total_bytes = 0;
  int index = 0;  // CUDA's number
};
/// What the CUDA back end finds on this machine: devices, or why there are none.
struct CudaStatus {
  std::vector<CudaDevice> devices;
  std::string problem;  // "" when there are devices
};
CudaStatus cuda_status();
struct CudaOptions {
  /// linear() and attention() sum each row in one order whatever the number of tokens, as the CPU does.
  bool batch_invariant = false;
  /// CUDA's number of it. A thread that calls the ops must have made it its current device: 0 is without
  /// that.
  int device = 0;
};
/// With activations in f16, bf16 or f32. Throws Error(kUnsupported) with the problem.
std::unique_ptr<Kernels> make_cuda_kernels(std::shared_ptr<ThreadPool> threads, DType activation_dtype,
                                           const CudaOptions& options = {});

/// Dequantises (or widens) `count` elements, a multiple of block_size(dtype), exactly as ggml's reference
/// does: f32 products and sums in its order. Any float or quantised kind.
void dequantize(DType dtype, const std::byte* src, float* dst, int64_t count);

}  // namespace lmdeploy
