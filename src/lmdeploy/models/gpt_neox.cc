// models/gpt_neox.cc -- GPT-NeoX 20B, Pythia, Dolly v2.
// Source: config.json and index file of EleutherAI/pythia-1.4b; modeling_gpt_neox.py in transformers 4.51.
#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/models/decoder.h"
#include "lmdeploy/models/families.h"
#include "lmdeploy/models/llama_like.h"

namespace lmdeploy {
namespace {

DecoderSpec read_spec(const ConfigReader& cfg) {
  DecoderSpec s = read_llama_like(cfg, {.num_kv_heads = "",
                                        .head_dim = "",
                                        .norm_eps = "layer_norm_eps",
                                        .default_norm_eps = 1e-5,
                                        .default_activation = "gelu",
                                        .default_rope = {.rotary_share = 0.25},
                                        .default_attention_bias = true});
  s.norm = NormKind::kLayer;
  s.norm_bias = true;
  s.parallel = cfg.get("use_parallel_residual", true);
  s.gated = false;
  s.mlp_bias = true;
  return s;
}

constexpr std::array kOwn = {
    WeightRule{Slot::kEmbed, "gpt_neox.embed_in.weight", Dim::kVocab, Dim::kHidden},
    WeightRule{Slot::kAttentionNorm, "gpt_neox.layers.{l}.input_layernorm.weight", Dim::kHidden},
    WeightRule{Slot::kAttentionNormBias, "gpt_neox.layers.{l}.input_layernorm.bias", Dim::kHidden},
    WeightRule{Slot::kO, "gpt_neox.layers.{l}.attention.dense.weight", Dim::kHidden, Dim::kQ},
    WeightRule{Slot::kOBias, "gpt_neox.layers.{l}.attention.dense.bias", Dim::kHidden, Dim::kNone, 0,
               with_o_bias},
    WeightRule{Slot::kMlpNorm, "gpt_neox.layers.{l}.post_attention_layernorm.weight", Dim::kHidden},
    WeightRule{Slot::kMlpNormBias, "gpt_neox.layers.{l}.post_attention_layernorm.bias", Dim::kHidden},
    WeightRule{Slot::kUp, "gpt_neox.layers.{l}.mlp.dense_h_to_4h.weight", Dim::kInner, Dim::kHidden},
    WeightRule{Slot::kUpBias, "gpt_neox.layers.{l}.mlp.dense_h_to_4h.bias", Dim::kInner},
    WeightRule{Slot::kDown, "gpt_neox.layers.{l}.mlp.dense_4h_to_h.weight", Dim::kHidden, Dim::kInner},
    WeightRule{Slot::kDownBias, "gpt_neox.layers.{l}.mlp.dense_4h_to_h.bias", Dim::kHidden},
    WeightRule{Slot::kFinalNorm, "gpt_neox.final_layer_norm.weight", Dim::kHidden},
    WeightRule{Slot::kFinalNormBias, "gpt_neox.final_layer_norm.bias", Dim::kHidden},
    WeightRule{Slot::kLmHead, "embed_out.weight", Dim::kVocab, Dim::kHidden, 0, untied},
};
constexpr std::array kQkv = {
    WeightRule{Slot::kQkv, "gpt_neox.layers.{l}.attention.query_key_value.weight", Dim::kQkv, Dim::kHidden, 0,
               nullptr, Stored::kGroupedQkv},
    WeightRule{Slot::kQkvBias, "gpt_neox.layers.{l}.attention.query_key_value.bias", Dim::kQkv, Dim::kNone, 0,
               with_qkv_bias, Stored::kGroupedQkv},
};
// GGUF: rows of q, then of k, then of v.
constexpr std::array kGgufQkv = {
    WeightRule{Slot::kQkv, "gpt_neox.layers.{l}.attention.qkv_proj.weight", Dim::kQkv, Dim::kHidden},
    WeightRule{Slot::kQkvBias, "gpt_neox.layers.{l}.attention.qkv_proj.bias", Dim::kQkv, Dim::kNone, 0,
               with_qkv_bias},
};
constexpr auto kRules = join(kOwn, kQkv);
constexpr auto kGgufRules = join(kOwn, kGgufQkv);
constexpr WeightTable kWeights[] = {{".attention.qkv_proj.weight", kGgufRules}, {"", kRules}};

}  // namespace

const ModelFamily kGptNeox = {"GPTNeoXForCausalLM", read_spec, kWeights, make_decoder};

}  // namespace lmdeploy
