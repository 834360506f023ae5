#include "lmdeploy/models/spec_check.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/formats/quote.h"

namespace lmdeploy {
namespace {

using Spec = DecoderSpec;
using Kind = RopeSpec::Kind;

// A size and the config keys it has in all families: "a|b|object.c".
struct Size {
  std::string_view keys;
  int64_t (*of)(const Spec&);
};

constexpr Size kLayers = {"num_hidden_layers|num_layers|n_layer|n_layers",
                          [](const Spec& s) { return s.num_layers; }};
constexpr Size kHeads = {"num_attention_heads|n_head|n_heads", [](const Spec& s) { return s.num_heads; }};
constexpr Size kKvHeads = {
    "num_key_value_heads|num_kv_heads|n_head_kv|multi_query_group_num|attn_config.kv_n_heads",
    [](const Spec& s) { return s.num_kv_heads; }};
constexpr Size kExperts = {"num_experts|num_local_experts|n_routed_experts|ffn_config.moe_num_experts",
                           [](const Spec& s) { return s.experts.num_experts; }};
constexpr Size kTopK = {"num_experts_per_tok|experts_per_token|ffn_config.moe_top_k",
                        [](const Spec& s) { return s.experts.top_k; }};
constexpr Size kGroups = {"n_group", [](const Spec& s) { return s.experts.route.num_groups; }};
constexpr Size kGroupsKept = {"topk_group", [](const Spec& s) { return s.experts.route.groups_kept; }};
constexpr Size kLognLength = {"seq_length", [](const Spec& s) { return s.logn_length; }};

int64_t experts_of_kept_groups(const Spec& s) {
  return s.experts.num_experts / s.experts.route.num_groups * s.experts.route.groups_kept;
}

// `value` is `least` to `most`. A rule whose `most` comes out at 0 does not hold for the spec.
struct RangeRule {
  Size value;
  int64_t least;
  int64_t (*most)(const Spec&);
  std::string_view most_is;  // for the message
};
// Names of tensors are made for each expert and head of each layer.
constexpr int64_t kMostParts = 1 << 20;
constexpr RangeRule kRanges[] = {
    {kHeads, 1, [](const Spec& s) { return kMostParts / s.num_layers; }, "2^20 heads in all layers"},
    {kExperts, 0, [](const Spec& s) { return kMostParts / s.num_layers; }, "2^20 experts in all layers"},
    {kTopK, 1, [](const Spec& s) { return s.experts.num_experts; }, "the number of experts"},
    {kGroupsKept, 1, [](const Spec& s) { return s.has_experts() ? s.experts.route.num_groups : 0; },
     "the number of groups"},
    {kTopK, 1, [](const Spec& s) { return s.has_experts() ? experts_of_kept_groups(s) : 0; },
     "the number of experts in the groups kept"},
    {kLognLength, 2, [](const Spec& s) { return s.logn_length > 0 ? INT32_MAX : int64_t{0}; }, "2^31 - 1"},
};

struct MultipleRule {
  Size whole, part;
};
constexpr MultipleRule kMultiples[] = {{kHeads, kKvHeads}, {kExperts, kGroups}};

// A number that a key stands for, perhaps by way of others.
struct NumberRule {
  std::string_view keys;
  double (*of)(const Spec&);
  bool above_zero;
};
constexpr NumberRule kNumbers[] = {
    {"query_pre_attn_scalar|attention_multiplier|rope_scaling.mscale_all_dim",
     [](const Spec& s) -> double { return s.attention_scale; }, false},
    {"scale_emb|embedding_multiplier", [](const Spec& s) -> double { return s.embedding_scale; }, true},
    {"scale_depth|residual_multiplier", [](const Spec& s) -> double { return s.residual_scale; }, false},
    {"dim_model_base|logits_scaling|logit_scale", [](const Spec& s) -> double { return s.logit_scale; },
     false},
    {"moe_normalize_expert_weights|ffn_config.moe_normalize_expert_weights",
     [](const Spec& s) -> double { return s.experts.route.norm_p; }, true},
};

// The key as messages show it: the one that the config has, or what it would be called.
std::string shown(const ConfigReader& cfg, std::string_view keys) {
  const std::string_view first = keys.substr(0, keys.find('|'));
  while (!keys.empty()) {
    const std::string_view key = keys.substr(0, keys.find('|'));
    const size_t dot = key.find('.');
    const Json* holder = dot == key.npos ? nullptr : cfg.find(key.substr(0, dot));
    const bool inside =
        holder != nullptr && holder->is_object() && holder->get_object().contains(key.substr(dot + 1));
    if (dot == key.npos ? cfg.has(key) : inside) return quote(key);
    keys.remove_prefix(std::min(keys.size(), key.size() + 1));
  }
  return cat(quote(first), " (absent)");
}

class SpecCheck {
 public:
  SpecCheck(const Spec& spec, const ConfigReader& cfg) : spec_(spec), cfg_(cfg) {}

  void run() const {
    for (const MultipleRule& rule : kMultiples) check(rule);
    for (const RangeRule& rule : kRanges) check(rule);
    for (const NumberRule& rule : kNumbers) check(rule);
    if (!spec_.has_rope()) return;
    const int64_t turned = spec_.has_latent() ? spec_.latent.rope_dim : spec_.head_dim;
    check(spec_.rope, turned, "rope_theta|attn_config.rope_theta|rotary.base|rope_parameters.rope_theta");
    const bool local = std::ranges::any_of(spec_.layers, &LayerSpec::local_rope);
    if (local) check(spec_.local_rope, turned, "rope_local_base_freq|rope_parameters.sliding_attention");
  }

 private:
  template <typename... Parts>
  [[noreturn]] void fail(std::string_view keys, const Parts&... parts) const {
    throw Error(ErrorCode::kInvalidData, cat(cfg_.where(), ": ", shown(cfg_, keys), " ", parts...));
  }

  void check(const RangeRule& rule) const {
    const int64_t value = rule.value.of(spec_), most = rule.most(spec_);
    if (most > 0 && (value < rule.least || value > most))
      fail(rule.value.keys, "is ", value, ", expected ", rule.least, " to ", most, " (", rule.most_is, ")");
  }
  void check(const MultipleRule& rule) const {
    const int64_t whole = rule.whole.of(spec_), part = rule.part.of(spec_);
    if (part < 1 || whole % part != 0)
      fail(rule.part.keys, "is ", part, ", expected a divisor of ", shown(cfg_, rule.whole.keys), " ", whole);
  }
  void check(const NumberRule& rule) const {
    const double value = rule.of(spec_);
    if (!std::isfinite(value) || value < 0 || (rule.above_zero && value == 0))
      fail(rule.keys, "makes a factor of ", value, ", expected a finite number ",
           rule.above_zero ? "above 0" : "of 0 or more");
  }
  void check(const RopeSpec& rope, int64_t head_dim, std::string_view theta_keys) const {
    const bool divides = rope.kind == Kind::kDynamicNtk || rope.kind == Kind::kQwenNtk;
    const int64_t least = divides ? 4 : 2;
    if (rope.rotary_dim < least || rope.rotary_dim > head_dim || rope.rotary_dim % 2 != 0)
      fail("qk_rope_head_dim|kv_channels|head_dim", "gives a rotary size of ", rope.rotary_dim,
           ", expected an even number from ", least, " to the head's ", head_dim);
    if (!(rope.theta > 1) || !std::isfinite(rope.theta))
      fail(theta_keys, "gives a rope base of ", rope.theta, ", expected a number above 1");
    for (const double factor : {rope.factor, rope.attention_factor, rope.long_attention_factor})
      if (!(factor > 0) || !std::isfinite(factor))
        fail("rope_scaling|rope_parameters|rotary", "has or implies a factor of ", factor,
             ", expected a number above 0");
    if (rope.kind == Kind::kDefault || rope.kind == Kind::kLinear) return;
    if (rope.original_max_positions < 1 || rope.original_max_positions > INT32_MAX)
      fail(
          "original_max_position_embeddings|rope_scaling.original_max_position_embeddings|"
          "rope_parameters.original_max_position_embeddings",
          "is ", rope.original_max_positions, ", expected 1 to ", INT32_MAX);
  }

  const Spec& spec_;
  const ConfigReader& cfg_;
};

}  // namespace

DecoderSpec checked_spec(const ModelFamily& family, const ConfigReader& cfg) {
  DecoderSpec spec = family.read_spec(cfg);
  spec.architecture = family.architecture;
  SpecCheck(spec, cfg).run();
  return spec;
}

}  // namespace lmdeploy
