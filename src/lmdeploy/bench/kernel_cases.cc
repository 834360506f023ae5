#include "lmdeploy/bench/kernel_cases.h"

#include <algorithm>

#include "lmdeploy/bench/random_tensor.h"
#include "lmdeploy/core/error.h"

namespace lmdeploy {

const PackedCopies& KernelBench::cold_weights(DType dtype, bool rounded_activations, int64_t rows,
                                              int64_t cols, int64_t least) {
  const std::string wanted = cat(dtype, rounded_activations, rows, "x", cols, "x", least);
  if (kept_ == wanted) return copies_;
  copies_.clear();
  const Tensor weight = random_tensor(dtype, {rows, cols}, /*deviation=*/0.3, /*seed=*/1);
  const ConstTensorView parts[] = {weight};
  const int64_t count = std::max(least, cold_bytes_ / static_cast<int64_t>(weight.bytes()));
  for (int64_t i = 0; i < count; ++i) copies_.push_back(kernels(rounded_activations).pack_weight(parts));
  kept_ = wanted;
  return copies_;
}

Tensor filled_tensor(const Shape& shape, float value) {
  Tensor tensor(DType::kF32, shape);
  for (float& element : tensor.span<float>()) element = value;
  return tensor;
}

KernelCases kernel_cases() {
  KernelCases cases;
  add_linear_cases(cases);
  add_attention_cases(cases);
  add_row_cases(cases);
  add_expert_cases(cases);
  add_sampler_cases(cases);
  return cases;
}

}  // namespace lmdeploy
