// The public side of every op: checks its arguments once for all back ends and drops empty calls.
#include "lmdeploy/kernels/kernels.h"

#include "lmdeploy/kernels/checks.h"

namespace lmdeploy {

void Kernels::embedding(TensorView out, ConstTensorView ids, const PackedWeight& table) const {
  checks::embedding(*this, out, ids, table);
  if (ids.cols() > 0) do_embedding(out, ids, table);
}

void Kernels::linear(TensorView out, ConstTensorView x, const PackedWeight& weight,
                     std::optional<ConstTensorView> bias) const {
  checks::linear(*this, out, x, weight, bias);
  if (x.rows() > 0) do_linear(out, x, weight, bias);
}

void Kernels::rms_norm(TensorView out, ConstTensorView x, ConstTensorView weight, NormOptions options) const {
  checks::rms_norm(*this, out, x, weight);
  if (x.rows() > 0) do_rms_norm(out, x, weight, options);
}

void Kernels::add_rms_norm(TensorView out, TensorView residual, ConstTensorView x, ConstTensorView weight,
                           NormOptions options) const {
  checks::add_rms_norm(*this, out, residual, x, weight);
  if (x.rows() > 0) do_add_rms_norm(out, residual, x, weight, options);
}

void Kernels::rope_table(TensorView table, ConstTensorView positions, ConstTensorView inv_freq,
                         ConstTensorView scale, ConstTensorView table_idx) const {
  checks::rope_table(*this, table, positions, inv_freq, scale, table_idx);
  if (table.rows() > 0) do_rope_table(table, positions, inv_freq, scale, table_idx);
}

void Kernels::rope(TensorView x, ConstTensorView table, RopeOptions options) const {
  checks::rope(*this, x, table, options);
  if (x.rows() > 0 && table.cols() > 0) do_rope(x, table, options);
}

void Kernels::kv_write(const KvCacheView& cache, int64_t layer, ConstTensorView k, ConstTensorView v,
                       ConstTensorView slots) const {
  checks::kv_write(*this, cache, layer, k, v, slots);
  if (k.rows() > 0) do_kv_write(cache, layer, k, v, slots);
}

void Kernels::attention(TensorView out, ConstTensorView q, const KvCacheView& cache,
                        const AttentionBatch& batch, AttentionOptions options) const {
  checks::attention(*this, out, q, cache, batch, options);
  if (q.rows() > 0) do_attention(out, q, cache, batch, options);
}

void Kernels::silu_mul(TensorView out, ConstTensorView x) const {
  checks::silu_mul(*this, out, x);
  if (x.rows() > 0) do_silu_mul(out, x);
}

void Kernels::add(TensorView out, ConstTensorView a, ConstTensorView b) const {
  checks::add(*this, out, a, b);
  if (out.rows() > 0) do_add(out, a, b);
}

void Kernels::gather_rows(TensorView out, ConstTensorView x, ConstTensorView rows) const {
  checks::gather_rows(*this, out, x, rows);
  if (out.rows() > 0) do_gather_rows(out, x, rows);
}

}  // namespace lmdeploy
