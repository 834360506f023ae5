// Reference of Kernels::add.
#include "lmdeploy/kernels/ref/ref_kernels.h"

namespace lmdeploy {

void RefKernels::do_add(TensorView out, ConstTensorView a, ConstTensorView b) const {
  for_rows(out.rows(), [&](int64_t t) {
    for (int64_t i = 0; i < out.cols(); ++i) out.set(t, i, a.at(t, i) + b.at(t, i));
  });
}

}  // namespace lmdeploy
