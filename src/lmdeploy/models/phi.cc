// models/phi.cc -- Phi-1, 1.5 and 2; Phi-3, 3.5 and 4.
// Source: config.json and index files of microsoft/phi-2, Phi-3-mini-128k-instruct and Phi-4-mini-instruct;
// modeling_phi.py and modeling_phi3.py in transformers 4.51.
#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/models/decoder.h"
#include "lmdeploy/models/families.h"
#include "lmdeploy/models/llama_like.h"

namespace lmdeploy {
namespace {

DecoderSpec read_phi(const ConfigReader& cfg) {
  DecoderSpec s = read_llama_like(cfg, {.norm_eps = "layer_norm_eps",
                                        .default_norm_eps = 1e-5,
                                        .default_activation = "gelu_new",
                                        .default_rope = {.rotary_share = 0.5}});
  s.norm = NormKind::kLayer;
  s.norm_bias = true;
  s.parallel = s.one_norm = true;
  s.gated = false;
  s.qkv_bias = s.o_bias = s.mlp_bias = s.head_bias = true;
  if (cfg.get("qk_layernorm", false)) {
    s.qk_norm = QkNorm::kPerHead;
    s.qk_norm_bias = true;
  }
  return s;
}

DecoderSpec read_phi3(const ConfigReader& cfg) {
  DecoderSpec s = read_llama_like(
      cfg,
      {.default_norm_eps = 1e-5, .default_rope = {.original_length = 4096}, .default_max_positions = 4096});
  read_windows(cfg, s);
  return s;
}

constexpr std::array kPhiOwn = {
    WeightRule{Slot::kAttentionNorm, "model.layers.{l}.input_layernorm.weight", Dim::kHidden},
    WeightRule{Slot::kAttentionNormBias, "model.layers.{l}.input_layernorm.bias", Dim::kHidden},
    WeightRule{Slot::kO, "model.layers.{l}.self_attn.dense.weight", Dim::kHidden, Dim::kQ},
    WeightRule{Slot::kOBias, "model.layers.{l}.self_attn.dense.bias", Dim::kHidden},
    WeightRule{Slot::kQNorm, "model.layers.{l}.self_attn.q_layernorm.weight", Dim::kHeadDim, Dim::kNone, 0,
               with_qk_norm},
    WeightRule{Slot::kQNormBias, "model.layers.{l}.self_attn.q_layernorm.bias", Dim::kHeadDim, Dim::kNone, 0,
               with_qk_norm},
    WeightRule{Slot::kKNorm, "model.layers.{l}.self_attn.k_layernorm.weight", Dim::kHeadDim, Dim::kNone, 0,
               with_qk_norm},
    WeightRule{Slot::kKNormBias, "model.layers.{l}.self_attn.k_layernorm.bias", Dim::kHeadDim, Dim::kNone, 0,
               with_qk_norm},
    WeightRule{Slot::kUp, "model.layers.{l}.mlp.fc1.weight", Dim::kInner, Dim::kHidden},
    WeightRule{Slot::kUpBias, "model.layers.{l}.mlp.fc1.bias", Dim::kInner},
    WeightRule{Slot::kDown, "model.layers.{l}.mlp.fc2.weight", Dim::kHidden, Dim::kInner},
    WeightRule{Slot::kDownBias, "model.layers.{l}.mlp.fc2.bias", Dim::kHidden},
    WeightRule{Slot::kFinalNorm, "model.final_layernorm.weight", Dim::kHidden},
    WeightRule{Slot::kFinalNormBias, "model.final_layernorm.bias", Dim::kHidden},
    llama::kEmbed,
    llama::kHead,
    WeightRule{Slot::kLmHeadBias, "lm_head.bias", Dim::kVocab},
};
constexpr std::array kPhi3Attention = {
    WeightRule{Slot::kQkv, "model.layers.{l}.self_attn.qkv_proj.weight", Dim::kQkv, Dim::kHidden},
    WeightRule{Slot::kO, "model.layers.{l}.self_attn.o_proj.weight", Dim::kHidden, Dim::kQ},
};
// The first GGUF files of Phi-2.
constexpr std::array kPhiFusedQkv = {
    WeightRule{Slot::kQkv, "model.layers.{l}.self_attn.qkv_proj.weight", Dim::kQkv, Dim::kHidden},
    WeightRule{Slot::kQkvBias, "model.layers.{l}.self_attn.qkv_proj.bias", Dim::kQkv},
};
constexpr auto kPhiRules = join(kPhiOwn, llama::kQkv);
constexpr auto kPhiFusedRules = join(kPhiOwn, kPhiFusedQkv);
constexpr auto kPhi3Rules = join(llama::kEnds, llama::kNorms, kPhi3Attention, llama::kFusedMlp);

constexpr WeightTable kPhiWeights[] = {{".self_attn.qkv_proj.weight", kPhiFusedRules}, {"", kPhiRules}};
constexpr WeightTable kPhi3Weights[] = {{"", kPhi3Rules}};

}  // namespace

const ModelFamily kPhi = {"PhiForCausalLM", read_phi, kPhiWeights, make_decoder};
const ModelFamily kPhi3 = {"Phi3ForCausalLM", read_phi3, kPhi3Weights, make_decoder};

}  // namespace lmdeploy
