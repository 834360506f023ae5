// How rows of K and V lie in the cache: KvLayout and Kernels::kv_write, read and written element by element.
#include <algorithm>
#include <cmath>
#include <vector>

#include "lmdeploy/core/half.h"
#include "lmdeploy/kernels/ref/ref_kernels.h"

namespace lmdeploy {
namespace {

F16 to_f16_in_range(float value) {
  constexpr float kMost = 65504;
  return to_f16(std::isnan(value) ? value : std::clamp(value, -kMost, kMost));
}

}  // namespace

CachePlane::CachePlane(const KvCacheView& cache, int64_t block, int64_t layer, int kv, int64_t head)
    : layout_(cache.layout) {
  const int64_t plane = (layout_.latent_dim > 0 ? layer : layer * 2 + kv) * layout_.num_kv_heads + head;
  data_ = cache.data + block * layout_.block_bytes() + plane * layout_.plane_bytes();
}

TensorView CachePlane::elements() const {
  return {data_, layout_.dtype, {layout_.block_len, layout_.head_dim}};
}
TensorView CachePlane::codes() const { return {data_, DType::kU8, {layout_.block_len, layout_.row_bytes()}}; }
TensorView CachePlane::params() const {
  return {data_ + layout_.codes_bytes(), DType::kF16, {layout_.block_len, 2}};
}

double CachePlane::at(int64_t row, int64_t d) const {
  if (!layout_.quantized()) return elements().at(row, d);
  const bool packed = layout_.dtype == DType::kU4;
  const bool high = packed && d >= layout_.row_bytes();
  const auto byte = static_cast<int>(codes().at(row, high ? d - layout_.row_bytes() : d));
  const int code = !packed ? byte : high ? byte >> 4 : byte & 15;
  return code * params().at(row, 0) + params().at(row, 1);
}

void CachePlane::set_row(int64_t row, ConstTensorView x, int64_t t, int64_t first_col) const {
  if (!layout_.quantized()) {
    for (int64_t d = 0; d < layout_.head_dim; ++d) elements().set(row, d, x.at(t, first_col + d));
    return;
  }
  std::vector<float> values(static_cast<size_t>(layout_.head_dim));
  for (size_t d = 0; d < values.size(); ++d)
    values[d] = static_cast<float>(x.at(t, first_col + static_cast<int64_t>(d)));
  quantize_row(row, values);
}

void CachePlane::quantize_row(int64_t row, std::span<const float> x) const {
  const auto most_code = static_cast<float>(layout_.max_code());
  const bool finite = std::ranges::all_of(x, [](float value) { return std::isfinite(value); });
  const auto [least, most] = std::ranges::minmax(x);
  const float min = to_float(to_f16_in_range(finite ? least + 0.0f : NAN));
  const float scale = to_float(to_f16_in_range(finite ? std::max(0.0f, most - min) / most_code : NAN));
  const float inverse = scale > 0 ? 1 / scale : 0;
  params().set(row, 0, scale);
  params().set(row, 1, min);
  for (int64_t i = 0; i < layout_.row_bytes(); ++i) codes().set(row, i, 0);
  for (size_t d = 0; d < x.size() && finite; ++d) {
    const auto code = std::lrint(std::clamp((x[d] - min) * inverse, 0.0f, most_code));
    const auto i = static_cast<int64_t>(d);
    const bool high = layout_.dtype == DType::kU4 && i >= layout_.row_bytes();
    const int64_t byte = high ? i - layout_.row_bytes() : i;
    codes().set(row, byte, codes().at(row, byte) + static_cast<double>(high ? code * 16 : code));
  }
}

}  // namespace lmdeploy
