// Multi-head latent attention (DeepSeek-AI 2024, section 2.1) in its absorbed form: queries go to the latent
// space, so that the cache holds one latent row of each token for all heads and is never expanded.
#include "lmdeploy/models/attention_block.h"

namespace lmdeploy {
namespace {

class LatentAttention final : public AttentionBlock {
 public:
  LatentAttention(const DecoderSpec& spec, const DecoderWeights& weights, const Kernels& kernels,
                  const KvGrouping& groups)
      : spec_(spec), latent_(spec.latent), weights_(weights), kernels_(kernels), groups_(groups) {}

  TensorView run(const DecoderStep& step, int64_t layer, ConstTensorView x, Workspace& space) const override {
    const DType dtype = kernels_.activation_dtype();
    const int64_t tokens = step.tokens, heads = spec_.num_heads;
    const KvGrouping::Place place = groups_.places[static_cast<size_t>(layer)];
    const TensorView out = space.take(dtype, tokens, output_size());
    const TensorView kv = space.take(dtype, tokens, row_size());
    compute_row(step, layer, x, kv);
    kernels_.kv_write(step.cache, place.layer, kv, kv, step.arrays.slots(place.group));

    const TensorView query = space.take(dtype, tokens, heads * row_size());
    compute_query(step, layer, x, query, space);
    const TensorView attended = space.take(dtype, tokens, heads * latent_.kv_rank);
    kernels_.attention(attended, query, step.cache, step.arrays.batch(place.group),
                       {.scale = spec_.attention_scale, .layer = place.layer, .num_heads = heads});
    for_heads(out, latent_.value_dim, 0, attended, latent_.kv_rank, weights_.matrices(Slot::kValueUp, layer));
    return out;
  }

  int64_t output_size() const override { return spec_.num_heads * latent_.value_dim; }
  int64_t space_bytes(int64_t tokens) const override {
    const DType dtype = kernels_.activation_dtype();
    const auto bytes = [&](int64_t cols) { return workspace_bytes(dtype, tokens, cols); };
    return bytes(output_size()) + bytes(row_size()) + bytes(spec_.num_heads * row_size()) +
           bytes(spec_.num_heads * latent_.kv_rank) + bytes(latent_.q_rank) +
           bytes(spec_.num_heads * query_size());
  }
  KvLayout kv_layout(DType dtype, int64_t block_len, int64_t num_layers) const override {
    return {dtype, num_layers, /*num_kv_heads=*/1, row_size(), block_len, latent_.kv_rank};
  }

 private:
  int64_t row_size() const { return latent_.kv_rank + latent_.rope_dim; }
  int64_t query_size() const { return latent_.nope_dim + latent_.rope_dim; }
  NormOptions norm_options() const { return {.eps = latent_.norm_eps}; }
  void turn(const DecoderStep& step, TensorView heads, int64_t head_dim) const {
    kernels_.rope(
        heads, step.rope,
        {.head_dim = head_dim, .interleaved = spec_.rope.interleaved, .first = head_dim - latent_.rope_dim});
  }

  // out head h, from its element `first` on, = weights[h] * the first elements of x's head h.
  void for_heads(TensorView out, int64_t out_dim, int64_t first, ConstTensorView x, int64_t x_dim,
                 std::span<const PackedWeight* const> weights) const {
    for (int64_t head = 0; head < spec_.num_heads; ++head) {
      const PackedWeight& weight = *weights[static_cast<size_t>(head)];
      kernels_.linear(out.slice_cols(head * out_dim + first, weight.rows()),
                      x.slice_cols(head * x_dim, weight.cols()), weight);
    }
  }

  // What the cache keeps of each token: latent | rotated key that all heads share.
  void compute_row(const DecoderStep& step, int64_t layer, ConstTensorView x, TensorView kv) const {
    kernels_.linear(kv, x, weights_.matrix(Slot::kKvDown, layer));
    const TensorView latent = kv.slice_cols(0, latent_.kv_rank);
    kernels_.norm(latent, latent, *weights_.vector(Slot::kKvDownNorm, layer), norm_options());
    turn(step, kv, row_size());
  }

  // For each head: its nope part taken to the latent space | its rotated part.
  void compute_query(const DecoderStep& step, int64_t layer, ConstTensorView x, TensorView query,
                     Workspace& space) const {
    const DType dtype = kernels_.activation_dtype();
    const TensorView q = space.take(dtype, step.tokens, spec_.num_heads * query_size());
    if (latent_.q_rank > 0) {
      const TensorView down = space.take(dtype, step.tokens, latent_.q_rank);
      kernels_.linear(down, x, weights_.matrix(Slot::kQDown, layer));
      kernels_.norm(down, down, *weights_.vector(Slot::kQDownNorm, layer), norm_options());
      x = down;
    }
    kernels_.linear(q, x, weights_.matrix(Slot::kQUp, layer));
    turn(step, q, query_size());
    for_heads(query, row_size(), 0, q, query_size(), weights_.matrices(Slot::kKeyUp, layer));
    const auto by_head = [&](TensorView t, int64_t dim) {
      return TensorView(t.data(), dtype, {step.tokens * spec_.num_heads, dim});
    };
    kernels_.copy(by_head(query, row_size()).slice_cols(latent_.kv_rank, latent_.rope_dim),
                  by_head(q, query_size()).slice_cols(latent_.nope_dim, latent_.rope_dim));
  }

  const DecoderSpec& spec_;
  const LatentSpec& latent_;
  const DecoderWeights& weights_;
  const Kernels& kernels_;
  const KvGrouping& groups_;
};

}  // namespace

std::unique_ptr<AttentionBlock> make_latent_attention(const DecoderSpec& spec, const DecoderWeights& weights,
                                                      const Kernels& kernels, const KvGrouping& groups) {
  return std::make_unique<LatentAttention>(spec, weights, kernels, groups);
}

}  // namespace lmdeploy
