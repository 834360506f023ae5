// Reference of Kernels::silu_mul.
#include <cmath>

#include "lmdeploy/kernels/ref/ref_kernels.h"

namespace lmdeploy {

void RefKernels::do_silu_mul(TensorView out, ConstTensorView x) const {
  const int64_t n = out.cols();
  for_rows(out.rows(), [&](int64_t t) {
    for (int64_t i = 0; i < n; ++i) {
      const double gate = x.at(t, i);
      out.set(t, i, gate / (1 + std::exp(-gate)) * x.at(t, n + i));
    }
  });
}

}  // namespace lmdeploy
