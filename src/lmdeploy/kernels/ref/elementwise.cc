// Reference of the ops that work element by element: activations, sums, factors, limits.
#include <algorithm>
#include <cmath>

#include "lmdeploy/kernels/ref/ref_kernels.h"

namespace lmdeploy {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double activated(double x, Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return x * sigmoid(x);
    case Activation::kGelu:
      return x / 2 * std::erfc(-x / std::sqrt(2.0));  // 1 + erf, without the cancellation
    case Activation::kGeluTanh:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::kQuickGelu:
      return x * sigmoid(1.702 * x);
    case Activation::kRelu:
      return std::max(x, 0.0);
  }
  return x;
}

}  // namespace

void RefKernels::for_elements(TensorView out, FunctionRef<double(int64_t row, int64_t col)> value) const {
  for_rows(out.rows(), [&](int64_t t) {
    for (int64_t i = 0; i < out.cols(); ++i) out.set(t, i, value(t, i));
  });
}

void RefKernels::do_glu(TensorView out, ConstTensorView x, Activation activation) const {
  for_elements(
      out, [&](int64_t t, int64_t i) { return activated(x.at(t, i), activation) * x.at(t, out.cols() + i); });
}

void RefKernels::do_clamped_glu(TensorView out, ConstTensorView x, float limit) const {
  const double most = limit;
  for_elements(out, [&](int64_t t, int64_t i) {
    const double gate = std::min(x.at(t, i), most);
    const double up = std::clamp(x.at(t, out.cols() + i), -most, most);
    return (up + 1) * gate * sigmoid(1.702 * gate);
  });
}

void RefKernels::do_activate(TensorView out, ConstTensorView x, Activation activation) const {
  for_elements(out, [&](int64_t t, int64_t i) { return activated(x.at(t, i), activation); });
}

void RefKernels::do_add(TensorView out, ConstTensorView a, ConstTensorView b) const {
  for_elements(out, [&](int64_t t, int64_t i) { return a.at(t, i) + b.at(t, i); });
}

void RefKernels::do_copy(TensorView out, ConstTensorView x) const {
  for_elements(out, [&](int64_t t, int64_t i) { return x.at(t, i); });
}

void RefKernels::do_scale(TensorView x, float factor) const {
  for_elements(x, [&](int64_t t, int64_t i) { return x.at(t, i) * factor; });
}

void RefKernels::do_scale_rows(TensorView x, ConstTensorView factors) const {
  for_elements(x, [&](int64_t t, int64_t i) { return x.at(t, i) * factors.at(t); });
}

void RefKernels::do_gate_rows(TensorView x, ConstTensorView gate) const {
  for_elements(x, [&](int64_t t, int64_t i) { return x.at(t, i) * sigmoid(gate.at(t, 0)); });
}

void RefKernels::do_clamp(TensorView x, float limit) const {
  for_elements(x, [&](int64_t t, int64_t i) {
    return std::clamp(x.at(t, i), -static_cast<double>(limit), static_cast<double>(limit));
  });
}

void RefKernels::do_soft_cap(TensorView x, float cap) const {
  for_elements(x, [&](int64_t t, int64_t i) { return cap * std::tanh(x.at(t, i) / cap); });
}

}  // namespace lmdeploy
