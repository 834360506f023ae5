// Reference of Kernels::linear.
#include "lmdeploy/kernels/ref/ref_kernels.h"

namespace lmdeploy {

void RefKernels::do_linear(TensorView out, ConstTensorView x, const PackedWeight& weight,
                           std::optional<ConstTensorView> bias) const {
  const RefWeight& w = ref_weight("linear", weight);
  const int64_t tokens = x.rows();
  const int64_t cols = x.cols();
  std::vector<double> wide(static_cast<size_t>(tokens * cols));  // x as f64, read once
  for_rows(tokens, [&](int64_t t) {
    for (int64_t k = 0; k < cols; ++k) wide[static_cast<size_t>(t * cols + k)] = x.at(t, k);
  });
  for_rows(weight.rows(), [&](int64_t n) {
    std::vector<double> row(static_cast<size_t>(cols));
    w.read_row(n, row.data());
    for (int64_t t = 0; t < tokens; ++t) {
      const double* x_row = wide.data() + t * cols;
      double sum = 0;
      for (int64_t k = 0; k < cols; ++k) sum += x_row[k] * row[static_cast<size_t>(k)];
      out.set(t, n, sum + (bias ? bias->at(n) : 0));
    }
  });
}

}  // namespace lmdeploy
