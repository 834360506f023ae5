// What Llama and its many relatives share: the config keys and the tensor names.
#pragma once

#include <array>
#include <string_view>

#include "lmdeploy/models/decoder_spec.h"
#include "lmdeploy/models/weight_rules.h"

namespace lmdeploy {

class ConfigReader;

/// Sizes, rope, norm eps, biases, tied head, lengths and end ids. Throws Error(kInvalidData | kUnsupported)
/// naming the key; every size returned is positive, and small enough that products of two do not overflow.
DecoderSpec read_llama_like(const ConfigReader& cfg);

/// Min over the length keys that exist, 2048 when there is none; no rope scaling applied.
int64_t read_max_positions(const ConfigReader& cfg);

/// The tensors of LlamaForCausalLM, with the two names that relatives change.
constexpr std::array<WeightRule, 19> llama_rules(
    std::string_view attention_norm = "model.layers.{l}.input_layernorm.weight",
    std::string_view mlp_norm = "model.layers.{l}.post_attention_layernorm.weight") {
  return {{
      {Slot::kEmbed, "model.embed_tokens.weight", Dim::kVocab, Dim::kHidden},
      {Slot::kAttentionNorm, attention_norm, Dim::kHidden},
      {Slot::kQkv, "model.layers.{l}.self_attn.q_proj.weight", Dim::kQ, Dim::kHidden, 0},
      {Slot::kQkv, "model.layers.{l}.self_attn.k_proj.weight", Dim::kKv, Dim::kHidden, 1},
      {Slot::kQkv, "model.layers.{l}.self_attn.v_proj.weight", Dim::kKv, Dim::kHidden, 2},
      {Slot::kQkvBias, "model.layers.{l}.self_attn.q_proj.bias", Dim::kQ, Dim::kNone, 0, with_qkv_bias},
      {Slot::kQkvBias, "model.layers.{l}.self_attn.k_proj.bias", Dim::kKv, Dim::kNone, 1, with_qkv_bias},
      {Slot::kQkvBias, "model.layers.{l}.self_attn.v_proj.bias", Dim::kKv, Dim::kNone, 2, with_qkv_bias},
      {Slot::kO, "model.layers.{l}.self_attn.o_proj.weight", Dim::kHidden, Dim::kQ},
      {Slot::kOBias, "model.layers.{l}.self_attn.o_proj.bias", Dim::kHidden, Dim::kNone, 0, with_o_bias},
      {Slot::kMlpNorm, mlp_norm, Dim::kHidden},
      {Slot::kGateUp, "model.layers.{l}.mlp.gate_proj.weight", Dim::kInner, Dim::kHidden, 0},
      {Slot::kGateUp, "model.layers.{l}.mlp.up_proj.weight", Dim::kInner, Dim::kHidden, 1},
      {Slot::kGateUpBias, "model.layers.{l}.mlp.gate_proj.bias", Dim::kInner, Dim::kNone, 0, with_mlp_bias},
      {Slot::kGateUpBias, "model.layers.{l}.mlp.up_proj.bias", Dim::kInner, Dim::kNone, 1, with_mlp_bias},
      {Slot::kDown, "model.layers.{l}.mlp.down_proj.weight", Dim::kHidden, Dim::kInner},
      {Slot::kDownBias, "model.layers.{l}.mlp.down_proj.bias", Dim::kHidden, Dim::kNone, 0, with_mlp_bias},
      {Slot::kFinalNorm, "model.norm.weight", Dim::kHidden},
      {Slot::kLmHead, "lm_head.weight", Dim::kVocab, Dim::kHidden, 0, untied},
  }};
}

}  // namespace lmdeploy
