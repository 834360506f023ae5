// Reference of Kernels::rope_table and rope.
#include <cmath>

#include "lmdeploy/kernels/checks.h"
#include "lmdeploy/kernels/ref/ref_kernels.h"

namespace lmdeploy {

void RefKernels::do_rope_table(TensorView table, ConstTensorView positions, ConstTensorView inv_freq,
                               ConstTensorView scale, ConstTensorView table_idx) const {
  const int64_t half = inv_freq.cols();
  checks::index_values("rope_table", "table_idx", table_idx, inv_freq.dim(0));
  for_rows(table.rows(), [&](int64_t t) {
    const auto s = static_cast<int64_t>(table_idx.at(t));
    for (int64_t j = 0; j < half; ++j) {
      const double angle = positions.at(t) * inv_freq.at(s, j);
      table.set(t, j, std::cos(angle) * scale.at(s));
      table.set(t, half + j, std::sin(angle) * scale.at(s));
    }
  });
}

void RefKernels::do_rope(TensorView x, ConstTensorView table, RopeOptions options) const {
  const int64_t half = table.cols() / 2;
  for_rows(x.rows(), [&](int64_t t) {
    for (int64_t head = 0; head < x.cols(); head += options.head_dim) {
      for (int64_t j = 0; j < half; ++j) {
        const int64_t at_a = head + options.first + (options.interleaved ? 2 * j : j);
        const int64_t at_b = head + options.first + (options.interleaved ? 2 * j + 1 : half + j);
        const double a = x.at(t, at_a);
        const double b = x.at(t, at_b);
        const double cos = table.at(t, j);
        const double sin = table.at(t, half + j);
        x.set(t, at_a, a * cos - b * sin);
        x.set(t, at_b, b * cos + a * sin);
      }
    }
  });
}

}  // namespace lmdeploy
