// models/stablelm.cc -- StableLM 3B, Zephyr, StableLM 2 1.6B and 12B.
// Source: config.json and index files of stabilityai/stablelm-3b-4e1t and stablelm-2-12b;
// modeling_stablelm.py in transformers 4.51.
#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/models/decoder.h"
#include "lmdeploy/models/families.h"
#include "lmdeploy/models/llama_like.h"

namespace lmdeploy {
namespace {

DecoderSpec read_spec(const ConfigReader& cfg) {
  DecoderSpec s = read_llama_like(cfg, {.norm_eps = "layer_norm_eps|norm_eps",  // the latter: old spelling
                                        .default_norm_eps = 1e-5,
                                        .default_rope = {.rotary_share = 0.25},
                                        .default_kv_heads = 32,
                                        .default_max_positions = 4096});
  s.norm = NormKind::kLayer;
  s.norm_bias = true;
  s.qkv_bias = cfg.get("use_qkv_bias", false);
  s.o_bias = false;
  s.parallel = s.one_norm = cfg.get("use_parallel_residual", false);
  if (cfg.get("qk_layernorm", false)) s.qk_norm = QkNorm::kPerHeadOwn;
  return s;
}

bool with_mlp_norm(const DecoderSpec& s, const LayerSpec&) { return !s.one_norm; }

constexpr std::array kOwn = {
    WeightRule{Slot::kAttentionNorm, "model.layers.{l}.input_layernorm.weight", Dim::kHidden},
    WeightRule{Slot::kAttentionNormBias, "model.layers.{l}.input_layernorm.bias", Dim::kHidden},
    WeightRule{Slot::kMlpNorm, "model.layers.{l}.post_attention_layernorm.weight", Dim::kHidden, Dim::kNone,
               0, with_mlp_norm},
    WeightRule{Slot::kMlpNormBias, "model.layers.{l}.post_attention_layernorm.bias", Dim::kHidden, Dim::kNone,
               0, with_mlp_norm},
    WeightRule{Slot::kFinalNormBias, "model.norm.bias", Dim::kHidden},
};
constexpr std::array kHeadNorms = {
    WeightRule{Slot::kQNorm, "model.layers.{l}.self_attn.q_layernorm.norms.{h}.weight", Dim::kHeadDim,
               Dim::kNone, 0, with_qk_norm},
    WeightRule{Slot::kKNorm, "model.layers.{l}.self_attn.k_layernorm.norms.{g}.weight", Dim::kHeadDim,
               Dim::kNone, 0, with_qk_norm},
};
// GGUF: [heads, head_dim].
constexpr std::array kStackedNorms = {
    WeightRule{Slot::kQNorm, "model.layers.{l}.self_attn.q_layernorm.weight", Dim::kQ, Dim::kNone, 0,
               with_qk_norm, Stored::kFlat},
    WeightRule{Slot::kKNorm, "model.layers.{l}.self_attn.k_layernorm.weight", Dim::kKv, Dim::kNone, 0,
               with_qk_norm, Stored::kFlat},
};
constexpr auto kCommon = join(llama::kEnds, kOwn, llama::kAttention, llama::kMlp);
constexpr auto kRules = join(kCommon, kHeadNorms);
constexpr auto kGgufRules = join(kCommon, kStackedNorms);
constexpr WeightTable kWeights[] = {{".self_attn.q_layernorm.weight", kGgufRules}, {"", kRules}};

}  // namespace

const ModelFamily kStableLm = {"StableLmForCausalLM", read_spec, kWeights, make_decoder};
/// As published before transformers had the architecture.
const ModelFamily kStableLmOldSpelling = {"StableLMEpochForCausalLM", read_spec, kWeights, make_decoder};

}  // namespace lmdeploy
