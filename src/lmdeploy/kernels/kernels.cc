// The public side of every op: checks its arguments once for all back ends and drops empty calls.
#include "lmdeploy/kernels/kernels.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/system_memory.h"
#include "lmdeploy/kernels/checks.h"

namespace lmdeploy {
namespace {

size_t bytes_of(ConstTensorView t) { return static_cast<size_t>(t.rows() * row_bytes(t.dtype(), t.cols())); }

void make_room(Tensor& buffer, size_t bytes, Allocator& allocator) {
  if (!buffer.empty() && buffer.bytes() >= bytes) return;
  buffer = Tensor();  // free before allocating: nobody reads the old content
  buffer = Tensor(DType::kU8, {static_cast<int64_t>(bytes)}, allocator);
}

// Keys that lie behind other heads.
ConstTensorView last_heads(ConstTensorView x, const KvCacheView& cache) {
  const int64_t cols = cache.layout.num_kv_heads * cache.layout.head_dim;
  return x.slice_cols(std::max<int64_t>(0, x.cols() - cols), std::min(cols, x.cols()));
}

}  // namespace

size_t Kernels::available_memory() const { return system_memory().available_bytes; }

ConstTensorView Kernels::to_device(ConstTensorView host, Tensor& buffer) const {
  if (!has_own_memory()) return host;
  LMD_CHECK(host.contiguous(), "rows of ", host.row_stride_bytes(), " bytes");
  make_room(buffer, bytes_of(host), allocator());
  do_upload(buffer.view().data(), host.data(), bytes_of(host));
  return {buffer.view().data(), host.dtype(), host.shape()};
}

Tensor Kernels::to_device(Tensor host) const {
  if (!has_own_memory()) return host;
  Tensor device(host.dtype(), host.shape(), allocator());
  copy_from_host(device, host);
  return device;
}

void Kernels::copy_from_host(TensorView out, ConstTensorView host) const {
  LMD_CHECK(
      out.dtype() == host.dtype() && out.shape() == host.shape() && out.contiguous() && host.contiguous(),
      to_string(out.shape()), " from ", to_string(host.shape()));
  if (!has_own_memory())
    std::memcpy(out.data(), host.data(), bytes_of(host));
  else
    do_upload(out.data(), host.data(), bytes_of(host));
}

ConstTensorView Kernels::to_host(ConstTensorView x, Tensor& buffer) const {
  if (!has_own_memory()) return x;
  LMD_CHECK(x.contiguous(), "rows of ", x.row_stride_bytes(), " bytes");
  make_room(buffer, bytes_of(x), host_memory(bytes_of(x)));
  do_download(buffer.view().data(), x.data(), bytes_of(x));
  return {buffer.view().data(), x.dtype(), x.shape()};
}

Allocator& Kernels::host_memory(size_t) const { return host_allocator(); }

std::unique_ptr<Recording> Kernels::record(const std::function<void()>&) const { return nullptr; }

void Kernels::do_upload(std::byte*, const std::byte*, size_t) const {
  LMD_CHECK(false, name(), " reads host memory");
}
void Kernels::do_download(std::byte*, const std::byte*, size_t) const {
  LMD_CHECK(false, name(), " reads host memory");
}

void Kernels::start_draws(TensorView logits, std::span<const TokenDraw> draws,
                          std::span<const LogitEdit> edits) const {
  checks::start_draws(*this, logits, draws, edits);
  do_start_draws(logits, draws, edits);
}

std::span<const DrawnToken> Kernels::finish_draws() const { return do_finish_draws(); }

void Kernels::take_drawn(TensorView ids, ConstTensorView draws) const {
  checks::take_drawn(ids, draws);
  if (ids.cols() > 0) do_take_drawn(ids, draws);
}

void Kernels::do_start_draws(TensorView, std::span<const TokenDraw>, std::span<const LogitEdit>) const {
  throw Error(ErrorCode::kUnsupported, cat(name(), " draws no tokens"));
}
std::span<const DrawnToken> Kernels::do_finish_draws() const {
  throw Error(ErrorCode::kUnsupported, cat(name(), " draws no tokens"));
}
void Kernels::do_take_drawn(TensorView, ConstTensorView) const {
  throw Error(ErrorCode::kUnsupported, cat(name(), " draws no tokens"));
}

void Kernels::embedding(TensorView out, ConstTensorView ids, const PackedWeight& table) const {
  checks::embedding(*this, out, ids, table);
  if (ids.cols() > 0) do_embedding(out, ids, table);
}

std::unique_ptr<PackedWeight> Kernels::pack_weight(std::span<const ConstTensorView> parts,
                                                   std::span<const int32_t> column_order) const {
  return do_pack_weight(parts, checks::weight_parts(parts, column_order), column_order);
}

void Kernels::linear(TensorView out, ConstTensorView x, const PackedWeight& weight,
                     std::optional<ConstTensorView> bias) const {
  checks::linear(*this, out, x, weight, bias);
  if (x.rows() > 0) do_linear(out, x, weight, bias);
}

void Kernels::linear_glu(TensorView out, TensorView up, ConstTensorView x, const PackedWeight& weight,
                         std::optional<ConstTensorView> bias, Activation activation) const {
  checks::linear(*this, up, x, weight, bias);
  checks::glu(*this, "linear_glu", out, up);
  if (x.rows() > 0) do_linear_glu(out, up, x, weight, bias, activation);
}

void Kernels::do_linear_glu(TensorView out, TensorView up, ConstTensorView x, const PackedWeight& weight,
                            std::optional<ConstTensorView> bias, Activation activation) const {
  do_linear(up, x, weight, bias);
  do_glu(out, up, activation);
}

void Kernels::norm(TensorView out, ConstTensorView x, ConstTensorView weight,
                   const NormOptions& options) const {
  checks::norm(*this, out, x, weight, options);
  if (x.rows() > 0) do_norm(out, x, weight, options);
}

void Kernels::add_norm(TensorView out, TensorView residual, ConstTensorView x, ConstTensorView weight,
                       const NormOptions& options) const {
  checks::add_norm(*this, out, residual, x, weight, options);
  if (x.rows() > 0) do_add_norm(out, residual, x, weight, options);
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

void Kernels::rope_kv_write(TensorView x, ConstTensorView table, RopeOptions options,
                            const KvCacheView& cache, int64_t layer, ConstTensorView v,
                            ConstTensorView slots) const {
  checks::rope(*this, x, table, options);
  checks::kv_write(*this, cache, layer, last_heads(x, cache), v, slots);
  if (x.rows() > 0) do_rope_kv_write(x, table, options, cache, layer, v, slots);
}

void Kernels::do_rope_kv_write(TensorView x, ConstTensorView table, RopeOptions options,
                               const KvCacheView& cache, int64_t layer, ConstTensorView v,
                               ConstTensorView slots) const {
  if (table.cols() > 0) do_rope(x, table, options);
  do_kv_write(cache, layer, last_heads(x, cache), v, slots);
}

void Kernels::attention(TensorView out, ConstTensorView q, const KvCacheView& cache,
                        const AttentionBatch& batch, const AttentionOptions& options) const {
  checks::attention(*this, out, q, cache, batch, options);
  if (q.rows() > 0) do_attention(out, q, cache, batch, options);
}

void Kernels::glu(TensorView out, ConstTensorView x, Activation activation) const {
  checks::glu(*this, "glu", out, x);
  if (x.rows() > 0) do_glu(out, x, activation);
}

void Kernels::clamped_glu(TensorView out, ConstTensorView x, float limit) const {
  checks::glu(*this, "clamped_glu", out, x);
  checks::limit("clamped_glu", "limit", limit);
  if (x.rows() > 0) do_clamped_glu(out, x, limit);
}

void Kernels::activate(TensorView out, ConstTensorView x, Activation activation) const {
  checks::same_shape(*this, "activate", out, x);
  if (x.rows() > 0) do_activate(out, x, activation);
}

void Kernels::add(TensorView out, ConstTensorView a, ConstTensorView b) const {
  checks::add(*this, out, a, b);
  if (out.rows() > 0) do_add(out, a, b);
}

void Kernels::scale(TensorView x, float factor) const {
  checks::in_place(*this, "scale", x);
  if (x.rows() > 0) do_scale(x, factor);
}

void Kernels::scale_rows(TensorView x, ConstTensorView factors) const {
  checks::scale_rows(*this, x, factors);
  if (x.rows() > 0) do_scale_rows(x, factors);
}

void Kernels::gate_rows(TensorView x, ConstTensorView gate) const {
  checks::gate_rows(*this, x, gate);
  if (x.rows() > 0) do_gate_rows(x, gate);
}

void Kernels::clamp(TensorView x, float limit) const {
  checks::in_place(*this, "clamp", x);
  checks::limit("clamp", "limit", limit);
  if (x.rows() > 0) do_clamp(x, limit);
}

void Kernels::soft_cap(TensorView x, float cap) const {
  checks::in_place(*this, "soft_cap", x);
  checks::limit("soft_cap", "cap", cap);
  if (x.rows() > 0) do_soft_cap(x, cap);
}

void Kernels::route(TensorView ids, TensorView weights, ConstTensorView logits,
                    std::optional<ConstTensorView> correction, const RouteOptions& options) const {
  checks::route(*this, ids, weights, logits, correction, options);
  if (logits.rows() > 0) do_route(ids, weights, logits, correction, options);
}

void Kernels::sort_by_expert(TensorView expert_start, TensorView row_tokens, TensorView pair_rows,
                             ConstTensorView ids) const {
  checks::sort_by_expert(expert_start, row_tokens, pair_rows, ids);
  do_sort_by_expert(expert_start, row_tokens, pair_rows, ids);
}

void Kernels::expert_linear(TensorView out, ConstTensorView x, std::span<const PackedWeight* const> experts,
                            ConstTensorView expert_start, std::optional<ConstTensorView> bias) const {
  checks::expert_linear(*this, out, x, experts, expert_start, bias);
  if (x.rows() > 0) do_expert_linear(out, x, experts, expert_start, bias);
}

void Kernels::combine_experts(TensorView out, ConstTensorView x, ConstTensorView weights,
                              ConstTensorView pair_rows) const {
  checks::combine_experts(*this, out, x, weights, pair_rows);
  if (out.rows() > 0) do_combine_experts(out, x, weights, pair_rows);
}

void Kernels::copy(TensorView out, ConstTensorView x) const {
  checks::copy(*this, out, x);
  if (x.rows() > 0) do_copy(out, x);
}

void Kernels::gather_rows(TensorView out, ConstTensorView x, ConstTensorView rows) const {
  checks::gather_rows(*this, out, x, rows);
  if (out.rows() > 0) do_gather_rows(out, x, rows);
}

}  // namespace lmdeploy
