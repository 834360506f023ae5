#include "lmdeploy/formats/gguf_tables.h"

namespace lmdeploy {
namespace {

// Stored names: gguf-py/gguf/constants.py (TENSOR_NAMES, Keys) of ggml-org/llama.cpp; the hub's:
// LlamaForCausalLM.
constexpr GgufNameRule kLlamaNames[] = {
    {"token_embd.weight", "model.embed_tokens.weight"},
    {"output_norm.weight", "model.norm.weight"},
    {"output.weight", "lm_head.weight"},
    {"output.bias", "lm_head.bias"},
    // One factor per rotary pair by which its frequency is divided (llama3 scaling); the hub has no tensor
    // for it.
    {"rope_freqs.weight", "rope_freqs.weight"},
};
constexpr GgufNameRule kLlamaLayerNames[] = {
    {"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},      {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"}, {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
};

using Kind = GgufConfigRule::Kind;
// Required: what llama.cpp does not read the model without.
constexpr GgufConfigRule kLlamaConfig[] = {
    {"context_length", "max_position_embeddings", Kind::kInt, true},
    {"embedding_length", "hidden_size", Kind::kInt, true},
    {"block_count", "num_hidden_layers", Kind::kInt, true},
    {"feed_forward_length", "intermediate_size", Kind::kInt, true},
    {"attention.head_count", "num_attention_heads", Kind::kInt, true},
    {"attention.head_count_kv", "num_key_value_heads", Kind::kInt},
    {"attention.key_length", "head_dim", Kind::kInt},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", Kind::kFloat, true},
    {"rope.freq_base", "rope_theta", Kind::kFloat},
    {"vocab_size", "vocab_size", Kind::kInt},
};
constexpr GgufNeutralRule kLlamaNeutral[] = {
    {"attention.clamp_kqv", 0},
    {"attention.max_alibi_bias", 0},
    {"attention.scale", 0},
    {"logit_scale", 0},
    {"residual_scale", 0},
    {"embedding_scale", 0},
    {"attn_logit_softcapping", 0},
    {"final_logit_softcapping", 0},
    {"rope.scaling.yarn_ext_factor", 1},
    {"rope.scaling.yarn_attn_factor", 1},
    {"rope.scaling.yarn_log_multiplier", 0},
};

constexpr GgufArchitecture kArchitectures[] = {
    {"llama", "LlamaForCausalLM", "llama", "silu", true, kLlamaNames, kLlamaLayerNames, kLlamaConfig,
     kLlamaNeutral},
};

}  // namespace

const GgufArchitecture* find_gguf_architecture(std::string_view name) {
  for (const GgufArchitecture& known : kArchitectures) {
    if (known.name == name) return &known;
  }
  return nullptr;
}

}  // namespace lmdeploy
