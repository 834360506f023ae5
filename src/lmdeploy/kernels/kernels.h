// The list of ops. The comment above an op is its specification; back ends add no behaviour to it.
//
// Conventions: `tokens` is the number of rows of a ragged step. Tensors live in memory of `allocator()`; for
// the CPU and the reference that is host memory. Activations have activation_dtype(); every op also takes the
// other float types that its comment names. Calls run in order; one thread at a time uses a Kernels object.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "lmdeploy/core/tensor.h"
#include "lmdeploy/core/thread_pool.h"

namespace lmdeploy {

/// A weight matrix [rows (out), cols (in)] in the layout that one back end's linear() and embedding() read.
/// It may consist of several parts stacked by rows (q, k, v), each of its own kind. Made by
/// Kernels::pack_weight() only.
class PackedWeight {
 public:
  virtual ~PackedWeight() = default;
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  /// Memory held, for the start-up report.
  virtual size_t bytes() const = 0;

 protected:
  PackedWeight(int64_t rows, int64_t cols) : rows_(rows), cols_(cols) {}

 private:
  int64_t rows_;
  int64_t cols_;
};

/// One block holds `block_len` tokens of K and V of all layers:
/// [num_layers][2 (K, V)][num_kv_heads][block_len][head_dim] elements of `dtype`.
struct KvLayout {
  DType dtype = DType::kF32;  // f64 (ref only), f32, f16, bf16
  int64_t num_layers = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t block_len = 64;  // tokens

  int64_t block_elements() const { return num_layers * 2 * num_kv_heads * block_len * head_dim; }
  int64_t block_bytes() const { return row_bytes(dtype, block_elements()); }
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

struct NormOptions {
  float eps = 1e-6f;
  float offset = 0;  // 1: the checkpoint stores weight - 1 (Gemma)
};

struct RopeOptions {
  int64_t head_dim = 0;
  bool interleaved = false;  // pairs (2j, 2j+1) instead of (j, j + rotary_dim/2)
};

struct AttentionOptions {
  float scale = 1;  // applied to q.k
  int64_t layer = 0;
  int64_t num_heads = 0;  // query heads; a multiple of the cache's num_kv_heads
};

class Kernels {
 public:
  virtual ~Kernels() = default;
  virtual std::string name() const = 0;  // "ref", "cpu-avx2", ...
  virtual Allocator& allocator() const = 0;
  /// Dtype of hidden states and logits: f32 on the CPU, f64 in the reference.
  virtual DType activation_dtype() const = 0;
  /// Whether activations may have `dtype`: activation_dtype() alone, but any float type in the reference.
  virtual bool takes_activation(DType dtype) const { return dtype == activation_dtype(); }
  /// Whether the KV cache may hold `dtype`.
  virtual bool takes_kv_dtype(DType dtype) const = 0;
  virtual ThreadPool& threads() const = 0;

  /// Stacks `parts` ([rows_i, cols], each any float or quantised kind, contiguous rows) into one weight. The
  /// parts are read once and not kept. Throws Error(kUnsupported) for a kind that the back end cannot hold.
  virtual std::unique_ptr<PackedWeight> pack_weight(std::span<const ConstTensorView> parts) const = 0;

  /// out[t, :] = table[ids[t], :]            ids [tokens] i32 in [0, table.rows()); out [tokens, cols]
  void embedding(TensorView out, ConstTensorView ids, const PackedWeight& table) const;

  /// out[t, n] = sum_k x[t, k] * weight[n, k] (+ bias[n])        x [tokens, cols], out [tokens, rows], bias
  /// [rows] f32 The order of the sum depends on cols alone, not on `tokens`: a row's result is bit-equal in
  /// any batch.
  void linear(TensorView out, ConstTensorView x, const PackedWeight& weight,
              std::optional<ConstTensorView> bias = std::nullopt) const;

  /// out[t,i] = x[t,i] * rsqrt(mean_i(x[t,i]^2) + eps) * (weight[i] + offset)
  /// x, out [tokens, hidden], may be one buffer; weight [hidden] f32. The sum is in f32 (f64 in ref).
  void rms_norm(TensorView out, ConstTensorView x, ConstTensorView weight, NormOptions options) const;

  /// residual[t,i] += x[t,i]; out = rms_norm(residual, weight, options)
  void add_rms_norm(TensorView out, TensorView residual, ConstTensorView x, ConstTensorView weight,
                    NormOptions options) const;

  /// table[t, j] = cos(a) * scale[s], table[t, half + j] = sin(a) * scale[s] with a = positions[t] *
  /// inv_freq[s, j], s = table_idx[t]. positions, table_idx [tokens] i32; inv_freq [num_tables, half] f64;
  /// scale [num_tables] f64; table [tokens, 2 * half]. Angles are computed in f64.
  void rope_table(TensorView table, ConstTensorView positions, ConstTensorView inv_freq,
                  ConstTensorView scale, ConstTensorView table_idx) const;

  /// Rotates each head of x [tokens, heads * head_dim] in place by its token's row of `table` [tokens,
  /// rotary_dim]: (a, b) -> (a cos - b sin, b cos + a sin); elements past rotary_dim pass through.
  void rope(TensorView x, ConstTensorView table, RopeOptions options) const;

  /// Copies k, v [tokens, num_kv_heads * head_dim] into the cache: token t goes to slot slots[t] (i64; block
  /// * block_len
  /// + offset) of `layer`. Values are rounded to the cache's dtype.
  void kv_write(const KvCacheView& cache, int64_t layer, ConstTensorView k, ConstTensorView v,
                ConstTensorView slots) const;

  /// Causal attention over the paged cache. For row t of sequence s at position p = kv_len[s] -
  /// (query_start[s+1] - t): out[t, h] = sum_j softmax_j(scale * q[t, h] . K[j, g]) V[j, g], j = 0..p, g = h
  /// * num_kv_heads / num_heads q, out [tokens, num_heads * head_dim]; may not overlap. Sums in f32 (f64 in
  /// ref). A row's result does not depend on the other sequences, nor on how its prompt was cut into steps.
  void attention(TensorView out, ConstTensorView q, const KvCacheView& cache, const AttentionBatch& batch,
                 AttentionOptions options) const;

  /// out[t,i] = silu(x[t,i]) * x[t, n + i], silu(g) = g / (1 + exp(-g)); x [tokens, 2n], out [tokens, n]
  void silu_mul(TensorView out, ConstTensorView x) const;

  /// out[t,i] = a[t,i] + b[t,i]; out may be a or b.
  void add(TensorView out, ConstTensorView a, ConstTensorView b) const;

  /// out[r, :] = x[rows[r], :]               rows [n] i32
  void gather_rows(TensorView out, ConstTensorView x, ConstTensorView rows) const;

 private
     :  // A back end without the op does not compile. Shapes and dtypes have been checked; no empty tensors.
  virtual void do_embedding(TensorView out, ConstTensorView ids, const PackedWeight& table) const = 0;
  virtual void do_linear(TensorView out, ConstTensorView x, const PackedWeight& weight,
                         std::optional<ConstTensorView> bias) const = 0;
  virtual void do_rms_norm(TensorView out, ConstTensorView x, ConstTensorView weight,
                           NormOptions options) const = 0;
  virtual void do_add_rms_norm(TensorView out, TensorView residual, ConstTensorView x, ConstTensorView weight,
                               NormOptions options) const = 0;
  virtual void do_rope_table(TensorView table, ConstTensorView positions, ConstTensorView inv_freq,
                             ConstTensorView scale, ConstTensorView table_idx) const = 0;
  virtual void do_rope(TensorView x, ConstTensorView table, RopeOptions options) const = 0;
  virtual void do_kv_write(const KvCacheView& cache, int64_t layer, ConstTensorView k, ConstTensorView v,
                           ConstTensorView slots) const = 0;
  virtual void do_attention(TensorView out, ConstTensorView q, const KvCacheView& cache,
                            const AttentionBatch& batch, AttentionOptions options) const = 0;
  virtual void do_silu_mul(TensorView out, ConstTensorView x) const = 0;
  virtual void do_add(TensorView out, ConstTensorView a, ConstTensorView b) const = 0;
  virtual void do_gather_rows(TensorView out, ConstTensorView x, ConstTensorView rows) const = 0;
};

/// Instruction sets of the CPU back end, worst first.
enum class CpuIsa { kPortable, kAvx2, kAvx512 };
std::string_view to_string(CpuIsa isa);
/// The best one that both this build and this processor have.
CpuIsa best_cpu_isa();
bool cpu_isa_available(CpuIsa isa);

/// The judge: f64, plain loops (threaded), never optimised.
std::unique_ptr<Kernels> make_ref_kernels(std::shared_ptr<ThreadPool> threads);
/// Throws Error(kUnsupported) when `isa` is not available.
std::unique_ptr<Kernels> make_cpu_kernels(std::shared_ptr<ThreadPool> threads, CpuIsa isa = best_cpu_isa());

/// Dequantises (or widens) `count` elements, a multiple of block_size(dtype), exactly as ggml's reference
/// does: f32 products and sums in its order. Any float or quantised kind.
void dequantize(DType dtype, const std::byte* src, float* dst, int64_t count);

}  // namespace lmdeploy
