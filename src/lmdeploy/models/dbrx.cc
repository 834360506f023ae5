// models/dbrx.cc -- DBRX 132B.
// Source: config.json and index file of databricks/dbrx-instruct; modeling_dbrx.py in transformers 4.51. An
// expert's w2 is stored [inner, hidden].
#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/models/decoder.h"
#include "lmdeploy/models/families.h"
#include "lmdeploy/models/llama_like.h"
#include "lmdeploy/models/rope.h"

namespace lmdeploy {
namespace {

void read_experts(const ConfigReader& ffn, DecoderSpec& s) {
  s.intermediate_size = read_size(ffn, "ffn_hidden_size");
  s.experts.inner_size = s.intermediate_size;
  s.experts.num_experts = read_size_or(ffn, "moe_num_experts", 4);
  s.experts.top_k = read_size_or(ffn, "moe_top_k", 1);
  s.experts.route.renormalize = !ffn.is_null("moe_normalize_expert_weights");
  s.experts.route.norm_p = read_factor(ffn, "moe_normalize_expert_weights", 1);
  if (ffn.has("ffn_act_fn"))
    s.activation = activation_from_name(ffn, "ffn_act_fn", ffn.object("ffn_act_fn").get("name", "silu"));
  place_experts(s, [](int64_t) { return true; });
}

DecoderSpec read_spec(const ConfigReader& cfg) {
  const ConfigReader attention = cfg.object("attn_config"), ffn = cfg.object("ffn_config");
  DecoderSpec s = read_llama_like(
      cfg,
      {.hidden_size = "d_model", .intermediate_size = "", .num_layers = "n_layers", .num_heads = "n_heads"});
  s.num_kv_heads = read_size_or(attention, "kv_n_heads", 1);
  const bool at_the_top = cfg.has("rope_theta") || cfg.has("rope_parameters");  // transformers 5
  if (!at_the_top) s.rope.theta = attention.get("rope_theta", s.rope.theta);
  s.qkv_clip = read_factor(attention, "clip_qkv", 0);
  s.norm = NormKind::kLayer;
  s.norm_eps = 1e-5f;
  read_experts(ffn, s);
  return s;
}

constexpr WeightRule kRules[] = {
    {Slot::kEmbed, "transformer.wte.weight", Dim::kVocab, Dim::kHidden},
    {Slot::kAttentionNorm, "transformer.blocks.{l}.norm_attn_norm.norm_1.weight", Dim::kHidden},
    {Slot::kQkv, "transformer.blocks.{l}.norm_attn_norm.attn.Wqkv.weight", Dim::kQkv, Dim::kHidden},
    {Slot::kO, "transformer.blocks.{l}.norm_attn_norm.attn.out_proj.weight", Dim::kHidden, Dim::kQ},
    {Slot::kMlpNorm, "transformer.blocks.{l}.norm_attn_norm.norm_2.weight", Dim::kHidden},
    {Slot::kRouter, "transformer.blocks.{l}.ffn.router.layer.weight", Dim::kExperts, Dim::kHidden},
    {Slot::kExpertUp, "transformer.blocks.{l}.ffn.experts.mlp.w1", Dim::kExpertInner, Dim::kHidden, 0,
     nullptr, Stored::kExperts},
    {Slot::kExpertUp, "transformer.blocks.{l}.ffn.experts.mlp.v1", Dim::kExpertInner, Dim::kHidden, 1,
     nullptr, Stored::kExperts},
    {Slot::kExpertDown, "transformer.blocks.{l}.ffn.experts.mlp.w2", Dim::kHidden, Dim::kExpertInner, 0,
     nullptr, Stored::kExpertsTransposed},
    {Slot::kFinalNorm, "transformer.norm_f.weight", Dim::kHidden},
    {Slot::kLmHead, "lm_head.weight", Dim::kVocab, Dim::kHidden, 0, untied},
};
constexpr WeightTable kWeights[] = {{"", kRules}};

}  // namespace

const ModelFamily kDbrx = {"DbrxForCausalLM", read_spec, kWeights, make_decoder};

}  // namespace lmdeploy
