// models/gpt2.cc -- GPT-2.
// Source: config.json and model.safetensors of openai-community/gpt2; modeling_gpt2.py in transformers 4.51.
// Weights of its Conv1D are stored [in, out]; exports differ in the prefix "transformer.".
#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/models/decoder.h"
#include "lmdeploy/models/families.h"
#include "lmdeploy/models/llama_like.h"

namespace lmdeploy {
namespace {

DecoderSpec read_spec(const ConfigReader& cfg) {
  DecoderSpec s = read_llama_like(cfg, {.hidden_size = "n_embd",
                                        .intermediate_size = "n_inner",
                                        .num_layers = "n_layer",
                                        .num_heads = "n_head",
                                        .num_kv_heads = "",
                                        .head_dim = "",
                                        .norm_eps = "layer_norm_epsilon",
                                        .activation = "activation_function",
                                        .default_norm_eps = 1e-5,
                                        .default_activation = "gelu_new",
                                        .rope = false,
                                        .default_max_positions = 1024,
                                        .default_tied = true,
                                        .inner_per_hidden = 4});
  if (cfg.get("scale_attn_by_inverse_layer_idx", false))
    throw Error(ErrorCode::kUnsupported,
                cat(cfg.where(), ": scale_attn_by_inverse_layer_idx is not supported"));
  if (!cfg.get("scale_attn_weights", true)) s.attention_scale = 1;
  s.learned_positions = true;
  s.norm = NormKind::kLayer;
  s.norm_bias = true;
  s.gated = false;
  s.qkv_bias = s.o_bias = s.mlp_bias = true;
  return s;
}

constexpr std::array kOwn = {
    WeightRule{Slot::kEmbed, "transformer.wte.weight", Dim::kVocab, Dim::kHidden},
    WeightRule{Slot::kPositions, "transformer.wpe.weight", Dim::kPositions, Dim::kHidden},
    WeightRule{Slot::kAttentionNorm, "transformer.h.{l}.ln_1.weight", Dim::kHidden},
    WeightRule{Slot::kAttentionNormBias, "transformer.h.{l}.ln_1.bias", Dim::kHidden},
    WeightRule{Slot::kMlpNorm, "transformer.h.{l}.ln_2.weight", Dim::kHidden},
    WeightRule{Slot::kMlpNormBias, "transformer.h.{l}.ln_2.bias", Dim::kHidden},
    WeightRule{Slot::kFinalNorm, "transformer.ln_f.weight", Dim::kHidden},
    WeightRule{Slot::kFinalNormBias, "transformer.ln_f.bias", Dim::kHidden},
    llama::kHead,
};
constexpr std::array kConv1d = {
    WeightRule{Slot::kQkv, "transformer.h.{l}.attn.c_attn.weight", Dim::kQkv, Dim::kHidden, 0, nullptr,
               Stored::kTransposed},
    WeightRule{Slot::kQkvBias, "transformer.h.{l}.attn.c_attn.bias", Dim::kQkv},
    WeightRule{Slot::kO, "transformer.h.{l}.attn.c_proj.weight", Dim::kHidden, Dim::kQ, 0, nullptr,
               Stored::kTransposed},
    WeightRule{Slot::kOBias, "transformer.h.{l}.attn.c_proj.bias", Dim::kHidden},
    WeightRule{Slot::kUp, "transformer.h.{l}.mlp.c_fc.weight", Dim::kInner, Dim::kHidden, 0, nullptr,
               Stored::kTransposed},
    WeightRule{Slot::kUpBias, "transformer.h.{l}.mlp.c_fc.bias", Dim::kInner},
    WeightRule{Slot::kDown, "transformer.h.{l}.mlp.c_proj.weight", Dim::kHidden, Dim::kInner, 0, nullptr,
               Stored::kTransposed},
    WeightRule{Slot::kDownBias, "transformer.h.{l}.mlp.c_proj.bias", Dim::kHidden},
};
// GGUF: [out, in] as everywhere else.
constexpr std::array kLinear = {
    WeightRule{Slot::kQkv, "transformer.h.{l}.attn.c_attn.linear.weight", Dim::kQkv, Dim::kHidden},
    WeightRule{Slot::kQkvBias, "transformer.h.{l}.attn.c_attn.linear.bias", Dim::kQkv},
    WeightRule{Slot::kO, "transformer.h.{l}.attn.c_proj.linear.weight", Dim::kHidden, Dim::kQ},
    WeightRule{Slot::kOBias, "transformer.h.{l}.attn.c_proj.linear.bias", Dim::kHidden},
    WeightRule{Slot::kUp, "transformer.h.{l}.mlp.c_fc.linear.weight", Dim::kInner, Dim::kHidden},
    WeightRule{Slot::kUpBias, "transformer.h.{l}.mlp.c_fc.linear.bias", Dim::kInner},
    WeightRule{Slot::kDown, "transformer.h.{l}.mlp.c_proj.linear.weight", Dim::kHidden, Dim::kInner},
    WeightRule{Slot::kDownBias, "transformer.h.{l}.mlp.c_proj.linear.bias", Dim::kHidden},
};
constexpr auto kRules = join(kOwn, kConv1d);
constexpr auto kGgufRules = join(kOwn, kLinear);
constexpr auto kShortRules = without_prefix(kRules, "transformer.");
constexpr WeightTable kWeights[] = {
    {".attn.c_attn.linear.weight", kGgufRules}, {"transformer.wte.weight", kRules}, {"", kShortRules}};

}  // namespace

const ModelFamily kGpt2 = {"GPT2LMHeadModel", read_spec, kWeights, make_decoder};

}  // namespace lmdeploy
