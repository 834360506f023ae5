// Multi-head and grouped-query attention.
#include "lmdeploy/models/attention_block.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace lmdeploy {
namespace {

// Of a share of a model: its heads' among those of all; whatever there is for heads of zeros.
Tensor scaled_slopes(const DecoderSpec& spec) {
  Tensor slopes(DType::kF32, {spec.num_heads});
  const bool is_whole = spec.whole.num_heads == 0;
  const std::vector<float> all = alibi_slopes(is_whole ? spec.num_heads : spec.whole.num_heads);
  for (int64_t head = 0; head < spec.num_heads; ++head) {
    const auto from = std::min(static_cast<size_t>(spec.whole.first_head + head), all.size() - 1);
    slopes.span<float>()[static_cast<size_t>(head)] = spec.alibi_factor * all[from];
  }
  return slopes;
}

class GroupedQueryAttention final : public AttentionBlock {
 public:
  GroupedQueryAttention(const DecoderSpec& spec, const DecoderWeights& weights, const Kernels& kernels,
                        const KvGrouping& groups)
      : spec_(spec), weights_(weights), kernels_(kernels), groups_(groups) {
    if (spec.alibi != Alibi::kNone) alibi_slopes_ = kernels.to_device(scaled_slopes(spec));
  }

  TensorView run(const DecoderStep& step, int64_t layer, ConstTensorView x, Workspace& space) const override {
    const int64_t q_size = spec_.q_size(), kv_size = spec_.kv_size();
    const DType dtype = kernels_.activation_dtype();
    const TensorView out = space.take(dtype, step.tokens, q_size);
    const TensorView qkv = space.take(dtype, step.tokens, q_size + 2 * kv_size);
    kernels_.linear(qkv, x, weights_.matrix(Slot::kQkv, layer), weights_.vector(Slot::kQkvBias, layer));
    const TensorView q = qkv.slice_cols(0, q_size);
    norm(q, Slot::kQNorm, Slot::kQNormBias, layer);
    norm(qkv.slice_cols(q_size, kv_size), Slot::kKNorm, Slot::kKNormBias, layer);
    if (spec_.qkv_clip > 0) kernels_.clamp(qkv, spec_.qkv_clip);
    const KvGrouping::Place place = groups_.places[static_cast<size_t>(layer)];
    turn_and_write(step, layer, qkv.slice_cols(0, q_size + kv_size),
                   qkv.slice_cols(q_size + kv_size, kv_size));
    if (step.logn) kernels_.scale_rows(q, *step.logn);
    kernels_.attention(out, q, step.cache, step.arrays.batch(place.group), options(layer));
    return out;
  }

  int64_t output_size() const override { return spec_.q_size(); }
  int64_t space_bytes(int64_t tokens) const override {
    const DType dtype = kernels_.activation_dtype();
    return workspace_bytes(dtype, tokens, spec_.q_size()) +
           workspace_bytes(dtype, tokens, spec_.q_size() + 2 * spec_.kv_size());
  }
  KvLayout kv_layout(DType dtype, int64_t block_len, int64_t num_layers) const override {
    return {dtype, num_layers, spec_.num_kv_heads, spec_.head_dim, block_len};
  }

 private:
  const LayerSpec& layer_spec(int64_t layer) const { return spec_.layers[static_cast<size_t>(layer)]; }

  void norm(TensorView heads, Slot weight, Slot bias, int64_t layer) const {
    if (spec_.qk_norm == QkNorm::kNone) return;
    kernels_.norm(heads, heads, *weights_.vector(weight, layer),
                  {.eps = spec_.norm_eps,
                   .offset = spec_.norm_offset,
                   .kind = spec_.norm,
                   .group = spec_.qk_norm == QkNorm::kWholeRow ? 0 : spec_.head_dim,
                   .bias = weights_.vector(bias, layer)});
  }

  // q and k lie side by side: one call turns the heads of both.
  void turn_and_write(const DecoderStep& step, int64_t layer, TensorView heads, ConstTensorView v) const {
    const KvGrouping::Place place = groups_.places[static_cast<size_t>(layer)];
    const ConstTensorView slots = step.arrays.slots(place.group);
    if (!spec_.has_rope() || !layer_spec(layer).rope)
      return kernels_.kv_write(step.cache, place.layer, heads.slice_cols(spec_.q_size(), spec_.kv_size()), v,
                               slots);
    const bool local = layer_spec(layer).local_rope;
    const RopeSpec& rope = local ? spec_.local_rope : spec_.rope;
    kernels_.rope_kv_write(heads, local ? step.local_rope : step.rope,
                           {.head_dim = spec_.head_dim, .interleaved = rope.interleaved}, step.cache,
                           place.layer, v, slots);
  }

  AttentionOptions options(int64_t layer) const {
    AttentionOptions o = {.scale = spec_.attention_scale,
                          .layer = groups_.places[static_cast<size_t>(layer)].layer,
                          .num_heads = spec_.num_heads,
                          .window = layer_spec(layer).window,
                          .soft_cap = spec_.attention_soft_cap};
    if (spec_.sinks) o.sinks = weights_.vector(Slot::kSinks, layer);
    if (spec_.alibi != Alibi::kNone) o.alibi_slopes = alibi_slopes_;
    o.alibi_in_bf16 = spec_.alibi == Alibi::kInBf16;
    return o;
  }

  const DecoderSpec& spec_;
  const DecoderWeights& weights_;
  const Kernels& kernels_;
  const KvGrouping& groups_;
  Tensor alibi_slopes_;  // [num_heads]
};

}  // namespace

std::vector<float> alibi_slopes(int64_t num_heads) {
  int64_t power = 1;
  while (power * 2 <= num_heads) power *= 2;
  std::vector<float> slopes;
  for (int64_t head = 0; head < num_heads; ++head) {
    const double exponent =
        head < power ? -8.0 * static_cast<double>(head + 1) / static_cast<double>(power)
                     : -4.0 * static_cast<double>(2 * (head - power) + 1) / static_cast<double>(power);
    slopes.push_back(static_cast<float>(std::exp2(exponent)));
  }
  return slopes;
}

double logn_factor(int64_t position, int64_t trained_length) {
  if (position < trained_length) return 1;
  return std::log(static_cast<double>(position + 1)) / std::log(static_cast<double>(trained_length));
}

std::unique_ptr<AttentionBlock> make_attention(const DecoderSpec& spec, const DecoderWeights& weights,
                                               const Kernels& kernels, const KvGrouping& groups) {
  return std::make_unique<GroupedQueryAttention>(spec, weights, kernels, groups);
}

}  // namespace lmdeploy
