// The ops of CpuKernels that work element by element.
#include <cmath>

#include "lmdeploy/kernels/cpu/cpu_kernels.h"

namespace lmdeploy::cpu {
namespace {

constexpr int64_t kExpCost = 4;  // of an exponential, in the elements that for_rows counts

}  // namespace

void CpuKernels::do_glu(TensorView out, ConstTensorView x, Activation activation) const {
  const int64_t n = out.cols();
  for_rows(out.rows(), kExpCost * n, [&](int64_t t) {
    const auto* row = x.row<float>(t);
    ops_.glu(activation, out.row<float>(t), row, row + n, n);
  });
}

void CpuKernels::do_clamped_glu(TensorView out, ConstTensorView x, float limit) const {
  const int64_t n = out.cols();
  for_rows(out.rows(), kExpCost * n, [&](int64_t t) {
    const auto* row = x.row<float>(t);
    ops_.clamped_glu(out.row<float>(t), row, row + n, n, limit);
  });
}

void CpuKernels::do_activate(TensorView out, ConstTensorView x, Activation activation) const {
  for_rows(out.rows(), kExpCost * out.cols(),
           [&](int64_t t) { ops_.activate(activation, out.row<float>(t), x.row<float>(t), out.cols()); });
}

void CpuKernels::do_add(TensorView out, ConstTensorView a, ConstTensorView b) const {
  for_rows(out.rows(), out.cols(),
           [&](int64_t t) { ops_.add(out.row<float>(t), a.row<float>(t), b.row<float>(t), out.cols()); });
}

void CpuKernels::do_scale(TensorView x, float factor) const {
  for_rows(x.rows(), x.cols(), [&](int64_t t) { ops_.scale(x.row<float>(t), x.cols(), factor); });
}

void CpuKernels::do_scale_rows(TensorView x, ConstTensorView factors) const {
  for_rows(x.rows(), x.cols(),
           [&](int64_t t) { ops_.scale(x.row<float>(t), x.cols(), factors.row<float>(0)[t]); });
}

void CpuKernels::do_gate_rows(TensorView x, ConstTensorView gate) const {
  for_rows(x.rows(), x.cols(), [&](int64_t t) {
    ops_.scale(x.row<float>(t), x.cols(), 1 / (1 + std::exp(-gate.row<float>(t)[0])));
  });
}

void CpuKernels::do_clamp(TensorView x, float limit) const {
  for_rows(x.rows(), x.cols(), [&](int64_t t) { ops_.clamp(x.row<float>(t), x.cols(), limit); });
}

void CpuKernels::do_soft_cap(TensorView x, float cap) const {
  for_rows(x.rows(), kExpCost * x.cols(), [&](int64_t t) { ops_.soft_cap(x.row<float>(t), x.cols(), cap); });
}

}  // namespace lmdeploy::cpu
