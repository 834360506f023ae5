#include "lmdeploy/models/step_work.h"

#include <algorithm>
#include <cmath>

#include "lmdeploy/models/decoder_weights.h"

namespace lmdeploy {
namespace {

// Tables of which a token reads one row.
bool is_table(Slot slot) { return slot == Slot::kEmbed || slot == Slot::kPositions; }
bool is_expert(Slot slot) { return slot == Slot::kExpertUp || slot == Slot::kExpertDown; }
// Slots of a layer that only rows with logits reach in the last one.
bool follows_attention(Slot slot) { return slot == Slot::kO || slot >= Slot::kMlpNorm; }

/// Adds up the weights of a step.
class WeightWork {
 public:
  WeightWork(const DecoderSpec& spec, const StepShape& shape)
      : spec_(spec),
        tokens_(static_cast<double>(shape.num_sequences * shape.tokens)),
        logit_rows_(static_cast<double>(shape.num_sequences * shape.logit_rows)) {}

  void add(const DecoderWeights::Filled& filled) {
    const double rows = rows_through(filled.slot, filled.layer);
    if (rows == 0) return;
    work_.weight_bytes += static_cast<double>(filled.vector_bytes);
    const double read = share_read(filled.slot, rows), used = share_used(filled.slot);
    for (const PackedWeight* weight : filled.matrices) {
      const auto bytes = static_cast<double>(weight->bytes());
      if (is_table(filled.slot)) {
        work_.weight_bytes += bytes * tokens_ / static_cast<double>(weight->rows());
        continue;
      }
      work_.weight_bytes += bytes * read;
      work_.flops += 2 * rows * used * static_cast<double>(weight->rows() * weight->cols());
    }
  }
  const StepWork& work() const { return work_; }

 private:
  double rows_through(Slot slot, int64_t layer) const {
    const bool at_end = layer == DecoderWeights::kNoLayer && !is_table(slot);
    return at_end || (layer == spec_.num_layers - 1 && follows_attention(slot)) ? logit_rows_ : tokens_;
  }
  // Of the experts, those that at least one of `rows` has chosen.
  double share_read(Slot slot, double rows) const {
    return is_expert(slot) ? 1 - std::pow(1 - share_used(slot), rows) : 1;
  }
  // Of the experts, those that a row goes through.
  double share_used(Slot slot) const {
    return is_expert(slot)
               ? static_cast<double>(spec_.experts.top_k) / static_cast<double>(spec_.experts.num_experts)
               : 1;
  }

  const DecoderSpec& spec_;
  const double tokens_, logit_rows_;
  StepWork work_;
};

}  // namespace

SeenKeys seen_keys(int64_t tokens, int64_t kv_len, int64_t window) {
  const int64_t most = window > 0 ? window : kv_len;
  SeenKeys seen = {.distinct = std::min(kv_len, most + tokens - 1)};
  for (int64_t t = 0; t < tokens; ++t) seen.pairs += std::min(most, kv_len - tokens + t + 1);
  return seen;
}

StepWork step_work(const DecoderSpec& spec, const DecoderWeights& weights, const KvLayout& kv,
                   const StepShape& shape) {
  WeightWork sum(spec, shape);
  weights.for_each([&](const DecoderWeights::Filled& filled) { sum.add(filled); });
  StepWork work = sum.work();
  const double token_bytes = static_cast<double>(kv.block_bytes()) / static_cast<double>(kv.num_layers) /
                             static_cast<double>(kv.block_len);
  const auto sequences = static_cast<double>(shape.num_sequences);
  for (const LayerSpec& layer : spec.layers) {
    const SeenKeys seen = seen_keys(shape.tokens, shape.kv_len, layer.window);
    work.kv_bytes += sequences * static_cast<double>(seen.distinct) * token_bytes;
    work.attention_flops +=
        2 * sequences * static_cast<double>(seen.pairs * spec.num_heads * (kv.head_dim + kv.value_dim()));
  }
  work.flops += work.attention_flops;
  return work;
}

}  // namespace lmdeploy
