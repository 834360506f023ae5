// The ops of CpuKernels that work element by element.
#include <algorithm>
#include <cmath>

#include "lmdeploy/kernels/cpu/cpu_kernels.h"

namespace lmdeploy::cpu {
namespace {

float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

float activated(float x, Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return x * sigmoid(x);
    case Activation::kGelu:
      return x / 2 * (1 + std::erf(x * 0.70710678f));
    case Activation::kGeluTanh:
      return x / 2 * (1 + std::tanh(0.79788456f * (x + 0.044715f * x * x * x)));
    case Activation::kQuickGelu:
      return x * sigmoid(1.702f * x);
    case Activation::kRelu:
      return std::max(x, 0.0f);
  }
  return x;
}

}  // namespace

void CpuKernels::do_glu(TensorView out, ConstTensorView x, Activation activation) const {
  const int64_t n = out.cols();
  for_rows(out.rows(), 4 * n, [&](int64_t t) {
    const auto* row = x.row<float>(t);
    if (activation == Activation::kSilu) return ops_.silu_mul(out.row<float>(t), row, row + n, n);
    for (int64_t i = 0; i < n; ++i) out.row<float>(t)[i] = activated(row[i], activation) * row[n + i];
  });
}

void CpuKernels::do_clamped_glu(TensorView out, ConstTensorView x, float limit) const {
  const int64_t n = out.cols();
  for_rows(out.rows(), 4 * n, [&](int64_t t) {
    const auto* row = x.row<float>(t);
    for (int64_t i = 0; i < n; ++i) {
      const float gate = std::min(row[i], limit);
      out.row<float>(t)[i] = (std::clamp(row[n + i], -limit, limit) + 1) * gate * sigmoid(1.702f * gate);
    }
  });
}

void CpuKernels::do_activate(TensorView out, ConstTensorView x, Activation activation) const {
  for_rows(out.rows(), 4 * out.cols(), [&](int64_t t) {
    for (int64_t i = 0; i < out.cols(); ++i) out.row<float>(t)[i] = activated(x.row<float>(t)[i], activation);
  });
}

void CpuKernels::do_add(TensorView out, ConstTensorView a, ConstTensorView b) const {
  for_rows(out.rows(), out.cols(),
           [&](int64_t t) { ops_.add(out.row<float>(t), a.row<float>(t), b.row<float>(t), out.cols()); });
}

void CpuKernels::do_scale(TensorView x, float factor) const {
  for_rows(x.rows(), x.cols(), [&](int64_t t) {
    for (int64_t i = 0; i < x.cols(); ++i) x.row<float>(t)[i] *= factor;
  });
}

void CpuKernels::do_scale_rows(TensorView x, ConstTensorView factors) const {
  for_rows(x.rows(), x.cols(), [&](int64_t t) {
    const float factor = factors.row<float>(0)[t];
    for (int64_t i = 0; i < x.cols(); ++i) x.row<float>(t)[i] *= factor;
  });
}

void CpuKernels::do_gate_rows(TensorView x, ConstTensorView gate) const {
  for_rows(x.rows(), x.cols(), [&](int64_t t) {
    const float factor = sigmoid(gate.row<float>(t)[0]);
    for (int64_t i = 0; i < x.cols(); ++i) x.row<float>(t)[i] *= factor;
  });
}

void CpuKernels::do_clamp(TensorView x, float limit) const {
  for_rows(x.rows(), x.cols(), [&](int64_t t) {
    for (int64_t i = 0; i < x.cols(); ++i) x.row<float>(t)[i] = std::clamp(x.row<float>(t)[i], -limit, limit);
  });
}

void CpuKernels::do_soft_cap(TensorView x, float cap) const {
  for_rows(x.rows(), 4 * x.cols(), [&](int64_t t) {
    for (int64_t i = 0; i < x.cols(); ++i) x.row<float>(t)[i] = cap * std::tanh(x.row<float>(t)[i] / cap);
  });
}

}  // namespace lmdeploy::cpu
