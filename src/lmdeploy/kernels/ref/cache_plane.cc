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
    : layout_(cache.layout),
      is_key_(kv == 0 || layout_.latent_dim > 0),
      parts_(is_key_ ? layout_.key_parts() : 1),
      data_(cache.data + block * layout_.block_bytes() + layer * layout_.layer_bytes()) {
  data_ += is_key_ ? head * layout_.key_plane_bytes()
                   : layout_.num_kv_heads * layout_.key_plane_bytes() + head * layout_.value_plane_bytes();
}

TensorView CachePlane::elements() const {
  return {data_, layout_.dtype, {layout_.block_len, layout_.head_dim}};
}
TensorView CachePlane::codes() const { return {data_, DType::kU8, {layout_.block_len, layout_.row_bytes()}}; }
TensorView CachePlane::params() const {
  return {data_ + layout_.codes_bytes(), DType::kF16, {layout_.block_len, 2 * parts_}};
}

double CachePlane::at(int64_t row, int64_t d) const {
  if (!layout_.quantized()) return elements().at(row, d);
  const int64_t row_bytes = layout_.row_bytes();
  const bool high = d >= row_bytes;  // of u4
  const auto byte = static_cast<int>(codes().at(row, high ? d - row_bytes : d));
  const int code = layout_.dtype == DType::kU8 ? byte : high ? byte >> 4 : byte & 15;
  const int64_t part = high ? parts_ - 1 : 0;
  return code * params().at(row, 2 * part) + params().at(row, 2 * part + 1);
}

void CachePlane::set_row(int64_t row, ConstTensorView x, int64_t t, int64_t first_col) const {
  if (!layout_.quantized()) {
    for (int64_t d = 0; d < layout_.head_dim; ++d) elements().set(row, d, x.at(t, first_col + d));
    return;
  }
  std::vector<float> values(static_cast<size_t>(layout_.head_dim));
  for (size_t d = 0; d < values.size(); ++d)
    values[d] = static_cast<float>(x.at(t, first_col + static_cast<int64_t>(d)));
  if (is_key_) turn_key<float>(values, layout_.turned_run());
  for (int64_t i = 0; i < layout_.row_bytes(); ++i) codes().set(row, i, 0);
  const std::span<const float> all = values;
  const size_t first = parts_ == 1 ? all.size() : static_cast<size_t>(layout_.row_bytes());
  quantize_part(row, 0, all.first(first));
  if (parts_ > 1) quantize_part(row, 1, all.subspan(first));
}

void CachePlane::quantize_part(int64_t row, int64_t part, std::span<const float> x) const {
  const auto most_code = static_cast<float>(layout_.max_code());
  const bool finite = std::ranges::all_of(x, [](float value) { return std::isfinite(value); });
  const float least = x.empty() ? 0 : *std::ranges::min_element(x);
  const float most = x.empty() ? 0 : *std::ranges::max_element(x);
  const float min = to_float(to_f16_in_range(finite ? least + 0.0f : NAN));
  const float scale = to_float(to_f16_in_range(finite ? std::max(0.0f, most - min) / most_code : NAN));
  const float inverse = scale > 0 ? 1 / scale : 0;
  params().set(row, 2 * part, scale);
  params().set(row, 2 * part + 1, min);
  for (size_t i = 0; i < x.size() && finite; ++i) {
    const auto code = std::lrint(std::clamp((x[i] - min) * inverse, 0.0f, most_code));
    const int64_t d = static_cast<int64_t>(i) + part * layout_.row_bytes();
    const bool high = d >= layout_.row_bytes();
    const int64_t byte = high ? d - layout_.row_bytes() : d;
    codes().set(row, byte, codes().at(row, byte) + static_cast<double>(high ? code * 16 : code));
  }
}

}  // namespace lmdeploy
