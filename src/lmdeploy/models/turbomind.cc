// models/turbomind.cc -- whatever a converted workspace of LMDeploy 0.1 to 0.9 holds: one form for all
// models. Source: the layout of config.ini and config.yaml (docs/checkpoints.md); the formats room says it in
// the hub's words.
#include <cmath>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/models/decoder.h"
#include "lmdeploy/models/families.h"
#include "lmdeploy/models/llama_like.h"

namespace lmdeploy {
namespace {

void read_latent(const ConfigReader& cfg, DecoderSpec& s) {
  LatentSpec& latent = s.latent;
  latent.q_rank = cfg.get("q_lora_rank", int64_t{0});
  latent.kv_rank = read_size(cfg, "kv_lora_rank");
  latent.nope_dim = read_size(cfg, "qk_nope_head_dim");
  latent.rope_dim = read_size(cfg, "qk_rope_head_dim");
  latent.value_dim = read_size(cfg, "v_head_dim");
  if (s.qkv_bias)
    throw Error(ErrorCode::kUnsupported, cat(cfg.where(), ": biases of latent attention are not supported"));
}

void read_experts(const ConfigReader& cfg, DecoderSpec& s) {
  ExpertSpec& e = s.experts;
  e.num_experts = read_size(cfg, "num_experts");
  e.top_k = read_size(cfg, "num_experts_per_tok", e.num_experts);
  e.inner_size = read_size(cfg, "moe_intermediate_size");
  e.shared_inner_size = cfg.get("shared_expert_intermediate_size", int64_t{0});
  e.shared_gate = e.shared_inner_size > 0 && cfg.get("shared_expert_gate", false);
  e.route.renormalize = cfg.get("norm_topk_prob", false);
  e.route.scale = read_factor(cfg, "routed_scaling_factor", 1);
  e.route.num_groups = read_size_or(cfg, "n_group", 1, e.num_experts);
  e.route.groups_kept = read_size_or(cfg, "topk_group", 1, e.route.num_groups);
  if (e.num_experts % e.route.num_groups != 0)
    throw Error(ErrorCode::kInvalidData, cat(cfg.where(), ": ", e.num_experts, " experts cannot be in ",
                                             e.route.num_groups, " groups of one size"));
  const Json* layers = cfg.find("expert_layers");
  const JsonArray* list = layers == nullptr ? nullptr : layers->if_array();
  if (list == nullptr || list->size() != s.layers.size())
    throw Error(ErrorCode::kInvalidData,
                cat(cfg.where(), ": \"expert_layers\" is no list of ", s.num_layers, " booleans"));
  place_experts(s, [&](int64_t layer) { return (*list)[static_cast<size_t>(layer)] == true; });
}

DecoderSpec read_spec(const ConfigReader& cfg) {
  const bool latent = cfg.has("kv_lora_rank");
  ConfigKeys keys;
  if (latent) keys.head_dim = "qk_rope_head_dim";  // what rope turns
  DecoderSpec s = read_llama_like(cfg, keys);
  if (latent) {
    read_latent(cfg, s);
    s.head_dim = read_size(cfg, "head_dim");
    s.num_kv_heads = s.num_heads;
  }
  s.attention_scale = read_factor(cfg, "attention_scale", 1 / std::sqrt(static_cast<double>(s.head_dim)));
  if (cfg.has("num_experts")) read_experts(cfg, s);
  return s;
}

bool ordinary(const DecoderSpec& s, const LayerSpec&) { return !s.has_latent(); }
bool latent(const DecoderSpec& s, const LayerSpec&) { return s.has_latent(); }
bool latent_with_q_rank(const DecoderSpec& s, const LayerSpec&) {
  return s.has_latent() && s.latent.q_rank > 0;
}
bool latent_without_q_rank(const DecoderSpec& s, const LayerSpec&) {
  return s.has_latent() && s.latent.q_rank == 0;
}
bool with_shared_gate(const DecoderSpec& s, const LayerSpec& layer) {
  return layer.experts && s.experts.shared_gate;
}

constexpr WeightRule kRules[] = {
    {Slot::kEmbed, "tok_embeddings.weight", Dim::kVocab, Dim::kHidden},
    {Slot::kFinalNorm, "norm.weight", Dim::kHidden},
    {Slot::kLmHead, "output.weight", Dim::kVocab, Dim::kHidden},
    {Slot::kAttentionNorm, "layers.{l}.attention_norm.weight", Dim::kHidden},
    {Slot::kMlpNorm, "layers.{l}.ffn_norm.weight", Dim::kHidden},

    {Slot::kQkv, "layers.{l}.attention.w_qkv.weight", Dim::kQkv, Dim::kHidden, 0, ordinary},
    {Slot::kQkvBias, "layers.{l}.attention.w_qkv.bias", Dim::kQkv, Dim::kNone, 0, with_qkv_bias},
    {Slot::kO, "layers.{l}.attention.wo.weight", Dim::kHidden, Dim::kQ, 0, ordinary},
    {Slot::kOBias, "layers.{l}.attention.wo.bias", Dim::kHidden, Dim::kNone, 0, with_o_bias},

    {Slot::kQDown, "layers.{l}.attention.q_a_proj.weight", Dim::kQRank, Dim::kHidden, 0, latent_with_q_rank},
    {Slot::kQDownNorm, "layers.{l}.attention.q_a_layernorm.weight", Dim::kQRank, Dim::kNone, 0,
     latent_with_q_rank},
    {Slot::kQUp, "layers.{l}.attention.q_b_proj.weight", Dim::kLatentQ, Dim::kQRank, 0, latent_with_q_rank},
    {Slot::kQUp, "layers.{l}.attention.q_proj.weight", Dim::kLatentQ, Dim::kHidden, 0, latent_without_q_rank},
    {Slot::kKvDown, "layers.{l}.attention.kv_a_proj.weight", Dim::kLatentKv, Dim::kHidden, 0, latent},
    {Slot::kKvDownNorm, "layers.{l}.attention.kv_a_layernorm.weight", Dim::kKvRank, Dim::kNone, 0, latent},
    {Slot::kKeyUp, "layers.{l}.attention.kv_b_proj.weight", Dim::kLatentKeysValues, Dim::kKvRank, 0, latent,
     Stored::kHeadKeys},
    {Slot::kValueUp, "layers.{l}.attention.kv_b_proj.weight", Dim::kLatentKeysValues, Dim::kKvRank, 0, latent,
     Stored::kHeadValues},
    {Slot::kO, "layers.{l}.attention.wo.weight", Dim::kHidden, Dim::kLatentOut, 0, latent},

    {Slot::kUp, "layers.{l}.feed_forward.w1.weight", Dim::kInner, Dim::kHidden, 0, dense},
    {Slot::kUp, "layers.{l}.feed_forward.w3.weight", Dim::kInner, Dim::kHidden, 1, dense},
    {Slot::kDown, "layers.{l}.feed_forward.w2.weight", Dim::kHidden, Dim::kInner, 0, dense},

    {Slot::kRouter, "layers.{l}.moe_ffn.gate.weight", Dim::kExperts, Dim::kHidden, 0, with_experts},
    {Slot::kExpertUp, "layers.{l}.moe_ffn.experts.{e}.w1.weight", Dim::kExpertInner, Dim::kHidden, 0,
     with_experts},
    {Slot::kExpertUp, "layers.{l}.moe_ffn.experts.{e}.w3.weight", Dim::kExpertInner, Dim::kHidden, 1,
     with_experts},
    {Slot::kExpertDown, "layers.{l}.moe_ffn.experts.{e}.w2.weight", Dim::kHidden, Dim::kExpertInner, 0,
     with_experts},
    // The shared expert stands where dense layers have their MLP.
    {Slot::kSharedUp, "layers.{l}.feed_forward.w1.weight", Dim::kSharedInner, Dim::kHidden, 0,
     with_shared_expert},
    {Slot::kSharedUp, "layers.{l}.feed_forward.w3.weight", Dim::kSharedInner, Dim::kHidden, 1,
     with_shared_expert},
    {Slot::kSharedDown, "layers.{l}.feed_forward.w2.weight", Dim::kHidden, Dim::kSharedInner, 0,
     with_shared_expert},
    {Slot::kSharedGate, "layers.{l}.moe_ffn.shared_gate.weight", Dim::kOne, Dim::kHidden, 0,
     with_shared_gate},
};
constexpr WeightTable kWeights[] = {{"", kRules}};

}  // namespace

const ModelFamily kTurboMind = {"TurboMindForCausalLM", read_spec, kWeights, make_decoder};

}  // namespace lmdeploy
