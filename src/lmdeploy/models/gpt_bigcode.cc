// models/gpt_bigcode.cc -- SantaCoder, StarCoder, StarCoderBase, StarChat.
// Source: config.json and index file of bigcode/starcoder; modeling_gpt_bigcode.py in transformers 4.51:
// GPT-2 whose linears are stored [out, in] and whose heads share one key and value.
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
                                        .default_activation = "gelu_pytorch_tanh",
                                        .rope = false,
                                        .default_max_positions = 1024,
                                        .default_tied = true,
                                        .inner_per_hidden = 4});
  if (cfg.get("multi_query", true)) s.num_kv_heads = 1;
  if (!cfg.get("scale_attn_weights", true)) s.attention_scale = 1;
  s.learned_positions = true;
  s.norm = NormKind::kLayer;
  s.norm_bias = true;
  s.gated = false;
  s.qkv_bias = s.o_bias = s.mlp_bias = true;
  return s;
}

constexpr WeightRule kRules[] = {
    {Slot::kEmbed, "transformer.wte.weight", Dim::kVocab, Dim::kHidden},
    {Slot::kPositions, "transformer.wpe.weight", Dim::kPositions, Dim::kHidden},
    {Slot::kAttentionNorm, "transformer.h.{l}.ln_1.weight", Dim::kHidden},
    {Slot::kAttentionNormBias, "transformer.h.{l}.ln_1.bias", Dim::kHidden},
    {Slot::kQkv, "transformer.h.{l}.attn.c_attn.weight", Dim::kQkv, Dim::kHidden, 0, nullptr,
     Stored::kGroupedQkv},
    {Slot::kQkvBias, "transformer.h.{l}.attn.c_attn.bias", Dim::kQkv, Dim::kNone, 0, nullptr,
     Stored::kGroupedQkv},
    {Slot::kO, "transformer.h.{l}.attn.c_proj.weight", Dim::kHidden, Dim::kQ},
    {Slot::kOBias, "transformer.h.{l}.attn.c_proj.bias", Dim::kHidden},
    {Slot::kMlpNorm, "transformer.h.{l}.ln_2.weight", Dim::kHidden},
    {Slot::kMlpNormBias, "transformer.h.{l}.ln_2.bias", Dim::kHidden},
    {Slot::kUp, "transformer.h.{l}.mlp.c_fc.weight", Dim::kInner, Dim::kHidden},
    {Slot::kUpBias, "transformer.h.{l}.mlp.c_fc.bias", Dim::kInner},
    {Slot::kDown, "transformer.h.{l}.mlp.c_proj.weight", Dim::kHidden, Dim::kInner},
    {Slot::kDownBias, "transformer.h.{l}.mlp.c_proj.bias", Dim::kHidden},
    {Slot::kFinalNorm, "transformer.ln_f.weight", Dim::kHidden},
    {Slot::kFinalNormBias, "transformer.ln_f.bias", Dim::kHidden},
    llama::kHead,
};
constexpr WeightTable kWeights[] = {{"", kRules}};

}  // namespace

const ModelFamily kGptBigCode = {"GPTBigCodeForCausalLM", read_spec, kWeights, make_decoder};

}  // namespace lmdeploy
