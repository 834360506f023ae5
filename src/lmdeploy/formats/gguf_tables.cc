// Facts of ggml-org/llama.cpp: names and keys from gguf-py/gguf/constants.py, what the converter changes from
// conversion/*.py, what is required and what absent keys mean from src/models/*.cpp. A hub name that no hub
// checkpoint has ("qkv_proj" of Falcon, "c_attn.linear" of GPT-2, "experts.w1") marks a tensor that the
// converter stores in another form; the family has a table of rules for it.
#include "lmdeploy/formats/gguf_tables.h"

#include <array>

namespace lmdeploy {
namespace {

template <typename Rule, size_t... Sizes>
constexpr auto join(const std::array<Rule, Sizes>&... tables) {
  std::array<Rule, (Sizes + ...)> all{};
  size_t next = 0;
  (
      [&] {
        for (const Rule& rule : tables) all[next++] = rule;
      }(),
      ...);
  return all;
}

// ---- Names.

using Name = GgufNameRule;

constexpr std::array kEnds = {
    Name{"token_embd.weight", "model.embed_tokens.weight"},
    Name{"output_norm.weight", "model.norm.weight"},
    Name{"output_norm.bias", "model.norm.bias"},
    Name{"output.weight", "lm_head.weight"},
    Name{"output.bias", "lm_head.bias"},
};
constexpr std::array kPhi2Ends = {
    Name{"token_embd.weight", "model.embed_tokens.weight"},
    Name{"output_norm.weight", "model.final_layernorm.weight"},
    Name{"output_norm.bias", "model.final_layernorm.bias"},
    Name{"output.weight", "lm_head.weight"},
    Name{"output.bias", "lm_head.bias"},
};
constexpr std::array kFalconEnds = {
    Name{"token_embd.weight", "transformer.word_embeddings.weight"},
    Name{"output_norm.weight", "transformer.ln_f.weight"},
    Name{"output_norm.bias", "transformer.ln_f.bias"},
    Name{"output.weight", "lm_head.weight"},
};
constexpr std::array kGpt2Ends = {
    Name{"token_embd.weight", "transformer.wte.weight"},
    Name{"position_embd.weight", "transformer.wpe.weight"},
    Name{"output_norm.weight", "transformer.ln_f.weight"},
    Name{"output_norm.bias", "transformer.ln_f.bias"},
    Name{"output.weight", "lm_head.weight"},
};
constexpr std::array kNeoxEnds = {
    Name{"token_embd.weight", "gpt_neox.embed_in.weight"},
    Name{"output_norm.weight", "gpt_neox.final_layer_norm.weight"},
    Name{"output_norm.bias", "gpt_neox.final_layer_norm.bias"},
    Name{"output.weight", "embed_out.weight"},
};

constexpr std::array kInputNorms = {
    Name{"attn_norm", "input_layernorm"},
    Name{"ffn_norm", "post_attention_layernorm"},
};
constexpr std::array kOutputNorms = {
    Name{"post_attention_norm", "post_attention_layernorm"},
    Name{"post_ffw_norm", "post_feedforward_layernorm"},
};
constexpr std::array kSandwichInputNorms = {
    Name{"attn_norm", "input_layernorm"},
    Name{"ffn_norm", "pre_feedforward_layernorm"},
};
constexpr std::array kAttention = {
    Name{"attn_q", "self_attn.q_proj"},
    Name{"attn_k", "self_attn.k_proj"},
    Name{"attn_v", "self_attn.v_proj"},
    Name{"attn_output", "self_attn.o_proj"},
};
constexpr std::array kHeadNorms = {
    Name{"attn_q_norm", "self_attn.q_norm"},
    Name{"attn_k_norm", "self_attn.k_norm"},
};
constexpr std::array kMlp = {
    Name{"ffn_gate", "mlp.gate_proj"},
    Name{"ffn_up", "mlp.up_proj"},
    Name{"ffn_down", "mlp.down_proj"},
};
constexpr std::array kExperts = {
    Name{"ffn_gate_inp", "mlp.gate"},
    Name{"ffn_gate_exps", "mlp.experts.gate_proj"},
    Name{"ffn_up_exps", "mlp.experts.up_proj"},
    Name{"ffn_down_exps", "mlp.experts.down_proj"},
};
// Before April 2024 each expert had tensors of its own.
constexpr std::array kMixtral = {
    Name{"ffn_gate_inp", "block_sparse_moe.gate"},
    Name{"ffn_gate_exps", "block_sparse_moe.experts.w1"},
    Name{"ffn_up_exps", "block_sparse_moe.experts.w3"},
    Name{"ffn_down_exps", "block_sparse_moe.experts.w2"},
    Name{"ffn_gate.{e}", "block_sparse_moe.experts.{e}.w1"},
    Name{"ffn_up.{e}", "block_sparse_moe.experts.{e}.w3"},
    Name{"ffn_down.{e}", "block_sparse_moe.experts.{e}.w2"},
};
constexpr std::array kQwenShared = {
    Name{"ffn_gate_inp_shexp", "mlp.shared_expert_gate"},
    Name{"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
    Name{"ffn_up_shexp", "mlp.shared_expert.up_proj"},
    Name{"ffn_down_shexp", "mlp.shared_expert.down_proj"},
};
constexpr std::array kDeepseekShared = {
    Name{"exp_probs_b.bias", "mlp.gate.e_score_correction_bias"},
    Name{"ffn_gate_shexp", "mlp.shared_experts.gate_proj"},
    Name{"ffn_up_shexp", "mlp.shared_experts.up_proj"},
    Name{"ffn_down_shexp", "mlp.shared_experts.down_proj"},
};
// kv_b_proj whole in files before April 2025, then split by heads, the part of the keys turned over.
constexpr std::array kLatentAttention = {
    Name{"attn_q", "self_attn.q_proj"},
    Name{"attn_q_a", "self_attn.q_a_proj"},
    Name{"attn_q_a_norm", "self_attn.q_a_layernorm"},
    Name{"attn_q_b", "self_attn.q_b_proj"},
    Name{"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
    Name{"attn_kv_a_norm", "self_attn.kv_a_layernorm"},
    Name{"attn_kv_b", "self_attn.kv_b_proj"},
    Name{"attn_k_b", "self_attn.k_b_proj"},
    Name{"attn_v_b", "self_attn.v_b_proj"},
    Name{"attn_output", "self_attn.o_proj"},
};
constexpr std::array kPhi2Layer = {
    Name{"attn_norm", "input_layernorm"},
    Name{"attn_q", "self_attn.q_proj"},
    Name{"attn_k", "self_attn.k_proj"},
    Name{"attn_v", "self_attn.v_proj"},
    Name{"attn_qkv", "self_attn.qkv_proj"},
    Name{"attn_output", "self_attn.dense"},
    Name{"ffn_up", "mlp.fc1"},
    Name{"ffn_down", "mlp.fc2"},
};
constexpr std::array kPhi3Layer = {
    Name{"attn_qkv", "self_attn.qkv_proj"},
    Name{"attn_output", "self_attn.o_proj"},
    Name{"ffn_up", "mlp.gate_up_proj"},
    Name{"ffn_down", "mlp.down_proj"},
};
constexpr std::array kStarcoder2Mlp = {
    Name{"ffn_up", "mlp.c_fc"},
    Name{"ffn_down", "mlp.c_proj"},
};
constexpr std::array kStablelmHeadNorms = {
    Name{"attn_q_norm", "self_attn.q_layernorm"},
    Name{"attn_k_norm", "self_attn.k_layernorm"},
};
// With two norms attention reads the second one.
constexpr std::array kFalconLayer = {
    Name{"attn_norm", "ln_mlp"},
    Name{"attn_norm_2", "ln_attn"},
    Name{"attn_qkv", "self_attention.qkv_proj"},
    Name{"attn_output", "self_attention.dense"},
    Name{"ffn_up", "mlp.dense_h_to_4h"},
    Name{"ffn_down", "mlp.dense_4h_to_h"},
};
constexpr std::array kGpt2Layer = {
    Name{"attn_norm", "ln_1"},
    Name{"attn_qkv", "attn.c_attn.linear"},
    Name{"attn_output", "attn.c_proj.linear"},
    Name{"ffn_norm", "ln_2"},
    Name{"ffn_up", "mlp.c_fc.linear"},
    Name{"ffn_down", "mlp.c_proj.linear"},
};
constexpr std::array kNeoxLayer = {
    Name{"attn_norm", "input_layernorm"},   Name{"attn_qkv", "attention.qkv_proj"},
    Name{"attn_output", "attention.dense"}, Name{"ffn_norm", "post_attention_layernorm"},
    Name{"ffn_up", "mlp.dense_h_to_4h"},    Name{"ffn_down", "mlp.dense_4h_to_h"},
};

constexpr auto kLlamaLayer = join(kInputNorms, kAttention, kMlp, kMixtral);
constexpr auto kPlainLayer = join(kInputNorms, kAttention, kMlp);
constexpr auto kQwen3Layer = join(kPlainLayer, kHeadNorms);
constexpr auto kQwen2MoeLayer = join(kInputNorms, kAttention, kExperts, kQwenShared);
constexpr auto kQwen3MoeLayer = join(kInputNorms, kAttention, kHeadNorms, kExperts);
constexpr auto kGemma2Layer = join(kSandwichInputNorms, kOutputNorms, kAttention, kMlp);
constexpr auto kGemma3Layer = join(kGemma2Layer, kHeadNorms);
constexpr auto kPhi3WholeLayer = join(kInputNorms, kPhi3Layer);
constexpr auto kStarcoder2Layer = join(kInputNorms, kAttention, kStarcoder2Mlp);
constexpr auto kOlmo2Layer = join(kOutputNorms, kAttention, kHeadNorms, kMlp);
constexpr auto kStablelmLayer = join(kPlainLayer, kStablelmHeadNorms);
constexpr auto kCommandRLayer = join(kPlainLayer, kHeadNorms);
constexpr auto kDeepseekLayer = join(kPlainLayer, kExperts, kDeepseekShared);
constexpr auto kDeepseek2Layer = join(kInputNorms, kLatentAttention, kMlp, kExperts, kDeepseekShared);

// ---- Config. Required: what llama.cpp does not read the model without.

using Key = GgufConfigRule;
using Kind = GgufConfigRule::Kind;

constexpr std::array kCommonConfig = {
    Key{"context_length", "max_position_embeddings", Kind::kInt, true},
    Key{"embedding_length", "hidden_size", Kind::kInt, true},
    Key{"block_count", "num_hidden_layers", Kind::kInt, true},
    Key{"feed_forward_length", "intermediate_size", Kind::kInt, true},
    Key{"attention.head_count", "num_attention_heads", Kind::kInt, true},
    Key{"attention.head_count_kv", "num_key_value_heads", Kind::kInt},
    Key{"attention.key_length", "head_dim", Kind::kInt},
    Key{"rope.freq_base", "rope_theta", Kind::kFloat},
    Key{"vocab_size", "vocab_size", Kind::kInt},
};

constexpr Key rms_eps(std::string_view hub = "rms_norm_eps") {
  return {"attention.layer_norm_rms_epsilon", hub, Kind::kFloat, true};
}
constexpr Key layer_eps(std::string_view hub) {
  return {"attention.layer_norm_epsilon", hub, Kind::kFloat, true};
}
constexpr Key kWindow = {"attention.sliding_window", "sliding_window", Kind::kInt};
constexpr Key kTopK = {"expert_used_count", "num_experts_per_tok", Kind::kInt};
constexpr Key kExpertSize = {"expert_feed_forward_length", "moe_intermediate_size", Kind::kInt};
constexpr Key kFinalCap = {"final_logit_softcapping", "final_logit_softcapping", Kind::kFloat};

constexpr std::array kRmsConfig = {rms_eps()};
constexpr std::array kLlamaConfig = {rms_eps(), kWindow, kTopK,
                                     Key{"expert_count", "num_local_experts", Kind::kInt}};
constexpr std::array kQwenMoeConfig = {
    rms_eps(), kTopK, kExpertSize, Key{"expert_count", "num_experts", Kind::kInt, true},
    Key{"expert_shared_feed_forward_length", "shared_expert_intermediate_size", Kind::kInt}};
constexpr std::array kGemma2Config = {rms_eps(), kWindow, kFinalCap,
                                      Key{"attn_logit_softcapping", "attn_logit_softcapping", Kind::kFloat}};
constexpr std::array kGemma3Config = {rms_eps(), kWindow, kFinalCap,
                                      Key{"rope.freq_base_swa", "rope_local_base_freq", Kind::kFloat}};
constexpr std::array kPhiConfig = {layer_eps("layer_norm_eps")};
constexpr std::array kPhi3Config = {rms_eps(), kWindow};
constexpr std::array kStarcoder2Config = {layer_eps("norm_epsilon")};
constexpr std::array kFalconConfig = {layer_eps("layer_norm_epsilon"),
                                      Key{"attention.head_count_kv", "num_kv_heads", Kind::kInt}};
constexpr std::array kGpt2Config = {
    layer_eps("layer_norm_epsilon"), Key{"embedding_length", "n_embd", Kind::kInt},
    Key{"block_count", "n_layer", Kind::kInt}, Key{"attention.head_count", "n_head", Kind::kInt},
    Key{"feed_forward_length", "n_inner", Kind::kInt}};
constexpr std::array kNeoxConfig = {layer_eps("layer_norm_eps"),
                                    Key{"use_parallel_residual", "use_parallel_residual", Kind::kBool}};
constexpr std::array kStablelmConfig = {layer_eps("layer_norm_eps")};
constexpr std::array kCommandRConfig = {layer_eps("layer_norm_eps"),
                                        Key{"logit_scale", "logit_scale", Kind::kFloat, true}};
constexpr std::array kGraniteConfig = {rms_eps(), Key{"logit_scale", "logits_scaling", Kind::kFloat, true},
                                       Key{"attention.scale", "attention_multiplier", Kind::kFloat, true},
                                       Key{"embedding_scale", "embedding_multiplier", Kind::kFloat},
                                       Key{"residual_scale", "residual_multiplier", Kind::kFloat}};
constexpr std::array kDeepseekConfig = {
    rms_eps(),
    kTopK,
    Key{"expert_feed_forward_length", "moe_intermediate_size", Kind::kInt, true},
    Key{"expert_count", "n_routed_experts", Kind::kInt, true},
    Key{"expert_shared_count", "n_shared_experts", Kind::kInt, true},
    Key{"leading_dense_block_count", "first_k_dense_replace", Kind::kInt},
    Key{"expert_weights_scale", "routed_scaling_factor", Kind::kFloat},
    Key{"expert_weights_norm", "norm_topk_prob", Kind::kBool},
};
constexpr std::array kLatentConfig = {
    Key{"attention.kv_lora_rank", "kv_lora_rank", Kind::kInt, true},
    Key{"attention.q_lora_rank", "q_lora_rank", Kind::kInt},
    Key{"expert_group_count", "n_group", Kind::kInt},
    Key{"expert_group_used_count", "topk_group", Kind::kInt},
    Key{"expert_gating_func", "scoring_func", Kind::kScores},
};
constexpr auto kDeepseek2Config = join(kDeepseekConfig, kLatentConfig);

constexpr std::array kNeutral = {
    GgufNeutralRule{"attention.clamp_kqv", 0},
    GgufNeutralRule{"attention.max_alibi_bias", 0},
    GgufNeutralRule{"attention.scale", 0},
    GgufNeutralRule{"attention.sliding_window", 0},
    GgufNeutralRule{"attention.temperature_scale", 0},
    GgufNeutralRule{"logit_scale", 0},
    GgufNeutralRule{"residual_scale", 0},
    GgufNeutralRule{"embedding_scale", 0},
    GgufNeutralRule{"attn_logit_softcapping", 0},
    GgufNeutralRule{"final_logit_softcapping", 0},
    GgufNeutralRule{"rope.scaling.yarn_ext_factor", 1},
    GgufNeutralRule{"rope.scaling.yarn_attn_factor", 1},
    GgufNeutralRule{"rope.scaling.yarn_log_multiplier", 0},
    GgufNeutralRule{"rope.scaling.finetuned", 1},  // Granite: 0 is no rope at all
    GgufNeutralRule{"expert_gating_func", 1},      // softmax
    GgufNeutralRule{"expert_weights_scale", 1},
    GgufNeutralRule{"expert_shared_count", 0},
    GgufNeutralRule{"expert_shared_feed_forward_length", 0},
    GgufNeutralRule{"expert_group_count", 1},
    GgufNeutralRule{"leading_dense_block_count", 0},
    GgufNeutralRule{"nextn_predict_layers", 0},
};

// ---- What tensors tell.

using Told = GgufTensorRule;

constexpr std::array kCommonTensors = {
    Told{"output.weight", "tie_word_embeddings", "false", "true"},
    Told{"blk.0.attn_q.bias", "attention_bias", "true", "false"},
    Told{"blk.0.ffn_up.bias", "mlp_bias", "true", "false"},
};
constexpr std::array kQwen2Tensors = {Told{"blk.0.attn_q.bias", "qkv_bias", "true", "false"}};
constexpr std::array kStarcoder2Tensors = {Told{"blk.0.attn_q.bias", "use_bias", "true", "false"}};
constexpr std::array kFalconTensors = {
    Told{"blk.0.attn_norm_2.weight", "num_ln_in_parallel_attn", "2", "1"},
    Told{"blk.0.attn_qkv.bias", "bias", "true", "false"},
};
constexpr std::array kNeoxTensors = {Told{"blk.0.attn_qkv.bias", "attention_bias", "true", "false"}};
constexpr std::array kStablelmTensors = {
    Told{"blk.0.attn_q.bias", "use_qkv_bias", "true", "false"},
    Told{"blk.0.ffn_norm.weight", "use_parallel_residual", "false", "true"},
    Told{"blk.0.attn_q_norm.weight", "qk_layernorm", "true", "false"},
};
constexpr std::array kCommandRTensors = {Told{"blk.0.attn_q_norm.weight", "use_qk_norm", "true", "false"}};

// ---- The architectures. Which rotary pairs: llama_model_rope_type() in src/llama-model.cpp.

constexpr std::string_view kSilu = R"({"hidden_act": "silu"})";
// The converter writes a norm's 1 + w. Activations are scaled as the original's bf16 holds the factor.
constexpr std::string_view kGemma =
    R"({"hidden_activation": "gelu_pytorch_tanh", "torch_dtype": "bfloat16", "norm_weight_offset": 0.0})";

constexpr GgufArchitecture kArchitectures[] = {
    {.name = "llama",
     .hub_class = "LlamaForCausalLM",
     .expert_class = "MixtralForCausalLM",
     .model_type = "llama",
     .rope_interleaved = true,
     .constants = kSilu,
     .names = kEnds,
     .layer_names = kLlamaLayer,
     .config = kLlamaConfig},
    {.name = "qwen2",
     .hub_class = "Qwen2ForCausalLM",
     .model_type = "qwen2",
     .constants = kSilu,
     .names = kEnds,
     .layer_names = kPlainLayer,
     .config = kRmsConfig,
     .tensors = kQwen2Tensors},
    {.name = "qwen2moe",
     .hub_class = "Qwen2MoeForCausalLM",
     .expert_class = "Qwen2MoeForCausalLM",
     .model_type = "qwen2_moe",
     .constants = R"({"hidden_act": "silu", "norm_topk_prob": false})",
     .names = kEnds,
     .layer_names = kQwen2MoeLayer,
     .config = kQwenMoeConfig,
     .tensors = kQwen2Tensors,
     .divided_experts = true},
    {.name = "qwen3",
     .hub_class = "Qwen3ForCausalLM",
     .model_type = "qwen3",
     .constants = kSilu,
     .names = kEnds,
     .layer_names = kQwen3Layer,
     .config = kRmsConfig},
    {.name = "qwen3moe",
     .hub_class = "Qwen3MoeForCausalLM",
     .expert_class = "Qwen3MoeForCausalLM",
     .model_type = "qwen3_moe",
     .constants = R"({"hidden_act": "silu", "norm_topk_prob": true})",
     .names = kEnds,
     .layer_names = kQwen3MoeLayer,
     .config = kQwenMoeConfig,
     .divided_experts = true},
    {.name = "gemma",
     .hub_class = "GemmaForCausalLM",
     .model_type = "gemma",
     .constants = kGemma,
     .names = kEnds,
     .layer_names = kPlainLayer,
     .config = kRmsConfig},
    {.name = "gemma2",
     .hub_class = "Gemma2ForCausalLM",
     .model_type = "gemma2",
     .constants = R"({"hidden_activation": "gelu_pytorch_tanh", "torch_dtype": "bfloat16",
                      "norm_weight_offset": 0.0, "attn_logit_softcapping": 50.0,
                      "final_logit_softcapping": 30.0, "sliding_window": 4096})",
     .names = kEnds,
     .layer_names = kGemma2Layer,
     .config = kGemma2Config,
     .wide_query_layers = 46,
     .window_period = 2},
    {.name = "gemma3",
     .hub_class = "Gemma3ForCausalLM",
     .model_type = "gemma3_text",
     .constants = kGemma,
     .names = kEnds,
     .layer_names = kGemma3Layer,
     .config = kGemma3Config,
     .wide_query_layers = 62,
     .window_period = 6},
    {.name = "phi2",
     .hub_class = "PhiForCausalLM",
     .model_type = "phi",
     .constants = R"({"hidden_act": "gelu_new"})",
     .names = kPhi2Ends,
     .layer_names = kPhi2Layer,
     .config = kPhiConfig},
    {.name = "phi3",
     .hub_class = "Phi3ForCausalLM",
     .model_type = "phi3",
     .constants = kSilu,
     .names = kEnds,
     .layer_names = kPhi3WholeLayer,
     .config = kPhi3Config},
    {.name = "starcoder2",
     .hub_class = "Starcoder2ForCausalLM",
     .model_type = "starcoder2",
     .constants = R"({"hidden_act": "gelu_pytorch_tanh"})",
     .names = kEnds,
     .layer_names = kStarcoder2Layer,
     .config = kStarcoder2Config,
     .tensors = kStarcoder2Tensors},
    // Every Falcon that the converter takes fits the form of the 40B and 11B models.
    {.name = "falcon",
     .hub_class = "FalconForCausalLM",
     .model_type = "falcon",
     .constants = R"({"activation": "gelu", "new_decoder_architecture": true})",
     .names = kFalconEnds,
     .layer_names = kFalconLayer,
     .layer_prefix = "transformer.h.",
     .config = kFalconConfig,
     .tensors = kFalconTensors},
    {.name = "gpt2",
     .hub_class = "GPT2LMHeadModel",
     .model_type = "gpt2",
     .constants = R"({"activation_function": "gelu_new"})",
     .names = kGpt2Ends,
     .layer_names = kGpt2Layer,
     .layer_prefix = "transformer.h.",
     .config = kGpt2Config},
    {.name = "gptneox",
     .hub_class = "GPTNeoXForCausalLM",
     .model_type = "gpt_neox",
     .constants = R"({"hidden_act": "gelu"})",
     .names = kNeoxEnds,
     .layer_names = kNeoxLayer,
     .layer_prefix = "gpt_neox.layers.",
     .config = kNeoxConfig,
     .tensors = kNeoxTensors},
    {.name = "olmo2",
     .hub_class = "Olmo2ForCausalLM",
     .model_type = "olmo2",
     .constants = kSilu,
     .names = kEnds,
     .layer_names = kOlmo2Layer,
     .config = kRmsConfig},
    {.name = "stablelm",
     .hub_class = "StableLmForCausalLM",
     .model_type = "stablelm",
     .constants = kSilu,
     .names = kEnds,
     .layer_names = kStablelmLayer,
     .config = kStablelmConfig,
     .tensors = kStablelmTensors},
    {.name = "command-r",
     .hub_class = "CohereForCausalLM",
     .model_type = "cohere",
     .rope_interleaved = true,
     .constants = kSilu,
     .names = kEnds,
     .layer_names = kCommandRLayer,
     .config = kCommandRConfig,
     .tensors = kCommandRTensors},
    {.name = "granite",
     .hub_class = "GraniteForCausalLM",
     .model_type = "granite",
     .rope_interleaved = true,
     .constants = kSilu,
     .names = kEnds,
     .layer_names = kPlainLayer,
     .config = kGraniteConfig},
    {.name = "deepseek",
     .hub_class = "DeepseekForCausalLM",
     .expert_class = "DeepseekForCausalLM",
     .model_type = "deepseek",
     .rope_interleaved = true,
     .constants = R"({"hidden_act": "silu", "topk_method": "greedy", "scoring_func": "softmax"})",
     .names = kEnds,
     .layer_names = kDeepseekLayer,
     .config = kDeepseekConfig},
    {.name = "deepseek2",
     .hub_class = "DeepseekV2ForCausalLM",
     .expert_class = "DeepseekV2ForCausalLM",
     .model_type = "deepseek_v2",
     .rope_interleaved = true,
     .constants = R"({"hidden_act": "silu", "scoring_func": "softmax", "norm_topk_prob": false})",
     .names = kEnds,
     .layer_names = kDeepseek2Layer,
     .config = kDeepseek2Config,
     .latent_attention = true},
};

}  // namespace

const GgufArchitecture* find_gguf_architecture(std::string_view name) {
  for (const GgufArchitecture& known : kArchitectures) {
    if (known.name == name) return &known;
  }
  return nullptr;
}

std::span<const GgufConfigRule> gguf_common_config() { return kCommonConfig; }
std::span<const GgufTensorRule> gguf_common_tensors() { return kCommonTensors; }
std::span<const GgufNeutralRule> gguf_neutral() { return kNeutral; }

}  // namespace lmdeploy
