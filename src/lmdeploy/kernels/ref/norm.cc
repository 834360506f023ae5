// Reference of Kernels::norm and add_norm.
#include <cmath>

#include "lmdeploy/kernels/ref/ref_kernels.h"

namespace lmdeploy {

void RefKernels::do_norm(TensorView out, ConstTensorView x, ConstTensorView weight,
                         const NormOptions& options) const {
  const int64_t size = options.group > 0 ? options.group : x.cols();
  const auto count = static_cast<double>(size);
  for_rows(x.rows(), [&](int64_t t) {
    for (int64_t begin = 0; begin < x.cols(); begin += size) {
      double mean = 0;
      for (int64_t i = 0; i < size; ++i) mean += x.at(t, begin + i) / count;
      if (options.kind == NormKind::kRms) mean = 0;
      double sum_sq = 0;
      for (int64_t i = 0; i < size; ++i) sum_sq += std::pow(x.at(t, begin + i) - mean, 2);
      const double scale = 1 / std::sqrt(sum_sq / count + options.eps);
      for (int64_t i = 0; i < size; ++i) {
        const int64_t w = weight.cols() == size ? i : begin + i;
        out.set(t, begin + i,
                (x.at(t, begin + i) - mean) * scale * (weight.at(w) + options.offset) +
                    (options.bias ? options.bias->at(w) : 0));
      }
    }
  });
}

void RefKernels::do_add_norm(TensorView out, TensorView residual, ConstTensorView x, ConstTensorView weight,
                             const NormOptions& options) const {
  do_add(residual, residual, x);
  do_norm(out, residual, weight, options);
}

}  // namespace lmdeploy
