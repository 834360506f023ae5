// Reference of Kernels::gather_rows.
#include "lmdeploy/kernels/checks.h"
#include "lmdeploy/kernels/ref/ref_kernels.h"

namespace lmdeploy {

void RefKernels::do_gather_rows(TensorView out, ConstTensorView x, ConstTensorView rows) const {
  checks::index_values("gather_rows", "rows", rows, x.rows());
  for_rows(out.rows(), [&](int64_t r) {
    for (int64_t i = 0; i < out.cols(); ++i) out.set(r, i, x.at(static_cast<int64_t>(rows.at(r)), i));
  });
}

}  // namespace lmdeploy
