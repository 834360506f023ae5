// models/qwen_v1.cc -- the first Qwen: 1.8B, 7B, 14B, 72B (2023).
// Source: modeling_qwen.py, config.json and model.safetensors.index.json of Qwen/Qwen-7B-Chat.
// `intermediate_size` is twice the width of a branch; the activated branch is w2.
#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/models/decoder.h"
#include "lmdeploy/models/families.h"
#include "lmdeploy/models/llama_like.h"
#include "lmdeploy/models/other_models.h"

namespace lmdeploy {
namespace {

DecoderSpec read_spec(const ConfigReader& cfg) {
  refuse_pictures(cfg, "visual");  // Qwen-VL
  DecoderSpec s = read_llama_like(cfg, {.num_kv_heads = "",
                                        .head_dim = "kv_channels",
                                        .norm_eps = "layer_norm_epsilon",
                                        .activation = "activation",
                                        .default_head_dim = 128,
                                        .default_max_positions = 8192});
  if (s.intermediate_size % 2 != 0)
    throw Error(ErrorCode::kInvalidData, cat(cfg.where(), ": \"intermediate_size\" is ", s.intermediate_size,
                                             ", expected an even number"));
  if (!cfg.get("no_bias", true))
    throw Error(ErrorCode::kUnsupported, cat(cfg.where(), ": \"no_bias\" false is not supported"));
  s.intermediate_size /= 2;
  s.qkv_bias = true;
  const int64_t length = read_size_or(cfg, "seq_length", 8192);
  if (cfg.get("use_dynamic_ntk", true) && s.rope.kind == RopeSpec::Kind::kDefault) {
    s.rope.kind = RopeSpec::Kind::kQwenNtk;
    s.rope.original_max_positions = length;
    s.max_positions = read_size_or(cfg, "max_position_embeddings", s.max_positions);
  }
  s.logn_length = cfg.get("use_logn_attn", true) ? length : 0;
  return s;
}

constexpr WeightRule kRules[] = {
    {Slot::kEmbed, "transformer.wte.weight", Dim::kVocab, Dim::kHidden},
    {Slot::kAttentionNorm, "transformer.h.{l}.ln_1.weight", Dim::kHidden},
    {Slot::kQkv, "transformer.h.{l}.attn.c_attn.weight", Dim::kQkv, Dim::kHidden},
    {Slot::kQkvBias, "transformer.h.{l}.attn.c_attn.bias", Dim::kQkv},
    {Slot::kO, "transformer.h.{l}.attn.c_proj.weight", Dim::kHidden, Dim::kQ},
    {Slot::kMlpNorm, "transformer.h.{l}.ln_2.weight", Dim::kHidden},
    {Slot::kUp, "transformer.h.{l}.mlp.w2.weight", Dim::kInner, Dim::kHidden, 0},
    {Slot::kUp, "transformer.h.{l}.mlp.w1.weight", Dim::kInner, Dim::kHidden, 1},
    {Slot::kDown, "transformer.h.{l}.mlp.c_proj.weight", Dim::kHidden, Dim::kInner},
    {Slot::kFinalNorm, "transformer.ln_f.weight", Dim::kHidden},
    {Slot::kLmHead, "lm_head.weight", Dim::kVocab, Dim::kHidden, 0, untied},
};
constexpr WeightTable kWeights[] = {{"", kRules}};

}  // namespace

const ModelFamily kQwenV1 = {"QWenLMHeadModel", read_spec, kWeights, make_decoder};

}  // namespace lmdeploy
