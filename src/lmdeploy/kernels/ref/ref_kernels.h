// The reference back end: f64, plain loops over at() and set(), one file per op. It judges every other back
// end; never optimise it.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "lmdeploy/core/allocator.h"
#include "lmdeploy/kernels/kernels.h"

namespace lmdeploy {

/// The parts as they came, byte for byte.
class RefWeight final : public PackedWeight {
 public:
  RefWeight(std::span<const ConstTensorView> parts, int64_t rows, std::span<const int32_t> column_order);
  size_t bytes() const override;
  /// The f64 values of a row, in x's order of columns.
  void read_row(int64_t row, double* dst) const;

 private:
  std::vector<Tensor> parts_;
};

/// Takes activations of any float type, so that it can read a test's rounded inputs and write f64.
class RefKernels : public Kernels {
 public:
  explicit RefKernels(std::shared_ptr<ThreadPool> threads) : threads_(std::move(threads)) {}

  std::string name() const override { return "ref"; }
  Allocator& allocator() const override { return host_allocator(); }
  DType activation_dtype() const override { return DType::kF64; }
  bool takes_activation(DType dtype) const override { return is_float(dtype); }
  bool takes_kv_dtype(DType dtype) const override {
    return is_float(dtype) || dtype == DType::kU8 || dtype == DType::kU4;
  }
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

  /// body(r) for each r in [0, rows), in parallel.
  void for_rows(int64_t rows, FunctionRef<void(int64_t row)> body) const;

  /// out[row, col] = value(row, col), rows in parallel.
  void for_elements(TensorView out, FunctionRef<double(int64_t row, int64_t col)> value) const;

  std::shared_ptr<ThreadPool> threads_;
};

/// The weight as one of ours; Error(kInvalidArgument) when another back end packed it.
const RefWeight& ref_weight(const char* op, const PackedWeight& weight);

/// K (kv = 0) or V (1) of one layer and kv head in one block of the cache: [block_len, head_dim]. V of a
/// latent cache are its K rows.
class CachePlane {
 public:
  CachePlane(const KvCacheView& cache, int64_t block, int64_t layer, int kv, int64_t head);
  double at(int64_t row, int64_t d) const;
  /// Row `row` = x[t, first_col, ...].
  void set_row(int64_t row, ConstTensorView x, int64_t t, int64_t first_col) const;

 private:
  void quantize_part(int64_t row, int64_t part, std::span<const float> x) const;
  /// [block_len, head_dim] of a float cache.
  TensorView elements() const;
  /// [block_len, bytes of codes].
  TensorView codes() const;
  /// [block_len, 2 * parts_]: scale and min of each.
  TensorView params() const;

  const KvLayout& layout_;
  bool is_key_;
  int64_t parts_;
  std::byte* data_;
};

/// Turns the runs of a key or query as Kernels::kv_write says.
template <typename T>
void turn_key(std::span<T> x, int64_t run) {
  const auto n = static_cast<size_t>(run);
  for (size_t h = 1; h < n; h *= 2) {
    for (size_t i = 0; i < x.size(); ++i) {
      if ((i & h) != 0) continue;
      const T a = x[i], b = x[i + h];
      x[i] = a + b;
      x[i + h] = a - b;
    }
  }
  for (T& value : x) value *= 1 / std::sqrt(static_cast<T>(n));
}

}  // namespace lmdeploy
