// Reference of Kernels::rms_norm and add_rms_norm.
#include <cmath>

#include "lmdeploy/kernels/ref/ref_kernels.h"

namespace lmdeploy {

void RefKernels::do_rms_norm(TensorView out, ConstTensorView x, ConstTensorView weight,
                             NormOptions options) const {
  const int64_t hidden = x.cols();
  for_rows(x.rows(), [&](int64_t t) {
    double sum_sq = 0;
    for (int64_t i = 0; i < hidden; ++i) sum_sq += x.at(t, i) * x.at(t, i);
    const double scale = 1 / std::sqrt(sum_sq / static_cast<double>(hidden) + options.eps);
    for (int64_t i = 0; i < hidden; ++i) out.set(t, i, x.at(t, i) * scale * (weight.at(i) + options.offset));
  });
}

void RefKernels::do_add_rms_norm(TensorView out, TensorView residual, ConstTensorView x,
                                 ConstTensorView weight, NormOptions options) const {
  do_add(residual, residual, x);
  do_rms_norm(out, residual, weight, options);
}

}  // namespace lmdeploy
