// models/chatglm.cc -- ChatGLM2 and 3, GLM-4-9B as first released; their conversions GLM-4-9B-hf and
// GLM-4-0414. Source: modeling_chatglm.py, config.json and index files of THUDM/chatglm3-6b and
// glm-4-9b-chat; modeling_glm.py and modeling_glm4.py in transformers 4.51.
#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/models/decoder.h"
#include "lmdeploy/models/families.h"
#include "lmdeploy/models/llama_like.h"
#include "lmdeploy/models/other_models.h"

namespace lmdeploy {
namespace {

void require(const ConfigReader& cfg, std::string_view key, bool value, bool fallback) {
  if (cfg.get(key, fallback) != value)
    throw Error(ErrorCode::kUnsupported, cat(cfg.where(), ": \"", key, "\" must be ",
                                             value ? "true" : "false", " for this architecture"));
}

DecoderSpec read_chatglm(const ConfigReader& cfg) {
  if (cfg.has("position_encoding_2d") || cfg.has("inner_hidden_size"))
    throw Error(ErrorCode::kUnsupported,
                cat(cfg.where(),
                    ": this is the first ChatGLM, whose positions have two dimensions; supported are "
                    "ChatGLM2, ChatGLM3 and GLM-4"));
  refuse_pictures(cfg, "vision_config");  // GLM-4V
  require(cfg, "rmsnorm", true, true);
  require(cfg, "post_layer_norm", true, true);
  require(cfg, "apply_residual_connection_post_layernorm", false, false);
  const bool grouped = cfg.get("multi_query_attention", false);
  DecoderSpec s =
      read_llama_like(cfg, {.intermediate_size = "ffn_hidden_size",
                            .num_layers = "num_layers",
                            .num_kv_heads = grouped ? "multi_query_group_num" : "num_attention_heads",
                            .head_dim = "kv_channels",
                            .vocab_size = "padded_vocab_size|vocab_size",
                            .norm_eps = "layernorm_epsilon",
                            .default_norm_eps = 1e-5,
                            .default_head_dim = 128});
  s.o_bias = s.mlp_bias = cfg.get("add_bias_linear", false);
  s.qkv_bias = cfg.get("add_qkv_bias", false) || s.o_bias;
  s.rope.theta *= read_factor(cfg, "rope_ratio", 1);
  s.rope.rotary_dim = s.head_dim / 2;
  s.rope.interleaved = cfg.get("rope_interleaved", true);
  return s;
}

// The bias covers q, k and v; the rotated half of a head comes first and in pairs.
DecoderSpec read_glm(const ConfigReader& cfg) {
  DecoderSpec s = read_llama_like(cfg, {.default_norm_eps = 1.5625e-7,
                                        .default_rope = {.rotary_share = 0.5},
                                        .default_kv_heads = 2,
                                        .default_head_dim = 128,
                                        .default_max_positions = 131072,
                                        .default_attention_bias = true});
  s.o_bias = false;
  s.rope.interleaved = cfg.get("rope_interleaved", true);
  return s;
}

DecoderSpec read_glm4(const ConfigReader& cfg) {
  DecoderSpec s = read_glm(cfg);
  s.output_norms = true;
  return s;
}

constexpr WeightRule kChatGlmRules[] = {
    {Slot::kEmbed, "transformer.embedding.word_embeddings.weight", Dim::kVocab, Dim::kHidden},
    {Slot::kAttentionNorm, "transformer.encoder.layers.{l}.input_layernorm.weight", Dim::kHidden},
    {Slot::kQkv, "transformer.encoder.layers.{l}.self_attention.query_key_value.weight", Dim::kQkv,
     Dim::kHidden},
    {Slot::kQkvBias, "transformer.encoder.layers.{l}.self_attention.query_key_value.bias", Dim::kQkv,
     Dim::kNone, 0, with_qkv_bias},
    {Slot::kO, "transformer.encoder.layers.{l}.self_attention.dense.weight", Dim::kHidden, Dim::kQ},
    {Slot::kOBias, "transformer.encoder.layers.{l}.self_attention.dense.bias", Dim::kHidden, Dim::kNone, 0,
     with_o_bias},
    {Slot::kMlpNorm, "transformer.encoder.layers.{l}.post_attention_layernorm.weight", Dim::kHidden},
    {Slot::kUp, "transformer.encoder.layers.{l}.mlp.dense_h_to_4h.weight", Dim::kGateUp, Dim::kHidden},
    {Slot::kUpBias, "transformer.encoder.layers.{l}.mlp.dense_h_to_4h.bias", Dim::kGateUp, Dim::kNone, 0,
     dense_with_bias},
    {Slot::kDown, "transformer.encoder.layers.{l}.mlp.dense_4h_to_h.weight", Dim::kHidden, Dim::kInner},
    {Slot::kDownBias, "transformer.encoder.layers.{l}.mlp.dense_4h_to_h.bias", Dim::kHidden, Dim::kNone, 0,
     dense_with_bias},
    {Slot::kFinalNorm, "transformer.encoder.final_layernorm.weight", Dim::kHidden},
    {Slot::kLmHead, "transformer.output_layer.weight", Dim::kVocab, Dim::kHidden, 0, untied},
};
constexpr std::array kOutputNorms = {
    WeightRule{Slot::kAttentionOutNorm, "model.layers.{l}.post_self_attn_layernorm.weight", Dim::kHidden},
    WeightRule{Slot::kMlpOutNorm, "model.layers.{l}.post_mlp_layernorm.weight", Dim::kHidden},
};
constexpr auto kGlmRules = join(llama::kEnds, llama::kNorms, llama::kAttention, llama::kFusedMlp);
constexpr auto kGlm4Rules = join(kGlmRules, kOutputNorms);

constexpr WeightTable kChatGlmWeights[] = {{"", kChatGlmRules}};
constexpr WeightTable kGlmWeights[] = {{"", kGlmRules}};
constexpr WeightTable kGlm4Weights[] = {{"", kGlm4Rules}};

}  // namespace

const ModelFamily kChatGlm = {"ChatGLMModel", read_chatglm, kChatGlmWeights, make_decoder};
const ModelFamily kChatGlmGeneration = {"ChatGLMForConditionalGeneration", read_chatglm, kChatGlmWeights,
                                        make_decoder};
const ModelFamily kGlm = {"GlmForCausalLM", read_glm, kGlmWeights, make_decoder};
const ModelFamily kGlm4 = {"Glm4ForCausalLM", read_glm4, kGlm4Weights, make_decoder};

}  // namespace lmdeploy
