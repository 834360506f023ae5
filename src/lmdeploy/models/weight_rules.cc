// Sizes and tensor names of weight rules.
#include "lmdeploy/models/weight_rules.h"

#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

void replace_mark(std::string& name, std::string_view mark, int64_t number) {
  const size_t at = name.find(mark);
  if (at != std::string::npos) name.replace(at, mark.size(), cat(number));
}

}  // namespace

bool is_per_layer(const WeightRule& rule) { return rule.name.find(kLayerMark) != std::string_view::npos; }

std::string tensor_name(const WeightRule& rule, int64_t layer, int64_t index) {
  std::string name(rule.name);
  replace_mark(name, kLayerMark, layer);
  for (const std::string_view mark : {"{e}", "{h}", "{g}"}) replace_mark(name, mark, index);
  return name;
}

int64_t size_of(Dim dim, const DecoderSpec& s) {
  switch (dim) {
    case Dim::kNone:
      break;
    case Dim::kOne:
      return 1;
    case Dim::kVocab:
      return s.vocab_size;
    case Dim::kPositions:
      return s.max_positions;
    case Dim::kHidden:
      return s.hidden_size;
    case Dim::kHeads:
      return s.num_heads;
    case Dim::kHeadDim:
      return s.head_dim;
    case Dim::kQ:
      return s.q_size();
    case Dim::kKv:
      return s.kv_size();
    case Dim::kQkv:
      return s.q_size() + 2 * s.kv_size();
    case Dim::kInner:
      return s.intermediate_size;
    case Dim::kGateUp:
      return 2 * s.intermediate_size;
    case Dim::kQRank:
      return s.latent.q_rank;
    case Dim::kLatentQ:
      return s.num_heads * (s.latent.nope_dim + s.latent.rope_dim);
    case Dim::kLatentKv:
      return s.latent.kv_rank + s.latent.rope_dim;
    case Dim::kKvRank:
      return s.latent.kv_rank;
    case Dim::kNope:
      return s.latent.nope_dim;
    case Dim::kValue:
      return s.latent.value_dim;
    case Dim::kLatentKeysValues:
      return s.num_heads * (s.latent.nope_dim + s.latent.value_dim);
    case Dim::kLatentOut:
      return s.num_heads * s.latent.value_dim;
    case Dim::kExperts:
      return s.experts.num_experts;
    case Dim::kExpertInner:
      return s.experts.inner_size;
    case Dim::kExpertGateUp:
      return 2 * s.experts.inner_size;
    case Dim::kSharedInner:
      return s.experts.shared_inner_size;
  }
  LMD_CHECK(false, "no size for dim ", static_cast<int>(dim));
}

}  // namespace lmdeploy
