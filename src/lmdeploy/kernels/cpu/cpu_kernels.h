// The CPU back end: f32 activations; weights in panels; threads outside, instruction sets inside (isa.h).
#pragma once

#include <string>
#include <vector>

#include "lmdeploy/core/allocator.h"
#include "lmdeploy/kernels/cpu/isa.h"
#include "lmdeploy/kernels/cpu/packed_weight.h"
#include "lmdeploy/kernels/kernels.h"

namespace lmdeploy::cpu {

/// Memory that is kept from call to call and only ever grows.
class Scratch {
 public:
  /// At least `count` uninitialised values, 64-byte aligned; what was there before is lost.
  float* floats(int64_t count) { return reinterpret_cast<float*>(bytes(count * 4)); }
  double* doubles(int64_t count) { return reinterpret_cast<double*>(bytes(count * 8)); }
  std::byte* bytes(int64_t count);

 private:
  Buffer buffer_;
};

/// Attention of rows [first_row, first_row + num_rows) of one sequence and the query heads of one kv head.
struct AttentionTask {
  int64_t sequence;
  int64_t kv_head;
  int64_t first_row;
  int64_t num_rows;
  int64_t first_keys;    // up to the first row's own; each next row's end one later
  int64_t first_key;     // that the first row sees
  int64_t spans_before;  // of the tasks before this one

  int64_t end_key() const { return first_keys + num_rows - 1; }
  int64_t first_span() const { return first_key / kSpanKeys; }
  int64_t end_span() const { return (end_key() + kSpanKeys - 1) / kSpanKeys; }
  int64_t num_spans() const { return end_span() - first_span(); }
};

/// How a linear() takes its tokens, see PackedTokens.
struct TileForm {
  int64_t tokens;  // in a full tile
  bool decodes_once = false;
  bool q_unsigned = false;
};

/// The rows of an expert_linear() that belong to one expert.
struct ExpertTask {
  const CpuWeight* weight;
  int64_t first_row;
  PackedTokens tokens;
  const float* bias;     // nullptr: none
  int64_t tiles_before;  // of tokens, of the tasks before this one
  int64_t cost_before;   // of the tasks before this one
  int64_t panel_cost;    // about proportional to the time that one panel takes

  int64_t end_cost() const { return cost_before + weight->num_panels() * panel_cost; }
};

class CpuKernels final : public Kernels {
 public:
  CpuKernels(std::shared_ptr<ThreadPool> threads, const CpuOptions& options, const IsaOps& ops);

  std::string name() const override;
  Allocator& allocator() const override { return host_allocator(); }
  DType activation_dtype() const override { return DType::kF32; }
  bool takes_kv_dtype(DType dtype) const override;
  ThreadPool& threads() const override { return *threads_; }

 private:
  std::unique_ptr<PackedWeight> do_pack_weight(std::span<const ConstTensorView> parts, int64_t rows,
                                               std::span<const int32_t> column_order) const override;
  void do_embedding(TensorView out, ConstTensorView ids, const PackedWeight& table) const override;
  void do_linear(TensorView out, ConstTensorView x, const PackedWeight& weight,
                 std::optional<ConstTensorView> bias) const override;
  void do_norm(TensorView out, ConstTensorView x, ConstTensorView weight,
               const NormOptions& options) const override;
  void do_add_norm(TensorView out, TensorView residual, ConstTensorView x, ConstTensorView weight,
                   const NormOptions& options) const override;
  void do_rope_table(TensorView table, ConstTensorView positions, ConstTensorView inv_freq,
                     ConstTensorView scale, ConstTensorView table_idx) const override;
  void do_rope(TensorView x, ConstTensorView table, RopeOptions options) const override;
  void do_kv_write(const KvCacheView& cache, int64_t layer, ConstTensorView k, ConstTensorView v,
                   ConstTensorView slots) const override;
  void do_attention(TensorView out, ConstTensorView q, const KvCacheView& cache, const AttentionBatch& batch,
                    const AttentionOptions& options) const override;
  void do_glu(TensorView out, ConstTensorView x, Activation activation) const override;
  void do_clamped_glu(TensorView out, ConstTensorView x, float limit) const override;
  void do_activate(TensorView out, ConstTensorView x, Activation activation) const override;
  void do_add(TensorView out, ConstTensorView a, ConstTensorView b) const override;
  void do_scale(TensorView x, float factor) const override;
  void do_scale_rows(TensorView x, ConstTensorView factors) const override;
  void do_gate_rows(TensorView x, ConstTensorView gate) const override;
  void do_clamp(TensorView x, float limit) const override;
  void do_soft_cap(TensorView x, float cap) const override;
  void do_route(TensorView ids, TensorView weights, ConstTensorView logits,
                std::optional<ConstTensorView> correction, const RouteOptions& options) const override;
  void do_sort_by_expert(TensorView expert_start, TensorView row_tokens, TensorView pair_rows,
                         ConstTensorView ids) const override;
  void do_expert_linear(TensorView out, ConstTensorView x, std::span<const PackedWeight* const> experts,
                        ConstTensorView expert_start, std::optional<ConstTensorView> bias) const override;
  void do_combine_experts(TensorView out, ConstTensorView x, ConstTensorView weights,
                          ConstTensorView pair_rows) const override;
  void do_copy(TensorView out, ConstTensorView x) const override;
  void do_gather_rows(TensorView out, ConstTensorView x, ConstTensorView rows) const override;

  /// body(worker, begin, end) on pieces of [0, count), dealt dynamically to the threads; at least `grain`
  /// items a piece. A worker runs one piece at a time, so that thread_scratch_[worker] is its own.
  void for_pieces(int64_t count, int64_t grain,
                  FunctionRef<void(int worker, int64_t begin, int64_t end)> body) const;
  /// body(row) for each row of `cols` elements; threads only when there is enough to do.
  void for_rows(int64_t rows, int64_t cols, FunctionRef<void(int64_t row)> body) const;
  void for_worker_rows(int64_t rows, int64_t cols, FunctionRef<void(int worker, int64_t row)> body) const;

  Rounding rounding() const {
    return {.int8 = options_.rounded_activations && ops_.linear_int8 != nullptr,
            .bf16 = options_.rounded_activations && ops_.linear_bf16 != nullptr};
  }
  /// linear of IsaOps, or linear_int8 or linear_bf16.
  auto product_of(Kind kind) const {
    if (rounding().to_int8(kind)) return ops_.linear_int8;
    return rounding().to_bf16(kind) ? ops_.linear_bf16 : ops_.linear;
  }

  void norm_row(float* out, const float* x, int64_t n, ConstTensorView weight,
                const NormOptions& options) const;

  /// x for a product with the weight: itself, or a copy whose columns are in the weight's order.
  ConstTensorView in_column_order(ConstTensorView x, const PackedWeight& weight) const;
  /// The same of rows of experts, each in its own order.
  ConstTensorView in_column_order(ConstTensorView x, std::span<const PackedWeight* const> experts,
                                  ConstTensorView expert_start) const;
  void order_rows(const TensorView& out, ConstTensorView x, std::span<const int32_t> order) const;

  /// Of `tokens` of one linear().
  TileForm tile_form(const TokenForms& forms, int64_t tokens) const;
  /// Shared scratch for the rearranged rows of a linear(), in the forms that the kinds of the weights need.
  PackedTokens plan_tokens(const TokenForms& forms, int64_t tokens, int64_t cols) const;
  /// Tiles of rows of `cols` elements whose packing is worth waking a thread.
  int64_t pack_grain(int64_t cols) const;
  /// The number of panels that a thread's piece of a linear() is a multiple of.
  int64_t piece_panels(int64_t num_panels, int64_t tokens) const;
  /// Panels [begin, end) of a weight times packed tokens; `out` and `bias` are those of the weight's row 0.
  void run_panels(int worker, const CpuWeight& weight, int64_t begin, int64_t end, const PackedTokens& tokens,
                  const float* bias, float* out, int64_t out_stride) const;
  /// Fills expert_tasks_ with the experts that have rows.
  void plan_experts(ConstTensorView x, std::span<const PackedWeight* const> experts,
                    ConstTensorView expert_start, const std::optional<ConstTensorView>& bias) const;

  std::shared_ptr<ThreadPool> threads_;
  CpuOptions options_;
  IsaOps ops_;
  // One thread at a time uses a Kernels object: scratch needs no lock.
  mutable std::vector<Scratch> thread_scratch_;
  mutable Scratch shared_scratch_;
  mutable Scratch ordered_x_;
  mutable std::vector<AttentionTask> attention_tasks_;
  mutable std::vector<ExpertTask> expert_tasks_;
};

/// Of a dtype that CpuKernels::takes_kv_dtype().
CacheKind cache_kind(DType dtype);

/// The weight as one of ours; Error(kInvalidArgument) when another back end packed it.
const CpuWeight& cpu_weight(const char* op, const PackedWeight& weight);

}  // namespace lmdeploy::cpu
