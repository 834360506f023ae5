// The ops of CpuKernels that work row by row.
#include <cmath>
#include <cstring>

#include "lmdeploy/kernels/checks.h"
#include "lmdeploy/kernels/cpu/cpu_kernels.h"

namespace lmdeploy::cpu {

void CpuKernels::do_norm(TensorView out, ConstTensorView x, ConstTensorView weight,
                         const NormOptions& options) const {
  for_rows(x.rows(), x.cols(),
           [&](int64_t t) { norm_row(out.row<float>(t), x.row<float>(t), x.cols(), weight, options); });
}

void CpuKernels::do_add_norm(TensorView out, TensorView residual, ConstTensorView x, ConstTensorView weight,
                             const NormOptions& options) const {
  for_rows(x.rows(), x.cols(), [&](int64_t t) {
    float* sum = residual.row<float>(t);
    ops_.add(sum, sum, x.row<float>(t), x.cols());
    norm_row(out.row<float>(t), sum, x.cols(), weight, options);
  });
}

void CpuKernels::norm_row(float* out, const float* x, int64_t n, ConstTensorView weight,
                          const NormOptions& options) const {
  const int64_t size = options.group > 0 ? options.group : n;
  ops_.norm({.out = out,
             .x = x,
             .weight = weight.row<float>(0),
             .bias = options.bias ? options.bias->row<float>(0) : nullptr,
             .size = size,
             .runs = size == 0 ? 0 : n / size,
             .weight_step = weight.cols() == size ? 0 : size,
             .eps = options.eps,
             .offset = options.offset,
             .centred = options.kind == NormKind::kLayer});
}

void CpuKernels::do_rope_table(TensorView table, ConstTensorView positions, ConstTensorView inv_freq,
                               ConstTensorView scale, ConstTensorView table_idx) const {
  checks::index_values("rope_table", "table_idx", table_idx, inv_freq.dim(0));
  const int64_t half = inv_freq.cols();
  constexpr int64_t kSinCosCost = 16;  // of a sine and cosine, in the elements that for_rows counts
  for_rows(table.rows(), half * kSinCosCost, [&](int64_t t) {
    const int32_t s = table_idx.row<int32_t>(0)[t];
    const double position = positions.row<int32_t>(0)[t];
    const double factor = scale.row<double>(0)[s];
    float* row = table.row<float>(t);
    for (int64_t j = 0; j < half; ++j) {
      const double angle = position * inv_freq.row<double>(s)[j];
      row[j] = static_cast<float>(std::cos(angle) * factor);
      row[half + j] = static_cast<float>(std::sin(angle) * factor);
    }
  });
}

void CpuKernels::do_rope(TensorView x, ConstTensorView table, RopeOptions options) const {
  for_rows(x.rows(), x.cols(), [&](int64_t t) {
    ops_.rope(x.row<float>(t) + options.first, table.row<float>(t), x.cols() / options.head_dim,
              options.head_dim, table.cols() / 2, options.interleaved);
  });
}

void CpuKernels::do_kv_write(const KvCacheView& cache, int64_t layer, ConstTensorView k, ConstTensorView v,
                             ConstTensorView slots) const {
  const KvLayout& l = cache.layout;
  checks::index_values("kv_write", "slots", slots, cache.num_blocks * l.block_len);
  const CacheKind kind = cache_kind(l.dtype);
  for_worker_rows(k.rows(), 2 * k.cols(), [&](int worker, int64_t t) {
    const int64_t slot = slots.row<int64_t>(0)[t];
    const int64_t row = slot % l.block_len;
    std::byte* plane = cache.data + slot / l.block_len * l.block_bytes() + layer * l.layer_bytes();
    const auto write = [&](const float* head, int64_t parts) {
      std::byte* dst = plane + row * l.row_bytes();
      if (!l.quantized()) return ops_.store_row(kind, dst, head, l.head_dim);
      std::byte* params = plane + l.codes_bytes() + row * parts * KvLayout::kParamBytes;
      ops_.quantize_row(kind, dst, params, head, l.head_dim, parts);
    };
    float* turned = thread_scratch_[static_cast<size_t>(worker)].floats(l.head_dim);
    for (int64_t head = 0; head < l.num_kv_heads; ++head, plane += l.key_plane_bytes()) {
      const float* key = k.row<float>(t) + head * l.head_dim;
      if (l.turned_run() > 1) ops_.turn_row(turned, key, l.head_dim, l.turned_run());
      write(l.turned_run() > 1 ? turned : key, l.key_parts());
    }
    if (l.latent_dim > 0) return;
    for (int64_t head = 0; head < l.num_kv_heads; ++head, plane += l.value_plane_bytes())
      write(v.row<float>(t) + head * l.head_dim, 1);
  });
}

void CpuKernels::do_copy(TensorView out, ConstTensorView x) const {
  const auto bytes = static_cast<size_t>(row_bytes(x.dtype(), x.cols()));
  for_rows(out.rows(), out.cols(), [&](int64_t t) { std::memcpy(out.row_data(t), x.row_data(t), bytes); });
}

void CpuKernels::do_gather_rows(TensorView out, ConstTensorView x, ConstTensorView rows) const {
  checks::index_values("gather_rows", "rows", rows, x.rows());
  const auto bytes = static_cast<size_t>(row_bytes(x.dtype(), x.cols()));
  for_rows(out.rows(), out.cols(),
           [&](int64_t r) { std::memcpy(out.row_data(r), x.row_data(rows.row<int32_t>(0)[r]), bytes); });
}

}  // namespace lmdeploy::cpu
