// The decoder's forward pass over one ragged step.
#include "lmdeploy/models/decoder.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/models/rope.h"
#include "lmdeploy/models/step_arrays.h"

namespace lmdeploy {
namespace {

class Decoder final : public Model {
 public:
  Decoder(const DecoderSpec& spec, DecoderWeights weights, const Kernels& kernels,
          const LoadOptions& options);
  const DecoderSpec& spec() const override { return spec_; }
  KvLayout kv_layout(DType dtype, int64_t block_len) const override {
    return {dtype, spec_.num_layers, spec_.num_kv_heads, spec_.head_dim, block_len};
  }
  std::span<const KvGroup> kv_groups() const override { return kv_groups_; }
  ConstTensorView forward(const StepInput& input, const KvCacheView& cache) override;
  size_t weight_bytes() const override { return weights_.bytes(); }

 private:
  struct Step {
    int64_t tokens = 0;
    KvCacheView cache;
    AttentionBatch batch;
    ConstTensorView logit_rows;  // [n] i32
  };

  void prepare(const StepInput& input, const KvCacheView& cache);
  void attend(const Step& step, int64_t layer);
  void finish_block(ConstTensorView attended, int64_t layer);
  ConstTensorView keep_logit_rows(const Step& step);
  ConstTensorView compute_logits(int64_t rows);
  void grow_logits(int64_t rows);

  bool has_rope() const { return spec_.rope.kind != RopeSpec::Kind::kNone; }
  NormOptions norm_options() const { return {spec_.norm_eps, spec_.norm_offset}; }
  ConstTensorView norm_weight(Slot slot, int64_t layer = DecoderWeights::kNoLayer) const {
    return *weights_.vector(slot, layer);
  }
  Tensor buffer(int64_t cols) const {
    return Tensor(kernels_.activation_dtype(), {limits_.tokens, cols}, kernels_.allocator());
  }
  /// The first rows * cols elements of a buffer.
  static TensorView part(const Tensor& buffer, int64_t rows, int64_t cols) {
    return {buffer.view().data(), buffer.dtype(), {rows, cols}};
  }
  TensorView hidden(const Tensor& buffer, int64_t rows) const {
    return part(buffer, rows, spec_.hidden_size);
  }

  const DecoderSpec spec_;
  const DecoderWeights weights_;
  const Kernels& kernels_;
  const StepLimits limits_;
  const std::vector<KvGroup> kv_groups_ = {KvGroup{}};

  std::optional<RopeTableCache> rope_tables_;
  StepArrays arrays_;
  // Work buffers of limits_.tokens rows; each step uses the front. Untouched pages cost nothing.
  Tensor residual_;  // [tokens, hidden]: the stream that blocks add to
  Tensor normed_;    // [tokens, hidden]: what a block reads
  Tensor branch_;    // [tokens, hidden]: what a block adds
  Tensor wide_;      // [tokens, q + 2 kv] or [tokens, 2 inner]
  Tensor narrow_;    // [tokens, q] attention output, or [tokens, inner] activations
  Tensor cos_sin_;   // [tokens, rotary_dim]
  Tensor logits_;    // [rows, vocab], grows up to limits_.logit_rows
};

Decoder::Decoder(const DecoderSpec& spec, DecoderWeights weights, const Kernels& kernels,
                 const LoadOptions& options)
    : spec_(spec),
      weights_(std::move(weights)),
      kernels_(kernels),
      limits_{options.max_step_tokens, options.max_logit_rows},
      arrays_(options.max_step_tokens, kv_groups_.size(), kernels.allocator()),
      residual_(buffer(spec.hidden_size)),
      normed_(buffer(spec.hidden_size)),
      branch_(buffer(spec.hidden_size)),
      wide_(buffer(std::max(spec.q_size() + 2 * spec.kv_size(), 2 * spec.intermediate_size))),
      narrow_(buffer(std::max(spec.q_size(), spec.intermediate_size))),
      cos_sin_(buffer(std::max<int64_t>(1, spec.rope.rotary_dim))) {
  if (has_rope()) rope_tables_.emplace(spec.rope, kernels.allocator());
}

// Positions, cache slots and the cos/sin rows that all layers share.
void Decoder::prepare(const StepInput& input, const KvCacheView& cache) {
  check_step(input, cache, kv_layout(cache.layout.dtype, cache.layout.block_len), kv_groups_.size(), limits_);
  arrays_.fill(input, cache.layout.block_len);
  if (!has_rope()) return;
  const ConstTensorView rope_rows = arrays_.rope_rows(input, *rope_tables_);
  const auto tokens = static_cast<int64_t>(input.token_ids.size());
  kernels_.rope_table(part(cos_sin_, tokens, spec_.rope.rotary_dim), arrays_.positions(),
                      rope_tables_->inv_freq(), rope_tables_->scale(), rope_rows);
}

ConstTensorView Decoder::forward(const StepInput& input, const KvCacheView& cache) {
  Step step;
  step.tokens = static_cast<int64_t>(input.token_ids.size());
  step.cache = cache;
  step.logit_rows = view_of(input.logit_rows);
  const auto num_logit_rows = static_cast<int64_t>(input.logit_rows.size());
  prepare(input, cache);
  step.batch = arrays_.batch(input, 0);

  const int64_t tokens = step.tokens, last = spec_.num_layers - 1;
  kernels_.embedding(hidden(residual_, tokens), view_of(input.token_ids), weights_.matrix(Slot::kEmbed));
  kernels_.norm(hidden(normed_, tokens), hidden(residual_, tokens), norm_weight(Slot::kAttentionNorm, 0),
                norm_options());
  for (int64_t layer = 0; layer < last; ++layer) {
    attend(step, layer);
    finish_block(part(narrow_, tokens, spec_.q_size()), layer);
    kernels_.add_norm(hidden(normed_, tokens), hidden(residual_, tokens), hidden(branch_, tokens),
                      norm_weight(Slot::kAttentionNorm, layer + 1), norm_options());
  }
  attend(step, last);
  if (num_logit_rows == 0) return {nullptr, kernels_.activation_dtype(), {0, spec_.vocab_size}};
  finish_block(keep_logit_rows(step), last);
  return compute_logits(num_logit_rows);
}

// normed_ -> narrow_ [tokens, q]; the keys and values of the step go into the cache.
void Decoder::attend(const Step& step, int64_t layer) {
  const int64_t q_size = spec_.q_size(), kv_size = spec_.kv_size();
  const TensorView qkv = part(wide_, step.tokens, q_size + 2 * kv_size);
  kernels_.linear(qkv, hidden(normed_, step.tokens), weights_.matrix(Slot::kQkv, layer),
                  weights_.vector(Slot::kQkvBias, layer));
  if (has_rope()) {  // q and k lie side by side: one call turns the heads of both
    kernels_.rope(qkv.slice_cols(0, q_size + kv_size), part(cos_sin_, step.tokens, spec_.rope.rotary_dim),
                  {.head_dim = spec_.head_dim, .interleaved = spec_.rope.interleaved});
  }
  kernels_.kv_write(step.cache, layer, qkv.slice_cols(q_size, kv_size),
                    qkv.slice_cols(q_size + kv_size, kv_size), arrays_.slots(0));
  const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(spec_.head_dim)));
  kernels_.attention(part(narrow_, step.tokens, q_size), qkv.slice_cols(0, q_size), step.cache, step.batch,
                     {.scale = scale, .layer = layer, .num_heads = spec_.num_heads});
}

// attended [rows, q] -> branch_: the attention's output projection, then the MLP.
void Decoder::finish_block(ConstTensorView attended, int64_t layer) {
  const int64_t rows = attended.dim(0);
  const TensorView branch = hidden(branch_, rows), normed = hidden(normed_, rows);
  kernels_.linear(branch, attended, weights_.matrix(Slot::kO, layer), weights_.vector(Slot::kOBias, layer));
  kernels_.add_norm(normed, hidden(residual_, rows), branch, norm_weight(Slot::kMlpNorm, layer),
                    norm_options());
  const TensorView gate_up = part(wide_, rows, 2 * spec_.intermediate_size);
  const TensorView activated = part(narrow_, rows, spec_.intermediate_size);
  kernels_.linear(gate_up, normed, weights_.matrix(Slot::kGateUp, layer),
                  weights_.vector(Slot::kGateUpBias, layer));
  kernels_.glu(activated, gate_up, Activation::kSilu);
  kernels_.linear(branch, activated, weights_.matrix(Slot::kDown, layer),
                  weights_.vector(Slot::kDownBias, layer));
}

// After the last attention no row reads another: only the rows whose logits are wanted go on. They move to
// buffers that are free at this point. Returns their attention output.
ConstTensorView Decoder::keep_logit_rows(const Step& step) {
  const int64_t rows = step.logit_rows.cols(), q_size = spec_.q_size();
  const TensorView attended = part(narrow_, step.tokens, q_size);
  if (rows == step.tokens) return attended;
  const TensorView kept = part(wide_, rows, q_size);
  kernels_.gather_rows(kept, attended, step.logit_rows);
  kernels_.gather_rows(hidden(branch_, rows), hidden(residual_, step.tokens), step.logit_rows);
  std::swap(residual_, branch_);
  return kept;
}

void Decoder::grow_logits(int64_t rows) {
  const int64_t have = logits_.empty() ? 0 : logits_.dim(0);
  if (rows <= have) return;
  const int64_t capacity = std::min(limits_.logit_rows, std::max({rows, 2 * have, int64_t{8}}));
  logits_ = Tensor();  // free before allocating: nobody reads the old rows
  logits_ = Tensor(kernels_.activation_dtype(), {capacity, spec_.vocab_size}, kernels_.allocator());
}

ConstTensorView Decoder::compute_logits(int64_t rows) {
  grow_logits(rows);
  const TensorView logits = part(logits_, rows, spec_.vocab_size);
  kernels_.add_norm(hidden(normed_, rows), hidden(residual_, rows), hidden(branch_, rows),
                    norm_weight(Slot::kFinalNorm), norm_options());
  kernels_.linear(logits, hidden(normed_, rows), weights_.matrix(Slot::kLmHead));
  return logits;
}

}  // namespace

std::unique_ptr<Model> make_decoder(const DecoderSpec& spec, DecoderWeights weights, const Kernels& kernels,
                                    const LoadOptions& options) {
  return std::make_unique<Decoder>(spec, std::move(weights), kernels, options);
}

}  // namespace lmdeploy
