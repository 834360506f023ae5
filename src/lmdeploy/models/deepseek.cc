// models/deepseek.cc -- DeepSeek-MoE 16B; DeepSeek-V2, V2-Lite, V2.5; DeepSeek-V3, R1.
// Source: modeling_deepseek.py and config.json of deepseek-ai/deepseek-moe-16b-base, DeepSeek-V2-Lite and
// DeepSeek-V3; modeling_deepseek_v2.py and modeling_deepseek_v3.py in transformers 4.51 and 5.0 (fused
// experts).
#include <algorithm>
#include <cmath>
#include <string>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/models/decoder.h"
#include "lmdeploy/models/families.h"
#include "lmdeploy/models/llama_like.h"
#include "lmdeploy/models/rope.h"

namespace lmdeploy {
namespace {

/// What a generation's config class says where a key is absent.
struct Defaults {
  const char* method = "greedy";
  const char* scores = "softmax";
  bool renormalize = false;
  double scale = 1;
  int64_t num_groups = 1, groups_kept = 1;
  int64_t num_experts = 0;  // 0: no experts
  int64_t top_k = 0;        // 0: must be there
  int64_t num_shared = 0;
  int64_t first_layer = 0;  // that has experts
};
constexpr Defaults kOlder = {};
constexpr Defaults kV3 = {.method = "noaux_tc",
                          .scores = "sigmoid",
                          .renormalize = true,
                          .scale = 2.5,
                          .num_groups = 8,
                          .groups_kept = 4,
                          .num_experts = 256,
                          .top_k = 8,
                          .num_shared = 1,
                          .first_layer = 3};

// topk_method "noaux_tc" (V3): the two best experts speak for a group, and a learned correction helps to
// choose.
void read_route(const ConfigReader& cfg, ExpertSpec& e, const Defaults& defaults) {
  const std::string method = cfg.get("topk_method", defaults.method);
  if (method != "greedy") {
    e.route.num_groups = read_size_or(cfg, "n_group", defaults.num_groups);
    e.route.groups_kept = read_size_or(cfg, "topk_group", defaults.groups_kept);
  }
  if (method == "noaux_tc") {
    e.correction = true;
    e.route.group_best = std::min<int64_t>(2, e.num_experts / e.route.num_groups);
  } else if (method != "greedy" && method != "group_limited_greedy") {
    throw Error(ErrorCode::kUnsupported,
                cat(cfg.where(), ": topk_method \"", method,
                    "\" is not known (known: greedy, group_limited_greedy, noaux_tc)"));
  }
  const std::string scores = cfg.get("scoring_func", defaults.scores);
  if (scores != "softmax" && scores != "sigmoid")
    throw Error(ErrorCode::kUnsupported,
                cat(cfg.where(), ": scoring_func \"", scores, "\" is not known (known: softmax, sigmoid)"));
  e.route.sigmoid = scores == "sigmoid";
  e.route.scale = read_factor(cfg, "routed_scaling_factor", defaults.scale);
  e.route.renormalize = cfg.get("norm_topk_prob", defaults.renormalize);
  if (e.route.renormalize) e.route.norm_eps = 1e-20f;
}

void read_experts(const ConfigReader& cfg, DecoderSpec& s, const Defaults& defaults) {
  if (!cfg.has("n_routed_experts") && (defaults.num_experts == 0 || cfg.is_null("n_routed_experts"))) return;
  s.experts.num_experts = read_size_or(cfg, "n_routed_experts", defaults.num_experts);
  s.experts.top_k = defaults.top_k > 0 ? read_size_or(cfg, "num_experts_per_tok", defaults.top_k)
                                       : read_size(cfg, "num_experts_per_tok");
  s.experts.inner_size = read_size(cfg, "moe_intermediate_size");
  const int64_t num_shared =
      cfg.get("n_shared_experts", cfg.is_null("n_shared_experts") ? 0 : defaults.num_shared);
  if (num_shared < 0 || num_shared > 1 << 10)
    throw Error(ErrorCode::kInvalidData,
                cat(cfg.where(), ": n_shared_experts is ", num_shared, ", expected 0 to ", 1 << 10));
  s.experts.shared_inner_size = s.experts.inner_size * num_shared;
  read_route(cfg, s.experts, defaults);
  const int64_t first = cfg.get("first_k_dense_replace", defaults.first_layer),
                step = read_size_or(cfg, "moe_layer_freq", 1);
  place_experts(s, [&](int64_t layer) { return layer >= first && layer % step == 0; });
}

DecoderSpec read_moe(const ConfigReader& cfg) {
  DecoderSpec s = read_llama_like(cfg);
  read_experts(cfg, s, kOlder);
  return s;
}

DecoderSpec read_latent(const ConfigReader& cfg) {
  DecoderSpec s = read_llama_like(cfg, {.num_kv_heads = "", .head_dim = "qk_rope_head_dim"});
  if (s.qkv_bias)
    throw Error(ErrorCode::kUnsupported,
                cat(cfg.where(), ": attention_bias is not supported for this architecture"));
  LatentSpec& latent = s.latent;
  latent.q_rank = read_size_or(cfg, "q_lora_rank", 0);
  latent.kv_rank = read_size(cfg, "kv_lora_rank");
  latent.nope_dim = read_size(cfg, "qk_nope_head_dim");
  latent.rope_dim = s.head_dim;
  latent.value_dim = read_size(cfg, "v_head_dim");
  s.head_dim = latent.nope_dim + latent.rope_dim;
  s.rope.interleaved = cfg.get("rope_interleaved", cfg.get("rope_interleave", true));
  double scale = 1 / std::sqrt(static_cast<double>(s.head_dim));
  if (s.rope.kind == RopeSpec::Kind::kYarn) scale *= std::pow(yarn_mscale_of_all(cfg, s.rope), 2);
  s.attention_scale = static_cast<float>(scale);
  return s;
}

DecoderSpec read_v2(const ConfigReader& cfg) {
  DecoderSpec s = read_latent(cfg);
  read_experts(cfg, s, kOlder);
  return s;
}

DecoderSpec read_v3(const ConfigReader& cfg) {
  DecoderSpec s = read_latent(cfg);
  read_experts(cfg, s, kV3);
  return s;
}

bool with_q_rank(const DecoderSpec& s, const LayerSpec&) { return s.latent.q_rank > 0; }
bool without_q_rank(const DecoderSpec& s, const LayerSpec&) { return s.latent.q_rank == 0; }

constexpr std::array kLatentAttention = {
    WeightRule{Slot::kQDown, "model.layers.{l}.self_attn.q_a_proj.weight", Dim::kQRank, Dim::kHidden, 0,
               with_q_rank},
    WeightRule{Slot::kQDownNorm, "model.layers.{l}.self_attn.q_a_layernorm.weight", Dim::kQRank, Dim::kNone,
               0, with_q_rank},
    WeightRule{Slot::kQUp, "model.layers.{l}.self_attn.q_b_proj.weight", Dim::kLatentQ, Dim::kQRank, 0,
               with_q_rank},
    WeightRule{Slot::kQUp, "model.layers.{l}.self_attn.q_proj.weight", Dim::kLatentQ, Dim::kHidden, 0,
               without_q_rank},
    WeightRule{Slot::kKvDown, "model.layers.{l}.self_attn.kv_a_proj_with_mqa.weight", Dim::kLatentKv,
               Dim::kHidden},
    WeightRule{Slot::kKvDownNorm, "model.layers.{l}.self_attn.kv_a_layernorm.weight", Dim::kKvRank},
    WeightRule{Slot::kO, "model.layers.{l}.self_attn.o_proj.weight", Dim::kHidden, Dim::kLatentOut},
};
constexpr std::array kShared = {
    WeightRule{Slot::kCorrection, "model.layers.{l}.mlp.gate.e_score_correction_bias", Dim::kExperts,
               Dim::kNone, 0, with_correction},
    WeightRule{Slot::kSharedUp, "model.layers.{l}.mlp.shared_experts.gate_proj.weight", Dim::kSharedInner,
               Dim::kHidden, 0, with_shared_expert},
    WeightRule{Slot::kSharedUp, "model.layers.{l}.mlp.shared_experts.up_proj.weight", Dim::kSharedInner,
               Dim::kHidden, 1, with_shared_expert},
    WeightRule{Slot::kSharedDown, "model.layers.{l}.mlp.shared_experts.down_proj.weight", Dim::kHidden,
               Dim::kSharedInner, 0, with_shared_expert},
};

constexpr std::array kKeysValues = {
    WeightRule{Slot::kKeyUp, "model.layers.{l}.self_attn.kv_b_proj.weight", Dim::kLatentKeysValues,
               Dim::kKvRank, 0, nullptr, Stored::kHeadKeys},
    WeightRule{Slot::kValueUp, "model.layers.{l}.self_attn.kv_b_proj.weight", Dim::kLatentKeysValues,
               Dim::kKvRank, 0, nullptr, Stored::kHeadValues},
};
// GGUF: kv_b_proj by heads, the part of the keys turned over. Before April 2025 it was whole.
constexpr std::array kSplitKeysValues = {
    WeightRule{Slot::kKeyUp, "model.layers.{l}.self_attn.k_b_proj.weight", Dim::kKvRank, Dim::kNope, 0,
               nullptr, Stored::kHeads},
    WeightRule{Slot::kValueUp, "model.layers.{l}.self_attn.v_b_proj.weight", Dim::kValue, Dim::kKvRank, 0,
               nullptr, Stored::kHeads},
};

constexpr auto kMoeRules = join(llama::kRules, kShared, llama::kExperts);
constexpr auto kStackedMoeRules = join(llama::kRules, kShared, llama::kStackedExperts);
constexpr auto kLatentEnds = join(llama::kEnds, llama::kNorms, kLatentAttention, llama::kMlp, kShared);
constexpr auto kLatentCommon = join(kLatentEnds, kKeysValues);
constexpr auto kLatentRules = join(kLatentCommon, llama::kExperts);
constexpr auto kFusedLatentRules = join(kLatentCommon, llama::kFusedExperts);
constexpr auto kStackedLatentRules = join(kLatentCommon, llama::kStackedExperts);
constexpr auto kSplitLatentRules = join(kLatentEnds, kSplitKeysValues, llama::kStackedExperts);

constexpr WeightTable kMoeWeights[] = {{llama::kStackedMarker, kStackedMoeRules}, {"", kMoeRules}};
constexpr WeightTable kLatentWeights[] = {{".mlp.experts.gate_up_proj", kFusedLatentRules},
                                          {".self_attn.k_b_proj.weight", kSplitLatentRules},
                                          {llama::kStackedMarker, kStackedLatentRules},
                                          {"", kLatentRules}};

}  // namespace

const ModelFamily kDeepseek = {"DeepseekForCausalLM", read_moe, kMoeWeights, make_decoder};
const ModelFamily kDeepseekV2 = {"DeepseekV2ForCausalLM", read_v2, kLatentWeights, make_decoder};
const ModelFamily kDeepseekV3 = {"DeepseekV3ForCausalLM", read_v3, kLatentWeights, make_decoder};

}  // namespace lmdeploy
