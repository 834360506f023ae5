// Up, activation, down.
#include "lmdeploy/models/mlp_block.h"

#include <algorithm>

namespace lmdeploy {
namespace {

/// Tokens that go through the experts at once: each takes top_k rows of several buffers.
constexpr int64_t kExpertTokens = 1024;

}  // namespace

void MlpBlock::run(int64_t layer, ConstTensorView x, TensorView out, Workspace& space) const {
  if (!spec_.layers[static_cast<size_t>(layer)].experts)
    return run_dense(layer, x, out, spec_.intermediate_size,
                     {Slot::kUp, Slot::kUpBias, Slot::kDown, Slot::kDownBias}, space);
  for (int64_t begin = 0; begin < x.rows(); begin += kExpertTokens) {
    const int64_t count = std::min(kExpertTokens, x.rows() - begin);
    space.reset();
    run_experts(layer, x.slice_rows(begin, count), out.slice_rows(begin, count), space);
  }
}

void MlpBlock::activate(TensorView out, TensorView up) const {
  if (spec_.clamped_glu > 0) return kernels_.clamped_glu(out, up, spec_.clamped_glu);
  if (spec_.gated) return kernels_.glu(out, up, spec_.activation);
  kernels_.activate(out, up, spec_.activation);
}

void MlpBlock::run_dense(int64_t layer, ConstTensorView x, TensorView out, int64_t inner,
                         const DenseSlots& slots, Workspace& space) const {
  const DType dtype = kernels_.activation_dtype();
  const TensorView up = space.take(dtype, x.rows(), up_size(inner));
  const TensorView activated = space.take(dtype, x.rows(), inner);
  const PackedWeight& weight = weights_.matrix(slots.up, layer);
  const auto bias = weights_.vector(slots.up_bias, layer);
  if (spec_.gated && spec_.clamped_glu == 0) {
    kernels_.linear_glu(activated, up, x, weight, bias, spec_.activation);
  } else {
    kernels_.linear(up, x, weight, bias);
    activate(activated, up);
  }
  kernels_.linear(out, activated, weights_.matrix(slots.down, layer),
                  weights_.vector(slots.down_bias, layer));
}

void MlpBlock::run_experts(int64_t layer, ConstTensorView x, TensorView out, Workspace& space) const {
  const ExpertSpec& e = spec_.experts;
  const DType dtype = kernels_.activation_dtype();
  const int64_t tokens = x.rows(), pairs = tokens * e.top_k;
  const auto bias = [&](Slot slot, int64_t rows) -> std::optional<ConstTensorView> {
    if (!e.bias) return std::nullopt;
    return ConstTensorView(weights_.vector(slot, layer)->data(), DType::kF32, {e.num_experts, rows});
  };
  const auto indices = [&](int64_t count) {
    return TensorView(space.take(DType::kI32, 1, count).data(), DType::kI32, {count});
  };
  const TensorView logits = space.take(dtype, tokens, e.num_experts);
  kernels_.linear(logits, x, weights_.matrix(Slot::kRouter, layer),
                  weights_.vector(Slot::kRouterBias, layer));
  const TensorView ids = space.take(DType::kI32, tokens, e.top_k);
  const TensorView weights = space.take(dtype, tokens, e.top_k);
  kernels_.route(ids, weights, logits, weights_.vector(Slot::kCorrection, layer), e.route);

  const TensorView expert_start = indices(e.num_experts + 1), row_tokens = indices(pairs);
  const TensorView pair_rows = space.take(DType::kI32, tokens, e.top_k);
  kernels_.sort_by_expert(expert_start, row_tokens, pair_rows, ids);
  const TensorView rows = space.take(dtype, pairs, spec_.hidden_size);
  const TensorView up = space.take(dtype, pairs, up_size(e.inner_size));
  const TensorView activated = space.take(dtype, pairs, e.inner_size);
  kernels_.gather_rows(rows, x, row_tokens);
  kernels_.expert_linear(up, rows, weights_.matrices(Slot::kExpertUp, layer), expert_start,
                         bias(Slot::kExpertUpBias, up_size(e.inner_size)));
  activate(activated, up);
  kernels_.expert_linear(rows, activated, weights_.matrices(Slot::kExpertDown, layer), expert_start,
                         bias(Slot::kExpertDownBias, spec_.hidden_size));
  kernels_.combine_experts(out, rows, weights, pair_rows);
  if (e.shared_inner_size > 0) add_shared_expert(layer, x, out, space);
}

void MlpBlock::add_shared_expert(int64_t layer, ConstTensorView x, TensorView out, Workspace& space) const {
  const DType dtype = kernels_.activation_dtype();
  const TensorView shared = space.take(dtype, x.rows(), spec_.hidden_size);
  run_dense(layer, x, shared, spec_.experts.shared_inner_size,
            {Slot::kSharedUp, Slot::kUpBias, Slot::kSharedDown, Slot::kDownBias}, space);
  if (spec_.experts.shared_gate) {
    const TensorView gate = space.take(dtype, x.rows(), 1);
    kernels_.linear(gate, x, weights_.matrix(Slot::kSharedGate, layer));
    kernels_.gate_rows(shared, gate);
  }
  kernels_.add(out, out, shared);
}

int64_t MlpBlock::dense_bytes(int64_t rows, int64_t inner) const {
  const DType dtype = kernels_.activation_dtype();
  return workspace_bytes(dtype, rows, up_size(inner)) + workspace_bytes(dtype, rows, inner);
}

int64_t MlpBlock::space_bytes(int64_t rows) const {
  const ExpertSpec& e = spec_.experts;
  const int64_t dense = dense_bytes(rows, spec_.intermediate_size);
  if (e.num_experts == 0) return dense;
  const DType dtype = kernels_.activation_dtype();
  const int64_t tokens = std::min(rows, kExpertTokens), pairs = tokens * e.top_k;
  const auto bytes = [](DType of, int64_t count, int64_t cols) { return workspace_bytes(of, count, cols); };
  const int64_t routing = bytes(dtype, tokens, e.num_experts) + 2 * bytes(DType::kI32, tokens, e.top_k) +
                          bytes(dtype, tokens, e.top_k) + bytes(DType::kI32, 1, e.num_experts + 1) +
                          bytes(DType::kI32, 1, pairs);
  const int64_t shared = bytes(dtype, tokens, spec_.hidden_size) + dense_bytes(tokens, e.shared_inner_size) +
                         bytes(dtype, tokens, 1);
  return std::max(
      dense, routing + bytes(dtype, pairs, spec_.hidden_size) + dense_bytes(pairs, e.inner_size) + shared);
}

}  // namespace lmdeploy
