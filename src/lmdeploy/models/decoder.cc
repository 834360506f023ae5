// The decoder's forward pass over one ragged step.
#include "lmdeploy/models/decoder.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/models/attention_block.h"
#include "lmdeploy/models/mlp_block.h"
#include "lmdeploy/models/rope.h"
#include "lmdeploy/models/step_recordings.h"

namespace lmdeploy {
namespace {

class Decoder final : public Model {
 public:
  Decoder(const DecoderSpec& spec, DecoderWeights weights, const Kernels& kernels,
          const LoadOptions& options);
  const DecoderSpec& spec() const override { return spec_; }
  KvLayout kv_layout(DType dtype, int64_t block_len) const override {
    return attention_->kv_layout(dtype, block_len, groups_.layers_per_group);
  }
  std::span<const KvGroup> kv_groups() const override { return groups_.groups; }
  TensorView forward(const StepInput& input, const KvCacheView& cache) override;
  bool takes_drawn_tokens() const override { return kernels_.draws_tokens(); }
  ConstTensorView hidden_states() const override { return hidden(normed_, arrays_.logit_rows().cols()); }
  size_t weight_bytes() const override { return weights_.bytes(); }
  size_t buffer_bytes() const override {
    return residual_.bytes() + normed_.bytes() + branch_.bytes() + space_.bytes() + logits_.bytes() +
           whole_logits_.bytes();
  }
  StepWork step_work(const StepShape& shape, DType kv_dtype) const override {
    return lmdeploy::step_work(spec_, weights_, kv_layout(kv_dtype, /*block_len=*/1), shape);
  }

 private:
  /// Tables of one kind of rope, and a step's rows of them.
  struct Rope {
    RopeTableCache tables;
    Tensor cos_sin;          // [tokens, rotary_dim]
    Tensor inv_freq, scale;  // copies of the tables where ops do not read host memory
    ConstTensorView inv_freq_view = {}, scale_view = {};
    int64_t version = 0;  // of the tables in the views
  };

  Rope make_rope(const RopeSpec& rope) const;
  void update_tables(Rope& rope) const;
  ConstTensorView compute_rope(const Rope& rope, ConstTensorView rows) const;
  void prepare(const DecoderStep& step);
  StepRecordings::Key recording_key(const DecoderStep& step) const;
  void run(DecoderStep& step);
  void embed(const DecoderStep& step);
  void run_layer(const DecoderStep& step, int64_t layer);
  ConstTensorView keep_logit_rows(const DecoderStep& step, ConstTensorView attended);
  void finish_attention(int64_t layer, ConstTensorView attended);
  void run_mlp(int64_t layer, int64_t rows);
  void finish_branch(int64_t rows, Slot out_norm, int64_t layer);
  ConstTensorView head_input(ConstTensorView normed) const;
  void add_up(TensorView branch) const;
  void compute_logits(int64_t rows);
  void grow_logits(int64_t rows);
  /// Whether each rank has logits of some ids; scores are whole on all.
  bool has_some_logits() const { return ranks_ != nullptr && !spec_.gives_score; }
  const Tensor& all_logits() const { return whole_logits_.empty() ? logits_ : whole_logits_; }

  // What a block adds, or the stream where `part` is "".
  void observe_layer(int64_t layer, int64_t rows, const char* part) const {
    if (observer_) observe(cat("layers.", layer, part), hidden(*part == 0 ? residual_ : branch_, rows));
  }
  void observe(const std::string& name, ConstTensorView values) const {
    Tensor host;
    if (observer_) observer_(name, kernels_.to_host(values, host));
  }
  Tensor buffer(int64_t cols) const { return buffer(kernels_.activation_dtype(), cols); }
  Tensor buffer(DType dtype, int64_t cols) const {
    return Tensor(dtype, {limits_.tokens, cols}, kernels_.allocator());
  }
  /// The first rows of a buffer of hidden states.
  TensorView hidden(const Tensor& buffer, int64_t rows) const { return buffer.view().slice_rows(0, rows); }
  NormOptions norm_options(Slot bias, int64_t layer = DecoderWeights::kNoLayer) const {
    return {.eps = spec_.norm_eps,
            .offset = spec_.norm_offset,
            .kind = spec_.norm,
            .bias = weights_.vector(bias, layer)};
  }
  /// normed_ = norm of the stream, where the layer has that norm.
  void norm_stream(int64_t rows, Slot weight, Slot bias, int64_t layer);
  /// The same after branch_ has been added to the stream.
  void add_branch(int64_t rows, Slot weight, Slot bias, int64_t layer);
  /// What attention and MLP read.
  ConstTensorView block_input(int64_t rows) const {
    return hidden(spec_.input_norms ? normed_ : residual_, rows);
  }

  const DecoderSpec spec_;
  const DecoderWeights weights_;
  const Kernels& kernels_;
  const StepLimits limits_;
  const std::function<void(const std::string&, ConstTensorView)> observer_;
  Communicator* const ranks_;  // nullptr: the model is whole
  const KvGrouping groups_;
  const std::unique_ptr<const AttentionBlock> attention_;
  const MlpBlock mlp_;

  std::optional<Rope> rope_, local_rope_;
  StepArrays arrays_;
  // Buffers of limits_.tokens rows; each step uses the front. Untouched pages cost nothing.
  Tensor residual_;  // [tokens, hidden]: the stream that blocks add to
  Tensor normed_;    // [tokens, hidden]: what a block reads
  Tensor branch_;    // [tokens, hidden]: what a block adds
  Workspace space_;
  Tensor logits_;        // [rows, head_size], grows up to limits_.logit_rows
  Tensor whole_logits_;  // [rows, whole.head_size] on rank 0, where ranks have some of them
  StepRecordings recordings_;
};

std::unique_ptr<AttentionBlock> choose_attention(const DecoderSpec& spec, const DecoderWeights& weights,
                                                 const Kernels& kernels, const KvGrouping& groups) {
  return (spec.has_latent() ? make_latent_attention : make_attention)(spec, weights, kernels, groups);
}

// Attention's output stays while the rows whose logits are wanted are picked from it.
int64_t space_bytes(const AttentionBlock& attention, const MlpBlock& mlp, DType dtype, int64_t tokens) {
  return std::max(attention.space_bytes(tokens) + workspace_bytes(dtype, tokens, attention.output_size()),
                  mlp.space_bytes(tokens));
}

Decoder::Decoder(const DecoderSpec& spec, DecoderWeights weights, const Kernels& kernels,
                 const LoadOptions& options)
    : spec_(spec),
      weights_(std::move(weights)),
      kernels_(kernels),
      limits_{options.max_step_tokens, options.max_logit_rows},
      observer_(options.observer),
      ranks_(options.communicator),
      groups_(group_kv_layers(spec.layers)),
      attention_(choose_attention(spec_, weights_, kernels, groups_)),
      mlp_(spec_, weights_, kernels),
      arrays_(groups_.groups.size(), kernels),
      residual_(buffer(spec.hidden_size)),
      normed_(buffer(spec.hidden_size)),
      branch_(buffer(spec.hidden_size)),
      space_(space_bytes(*attention_, mlp_, kernels.activation_dtype(), options.max_step_tokens),
             kernels.allocator()),
      recordings_(kernels) {
  if (spec.has_rope()) rope_.emplace(make_rope(spec.rope));
  const auto is_local = [](const LayerSpec& layer) { return layer.local_rope; };
  if (std::ranges::any_of(spec.layers, is_local)) local_rope_.emplace(make_rope(spec.local_rope));
}

Decoder::Rope Decoder::make_rope(const RopeSpec& rope) const {
  return {.tables = RopeTableCache(rope),
          .cos_sin = buffer(kernels_.wide_dtype(), rope.rotary_dim),
          .inv_freq = {},
          .scale = {}};
}

void Decoder::update_tables(Rope& rope) const {
  if (rope.version == rope.tables.version()) return;
  rope.inv_freq_view = kernels_.to_device(rope.tables.inv_freq(), rope.inv_freq);
  rope.scale_view = kernels_.to_device(rope.tables.scale(), rope.scale);
  rope.version = rope.tables.version();
}

ConstTensorView Decoder::compute_rope(const Rope& rope, ConstTensorView rows) const {
  const TensorView out = hidden(rope.cos_sin, rows.cols());
  kernels_.rope_table(out, arrays_.positions(), rope.inv_freq_view, rope.scale_view, rows);
  return out;
}

// What the host knows of the step goes to the device.
void Decoder::prepare(const DecoderStep& step) {
  check_step(step.input, step.cache, kv_layout(step.cache.layout.dtype, step.cache.layout.block_len),
             groups_.groups.size(), limits_);
  arrays_.fill(step.input, step.cache.layout.block_len,
               {.rope = rope_ ? &rope_->tables : nullptr,
                .local_rope = local_rope_ ? &local_rope_->tables : nullptr,
                .logn_length = spec_.logn_length});
  if (rope_) update_tables(*rope_);
  if (local_rope_) update_tables(*local_rope_);
  grow_logits(static_cast<int64_t>(step.input.logit_rows.size()));
}

void Decoder::embed(const DecoderStep& step) {
  const TensorView stream = hidden(residual_, step.tokens);
  kernels_.embedding(stream, arrays_.token_ids(), weights_.matrix(Slot::kEmbed));
  if (spec_.embedding_scale != 1) kernels_.scale(stream, spec_.embedding_scale);
  if (!spec_.learned_positions) return;
  const TensorView positions = hidden(branch_, step.tokens);
  kernels_.embedding(positions, arrays_.positions(), weights_.matrix(Slot::kPositions));
  kernels_.add(stream, stream, positions);
}

// Of buffers that grow, where they are and how large: on some ranks of a sharded model one may have grown
// where it was, and all of them must agree on whether a step is new. The other buffers never move.
StepRecordings::Key Decoder::recording_key(const DecoderStep& step) const {
  StepRecordings::Key key = {step.tokens, arrays_.batch(0).block_table.cols(), arrays_.logit_rows().cols(),
                             step.cache.num_blocks, static_cast<int64_t>(step.input.kv_len.size())};
  const auto add = [&](ConstTensorView view) { key.push_back(reinterpret_cast<intptr_t>(view.data())); };
  const auto add_size = [&](const Tensor& buffer) { key.push_back(static_cast<int64_t>(buffer.bytes())); };
  add(arrays_.token_ids());
  key.push_back(arrays_.device_bytes());
  add(residual_.view());
  add(logits_.view()), add(whole_logits_.view());
  add_size(logits_);
  key.push_back(reinterpret_cast<intptr_t>(step.cache.data));
  for (const auto& rope : {&rope_, &local_rope_}) {
    if (!*rope) continue;
    add((*rope)->inv_freq_view), add((*rope)->scale_view);
    add_size((*rope)->inv_freq);
    key.push_back((*rope)->inv_freq_view.dim(0));
  }
  return key;
}

TensorView Decoder::forward(const StepInput& input, const KvCacheView& cache) {
  DecoderStep step = {.input = input,
                      .cache = cache,
                      .arrays = arrays_,
                      .tokens = static_cast<int64_t>(input.token_ids.size())};
  const auto num_rows = static_cast<int64_t>(input.logit_rows.size());
  prepare(step);
  // Each sequence gets one token, or the only one some guesses too, and all logits are wanted: such a step is
  // often followed by its like. Ops of the host are calls, nothing is won by recording them.
  constexpr int64_t kMostGuessed = 32;
  const size_t num_seqs = input.kv_len.size();
  const bool decodes = num_rows == step.tokens &&
                       (input.token_ids.size() == num_seqs || (num_seqs == 1 && step.tokens <= kMostGuessed));
  if (decodes && !observer_ && kernels_.has_own_memory())
    recordings_.run(recording_key(step), [&] { run(step); });
  else
    run(step);
  if (num_rows == 0) return {nullptr, kernels_.wide_dtype(), {0, spec_.head_size()}};
  return all_logits().view().slice_rows(0, num_rows);
}

void Decoder::run(DecoderStep& step) {
  const int64_t last = spec_.num_layers - 1, num_rows = arrays_.logit_rows().cols();
  if (rope_) step.rope = compute_rope(*rope_, arrays_.rope_rows());
  if (local_rope_) step.local_rope = compute_rope(*local_rope_, arrays_.local_rope_rows());
  if (spec_.logn_length > 0) step.logn = arrays_.logn();
  embed(step);
  observe("embedding", hidden(residual_, step.tokens));
  norm_stream(step.tokens, Slot::kAttentionNorm, Slot::kAttentionNormBias, 0);
  for (int64_t layer = 0; layer < last; ++layer) run_layer(step, layer);

  space_.reset();
  const TensorView attended = attention_->run(step, last, block_input(step.tokens), space_);
  if (num_rows == 0) return;
  finish_attention(last, keep_logit_rows(step, attended));
  run_mlp(last, num_rows);
  compute_logits(num_rows);
}

void Decoder::run_layer(const DecoderStep& step, int64_t layer) {
  space_.reset();
  finish_attention(layer, attention_->run(step, layer, block_input(step.tokens), space_));
  run_mlp(layer, step.tokens);
  add_branch(step.tokens, Slot::kAttentionNorm, Slot::kAttentionNormBias, layer + 1);
  observe_layer(layer, step.tokens, "");
}

// After the last attention no row reads another: only the rows whose logits are wanted go on. Returns their
// attention output; the stream and what a parallel MLP reads follow.
ConstTensorView Decoder::keep_logit_rows(const DecoderStep& step, ConstTensorView attended) {
  const ConstTensorView wanted = arrays_.logit_rows();
  const int64_t rows = wanted.cols();
  if (rows == step.tokens) return attended;
  const TensorView kept = space_.take(attended.dtype(), rows, attended.cols());
  kernels_.gather_rows(kept, attended, wanted);
  kernels_.gather_rows(hidden(branch_, rows), hidden(residual_, step.tokens), wanted);
  std::swap(residual_, branch_);
  if (spec_.parallel && spec_.one_norm)
    norm_stream(rows, Slot::kAttentionNorm, Slot::kAttentionNormBias, spec_.num_layers - 1);
  return kept;
}

// attended [rows, output_size] -> the stream, and the MLP's input.
void Decoder::finish_attention(int64_t layer, ConstTensorView attended) {
  const int64_t rows = attended.dim(0);
  const TensorView branch = hidden(branch_, rows), stream = hidden(residual_, rows);
  kernels_.linear(branch, attended, weights_.matrix(Slot::kO, layer), weights_.vector(Slot::kOBias, layer));
  add_up(branch);
  finish_branch(rows, Slot::kAttentionOutNorm, layer);
  observe_layer(layer, rows, ".attention");
  if (!spec_.parallel) return add_branch(rows, Slot::kMlpNorm, Slot::kMlpNormBias, layer);
  if (!spec_.one_norm) norm_stream(rows, Slot::kMlpNorm, Slot::kMlpNormBias, layer);
  kernels_.add(stream, stream, branch);
}

void Decoder::run_mlp(int64_t layer, int64_t rows) {
  space_.reset();
  mlp_.run(layer, block_input(rows), hidden(branch_, rows), space_);
  add_up(hidden(branch_, rows));
  finish_branch(rows, Slot::kMlpOutNorm, layer);
  observe_layer(layer, rows, ".mlp");
}

// What the ranks' shares of a block add.
void Decoder::add_up(TensorView branch) const {
  if (ranks_ != nullptr) ranks_->all_reduce_sum(branch);
}

// What the block adds, in its final size.
void Decoder::finish_branch(int64_t rows, Slot out_norm, int64_t layer) {
  const TensorView branch = hidden(branch_, rows);
  if (spec_.output_norms) {
    const NormOptions options = {.eps = spec_.norm_eps, .offset = spec_.norm_offset, .kind = spec_.norm};
    kernels_.norm(branch, branch, *weights_.vector(out_norm, layer), options);
  }
  if (spec_.residual_scale != 1) kernels_.scale(branch, spec_.residual_scale);
}

void Decoder::norm_stream(int64_t rows, Slot weight, Slot bias, int64_t layer) {
  if (!spec_.input_norms) return;
  kernels_.norm(hidden(normed_, rows), hidden(residual_, rows), *weights_.vector(weight, layer),
                norm_options(bias, layer));
}

void Decoder::add_branch(int64_t rows, Slot weight, Slot bias, int64_t layer) {
  const TensorView stream = hidden(residual_, rows), branch = hidden(branch_, rows);
  if (!spec_.input_norms) return kernels_.add(stream, stream, branch);
  kernels_.add_norm(hidden(normed_, rows), stream, branch, *weights_.vector(weight, layer),
                    norm_options(bias, layer));
}

void Decoder::grow_logits(int64_t rows) {
  const int64_t have = logits_.empty() ? 0 : logits_.dim(0);
  if (rows <= have) return;
  const int64_t capacity = std::min(limits_.logit_rows, std::max({rows, 2 * have, int64_t{8}}));
  const auto make_room = [&](Tensor& logits, int64_t cols) {
    logits = Tensor();  // free before allocating: nobody reads the old rows
    logits = Tensor(kernels_.wide_dtype(), {capacity, cols}, kernels_.allocator());
  };
  make_room(logits_, spec_.head_size());
  if (has_some_logits() && ranks_->rank() == 0) make_room(whole_logits_, spec_.whole.head_size);
}

ConstTensorView Decoder::head_input(ConstTensorView normed) const {
  if (!spec_.score_mlp) return normed;
  const TensorView up = hidden(branch_, normed.dim(0));
  kernels_.linear(up, normed, weights_.matrix(Slot::kScoreUp), weights_.vector(Slot::kScoreUpBias));
  kernels_.activate(up, up, Activation::kRelu);
  return up;
}

void Decoder::compute_logits(int64_t rows) {
  const TensorView logits = logits_.view().slice_rows(0, rows), normed = hidden(normed_, rows);
  kernels_.add_norm(normed, hidden(residual_, rows), hidden(branch_, rows),
                    *weights_.vector(Slot::kFinalNorm), norm_options(Slot::kFinalNormBias));
  observe_layer(spec_.num_layers - 1, rows, "");
  kernels_.linear(logits, head_input(normed), weights_.matrix(Slot::kLmHead),
                  weights_.vector(Slot::kLmHeadBias));
  if (spec_.logit_scale != 1) kernels_.scale(logits, spec_.logit_scale);
  if (spec_.logit_soft_cap > 0) kernels_.soft_cap(logits, spec_.logit_soft_cap);
  const TensorView all = all_logits().view().slice_rows(0, rows);
  if (has_some_logits()) ranks_->gather_columns(all, logits);
  observe("logits", all);
}

}  // namespace

std::unique_ptr<Model> make_decoder(const DecoderSpec& spec, DecoderWeights weights, const Kernels& kernels,
                                    const LoadOptions& options) {
  return std::make_unique<Decoder>(spec, std::move(weights), kernels, options);
}

}  // namespace lmdeploy
