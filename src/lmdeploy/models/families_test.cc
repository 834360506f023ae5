// read_spec of every family on the configs of published models (docs/models.md sections 2 and 3), and on what
// those configs leave out.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/models/registry.h"
#include "lmdeploy/models/rope.h"
#include "lmdeploy/models/spec_check.h"

namespace lmdeploy {
namespace {

using Kind = RopeSpec::Kind;

DecoderSpec spec_of(const char* architecture, const std::string& keys) {
  const Json config =
      parse_json(cat("{\"architectures\": [\"", architecture, "\"], ", keys, "}"), architecture);
  const ConfigReader cfg(config, "config.json");
  return checked_spec(find_family(cfg), cfg);
}

struct Sizes {
  int64_t hidden, inner, layers, heads, kv_heads, head_dim, vocab, max_positions;
};
void expect_sizes(const DecoderSpec& s, const Sizes& want) {
  EXPECT_EQ(s.hidden_size, want.hidden);
  EXPECT_EQ(s.intermediate_size, want.inner);
  EXPECT_EQ(s.num_layers, want.layers);
  EXPECT_EQ(s.num_heads, want.heads);
  EXPECT_EQ(s.num_kv_heads, want.kv_heads);
  EXPECT_EQ(s.head_dim, want.head_dim);
  EXPECT_EQ(s.vocab_size, want.vocab);
  EXPECT_EQ(s.max_positions, want.max_positions);
}

struct Rope {
  Kind kind;
  double theta;
  int64_t rotary_dim;
  bool interleaved = false;
};
void expect_rope(const RopeSpec& rope, const Rope& want) {
  EXPECT_EQ(rope.kind, want.kind);
  EXPECT_EQ(rope.theta, want.theta);
  EXPECT_EQ(rope.rotary_dim, want.rotary_dim);
  EXPECT_EQ(rope.interleaved, want.interleaved);
}

/// One letter for each layer.
template <typename Letter>
std::string layers(const DecoderSpec& s, const Letter& letter) {
  std::string out;
  for (const LayerSpec& layer : s.layers) out += letter(layer);
  return out;
}
/// "w" where the layer has this window, "." where it has none, "?" else.
std::string windows(const DecoderSpec& s, int64_t window) {
  return layers(s, [=](const LayerSpec& l) { return l.window == window ? 'w' : l.window == 0 ? '.' : '?'; });
}
/// "e" for a layer with experts.
std::string experts(const DecoderSpec& s) {
  return layers(s, [](const LayerSpec& l) { return l.experts ? 'e' : '.'; });
}
std::string repeat(const std::string& text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}
std::string ones(int count) { return "1" + repeat(", 1", count - 1); }

TEST(Families, Llama31_8B) {
  const DecoderSpec s = spec_of("LlamaForCausalLM", R"("attention_bias": false, "bos_token_id": 128000,
      "eos_token_id": [128001, 128008, 128009], "hidden_act": "silu", "hidden_size": 4096,
      "intermediate_size": 14336, "max_position_embeddings": 131072, "mlp_bias": false,
      "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "pretraining_tp": 1,
      "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
      "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "rope_theta": 500000.0,
      "tie_word_embeddings": false, "torch_dtype": "bfloat16", "vocab_size": 128256)");
  expect_sizes(s, {4096, 14336, 32, 32, 8, 128, 128256, 131072});
  expect_rope(s.rope, {Kind::kLlama3, 5e5, 128});
  EXPECT_EQ(s.norm_eps, 1e-5f);
  EXPECT_EQ(s.eos_ids, (std::vector<int>{128001, 128008, 128009}));
  EXPECT_FALSE(s.qkv_bias || s.o_bias || s.mlp_bias || s.tied_embedding);
}

// The same model as transformers 5 writes it.
TEST(Families, Llama31_8BInTheNewSpelling) {
  const DecoderSpec s = spec_of("LlamaForCausalLM", R"("hidden_size": 4096, "intermediate_size": 14336,
      "max_position_embeddings": 131072, "num_attention_heads": 32, "num_hidden_layers": 32,
      "num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-05, "vocab_size": 128256, "dtype": "bfloat16",
      "rope_parameters": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_theta": 500000.0,
      "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "pad_token_id": null)");
  expect_sizes(s, {4096, 14336, 32, 32, 8, 128, 128256, 131072});
  expect_rope(s.rope, {Kind::kLlama3, 5e5, 128});
  EXPECT_EQ(s.rope.original_max_positions, 8192);
}

constexpr const char* kMistral =
    R"("hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
    "num_hidden_layers": 32, "max_position_embeddings": 32768, "rms_norm_eps": 1e-05, "eos_token_id": 2)";

TEST(Families, Mistral7B) {
  const DecoderSpec v1 = spec_of("MistralForCausalLM", cat(kMistral, R"(, "num_key_value_heads": 8,
      "rope_theta": 10000.0, "sliding_window": 4096, "vocab_size": 32000)"));
  expect_sizes(v1, {4096, 14336, 32, 32, 8, 128, 32000, 32768});
  expect_rope(v1.rope, {Kind::kDefault, 1e4, 128});
  EXPECT_EQ(windows(v1, 4096), repeat("w", 32));
  const DecoderSpec v3 = spec_of("MistralForCausalLM", cat(kMistral, R"(, "num_key_value_heads": 8,
      "rope_theta": 1000000.0, "sliding_window": null, "vocab_size": 32768)"));
  expect_rope(v3.rope, {Kind::kDefault, 1e6, 128});
  EXPECT_EQ(windows(v3, 4096), repeat(".", 32));
}

// MistralConfig: num_key_value_heads 8, sliding_window 4096; null says as many as heads, and none.
TEST(Families, MistralDefaults) {
  const DecoderSpec absent = spec_of("MistralForCausalLM", cat(kMistral, R"(, "vocab_size": 32000)"));
  EXPECT_EQ(absent.num_kv_heads, 8);
  EXPECT_EQ(absent.layers[0].window, 4096);
  const DecoderSpec null =
      spec_of("MistralForCausalLM",
              cat(kMistral, R"(, "vocab_size": 5, "num_key_value_heads": null, "sliding_window": null)"));
  EXPECT_EQ(null.num_kv_heads, 32);
  EXPECT_EQ(null.layers[0].window, 0);
}

TEST(Families, MistralNemoHasHeadsOfItsOwnSize) {
  const DecoderSpec s = spec_of("MistralForCausalLM", R"("head_dim": 128, "hidden_size": 5120,
      "intermediate_size": 14336, "max_position_embeddings": 1024000, "num_attention_heads": 32,
      "num_hidden_layers": 40, "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0,
      "sliding_window": null, "vocab_size": 131072)");
  expect_sizes(s, {5120, 14336, 40, 32, 8, 128, 131072, 1024000});
  EXPECT_EQ(s.q_size(), 4096);
}

TEST(Families, Mixtral8x7B) {
  const DecoderSpec s = spec_of("MixtralForCausalLM", R"("hidden_size": 4096, "intermediate_size": 14336,
      "max_position_embeddings": 32768, "num_attention_heads": 32, "num_experts_per_tok": 2,
      "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8, "output_router_logits": false,
      "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.02, "sliding_window": null,
      "vocab_size": 32000)");
  expect_sizes(s, {4096, 14336, 32, 32, 8, 128, 32000, 32768});
  EXPECT_EQ(s.experts.num_experts, 8);
  EXPECT_EQ(s.experts.top_k, 2);
  EXPECT_EQ(s.experts.inner_size, 14336);
  EXPECT_TRUE(s.experts.route.renormalize);
  EXPECT_EQ(experts(s), repeat("e", 32));
  // MixtralConfig: rope_theta 1e6, rms_norm_eps 1e-5, 8 kv heads, no window.
  const DecoderSpec bare = spec_of("MixtralForCausalLM", R"("hidden_size": 64, "intermediate_size": 16,
      "num_attention_heads": 16, "num_hidden_layers": 1, "vocab_size": 9)");
  EXPECT_EQ(bare.rope.theta, 1e6);
  EXPECT_EQ(bare.norm_eps, 1e-5f);
  EXPECT_EQ(bare.num_kv_heads, 8);
  EXPECT_EQ(bare.layers[0].window, 0);
}

TEST(Families, Qwen25_7B) {
  const DecoderSpec s = spec_of("Qwen2ForCausalLM", R"("eos_token_id": 151645, "hidden_size": 3584,
      "intermediate_size": 18944, "max_position_embeddings": 32768, "max_window_layers": 28,
      "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4, "rms_norm_eps": 1e-06,
      "rope_theta": 1000000.0, "sliding_window": 131072, "tie_word_embeddings": false,
      "use_sliding_window": false, "vocab_size": 152064)");
  expect_sizes(s, {3584, 18944, 28, 28, 4, 128, 152064, 32768});
  EXPECT_TRUE(s.qkv_bias);
  EXPECT_FALSE(s.o_bias);
  EXPECT_EQ(windows(s, 131072), repeat(".", 28));
}

TEST(Families, Qwen15MoeA27B) {
  const DecoderSpec s = spec_of("Qwen2MoeForCausalLM", R"("decoder_sparse_step": 1, "hidden_size": 2048,
      "intermediate_size": 5632, "max_position_embeddings": 8192, "max_window_layers": 21,
      "moe_intermediate_size": 1408, "norm_topk_prob": false, "num_attention_heads": 16, "num_experts": 60,
      "num_experts_per_tok": 4, "num_hidden_layers": 24, "num_key_value_heads": 16, "rms_norm_eps": 1e-06,
      "rope_theta": 1000000.0, "shared_expert_intermediate_size": 5632, "sliding_window": 32768,
      "use_sliding_window": false, "vocab_size": 151936)");
  expect_sizes(s, {2048, 5632, 24, 16, 16, 128, 151936, 8192});
  EXPECT_EQ(s.experts.num_experts, 60);
  EXPECT_EQ(s.experts.top_k, 4);
  EXPECT_EQ(s.experts.inner_size, 1408);
  EXPECT_EQ(s.experts.shared_inner_size, 5632);
  EXPECT_TRUE(s.experts.shared_gate);
  EXPECT_FALSE(s.experts.route.renormalize);
  EXPECT_EQ(experts(s), repeat("e", 24));
}

// Layer i has experts where (i + 1) % decoder_sparse_step is 0 and mlp_only_layers does not name it.
TEST(Families, QwenMoeLayersWithoutExperts) {
  const std::string sizes = R"("hidden_size": 64, "intermediate_size": 16, "num_attention_heads": 32,
      "num_hidden_layers": 6, "vocab_size": 9, "mlp_only_layers": [3], )";
  EXPECT_EQ(experts(spec_of("Qwen3MoeForCausalLM", sizes + R"("decoder_sparse_step": 2)")), ".e...e");
  EXPECT_EQ(experts(spec_of("Qwen2MoeForCausalLM", sizes + R"("num_experts_per_tok": 2)")), "eee.ee");
}

TEST(Families, Qwen3_4B) {
  const DecoderSpec s = spec_of("Qwen3ForCausalLM", R"("attention_bias": false, "head_dim": 128,
      "hidden_size": 2560, "intermediate_size": 9728, "max_position_embeddings": 40960, "max_window_layers": 36,
      "num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
      "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null, "tie_word_embeddings": true,
      "use_sliding_window": false, "vocab_size": 151936)");
  expect_sizes(s, {2560, 9728, 36, 32, 8, 128, 151936, 40960});
  EXPECT_EQ(s.qk_norm, QkNorm::kPerHead);
  EXPECT_TRUE(s.tied_embedding);
  EXPECT_FALSE(s.qkv_bias);
}

TEST(Families, Qwen3_30B_A3B) {
  const DecoderSpec s = spec_of("Qwen3MoeForCausalLM", R"("attention_bias": false, "decoder_sparse_step": 1,
      "head_dim": 128, "hidden_size": 2048, "intermediate_size": 6144, "max_position_embeddings": 40960,
      "max_window_layers": 48, "mlp_only_layers": [], "moe_intermediate_size": 768, "norm_topk_prob": true,
      "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48,
      "num_key_value_heads": 4, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "vocab_size": 151936)");
  expect_sizes(s, {2048, 6144, 48, 32, 4, 128, 151936, 40960});
  EXPECT_EQ(s.experts.inner_size, 768);
  EXPECT_EQ(s.experts.shared_inner_size, 0);
  EXPECT_TRUE(s.experts.route.renormalize);
  EXPECT_EQ(experts(s), repeat("e", 48));
}

TEST(Families, QwenV1_7B) {
  const DecoderSpec s = spec_of("QWenLMHeadModel", R"("bf16": false, "emb_dropout_prob": 0.0,
      "hidden_size": 4096, "intermediate_size": 22016, "kv_channels": 128, "layer_norm_epsilon": 1e-06,
      "max_position_embeddings": 32768, "no_bias": true, "num_attention_heads": 32, "num_hidden_layers": 32,
      "rotary_emb_base": 10000, "rotary_pct": 1.0, "scale_attn_weights": true, "seq_length": 8192,
      "tie_word_embeddings": false, "use_dynamic_ntk": true, "use_logn_attn": true, "vocab_size": 151936)");
  expect_sizes(s, {4096, 11008, 32, 32, 32, 128, 151936, 32768});
  expect_rope(s.rope, {Kind::kQwenNtk, 1e4, 128});
  EXPECT_EQ(s.rope.original_max_positions, 8192);
  EXPECT_EQ(s.logn_length, 8192);
  EXPECT_TRUE(s.qkv_bias);
  EXPECT_FALSE(s.o_bias);
}

TEST(Families, InternLm7B) {
  const std::string keys = R"("bias": true, "hidden_size": 4096, "intermediate_size": 11008,
      "max_position_embeddings": 2048, "num_attention_heads": 32, "num_hidden_layers": 32, "rms_norm_eps": 1e-06,
      "vocab_size": 103168)";
  const DecoderSpec s =
      spec_of("InternLMForCausalLM", keys + R"(, "rotary": {"base": 10000, "type": "dynamic"})");
  expect_sizes(s, {4096, 11008, 32, 32, 32, 128, 103168, 2048});
  expect_rope(s.rope, {Kind::kDynamicNtk, 1e4, 128});
  EXPECT_EQ(s.rope.factor, 1);
  EXPECT_TRUE(s.qkv_bias && s.o_bias);
  EXPECT_FALSE(s.mlp_bias);
  EXPECT_EQ(spec_of("InternLMForCausalLM", keys).rope.kind, Kind::kDynamicNtk);  // the class's default
  const DecoderSpec plain =
      spec_of("InternLMForCausalLM", keys + R"(, "rotary": {"base": 500, "type": "origin"})");
  expect_rope(plain.rope, {Kind::kDefault, 500, 128});
}

TEST(Families, InternLm25_7B) {
  const std::string keys = R"("eos_token_id": [2, 92542], "hidden_size": 4096, "intermediate_size": 14336,
      "max_position_embeddings": 32768, "num_attention_heads": 32, "num_hidden_layers": 32,
      "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 2.0, "type": "dynamic"},
      "rope_theta": 1000000, "vocab_size": 92544)";
  const DecoderSpec s = spec_of("InternLM2ForCausalLM", keys + R"(, "bias": false)");
  expect_sizes(s, {4096, 14336, 32, 32, 8, 128, 92544, 65536});
  expect_rope(s.rope, {Kind::kDynamicNtk, 1e6, 128});
  EXPECT_EQ(s.rope.original_max_positions, 32768);
  EXPECT_EQ(s.eos_ids, (std::vector<int>{2, 92542}));
  EXPECT_FALSE(s.qkv_bias || s.o_bias);
  const DecoderSpec bare = spec_of("InternLM2ForCausalLM", keys);  // InternLM2Config: bias=True
  EXPECT_TRUE(bare.qkv_bias && bare.o_bias);
}

TEST(Families, InternLm3_8B) {
  const DecoderSpec s =
      spec_of("InternLM3ForCausalLM", R"("bias": false, "head_dim": 128, "hidden_size": 4096,
      "intermediate_size": 10240, "max_position_embeddings": 32768, "num_attention_heads": 32,
      "num_hidden_layers": 48, "num_key_value_heads": 2, "qkv_bias": false, "rms_norm_eps": 1e-05,
      "rope_scaling": {"factor": 6.0, "rope_type": "dynamic"}, "rope_theta": 50000000, "vocab_size": 128512)");
  expect_sizes(s, {4096, 10240, 48, 32, 2, 128, 128512, 196608});
  expect_rope(s.rope, {Kind::kDynamicNtk, 5e7, 128});
}

TEST(Families, Baichuan2) {
  const DecoderSpec b7 = spec_of("BaichuanForCausalLM", R"("hidden_size": 4096, "intermediate_size": 11008,
      "max_position_embeddings": 4096, "model_max_length": 4096, "num_attention_heads": 32,
      "num_hidden_layers": 32, "rms_norm_eps": 1e-06, "vocab_size": 125696, "z_loss_weight": 0)");
  expect_sizes(b7, {4096, 11008, 32, 32, 32, 128, 125696, 4096});
  expect_rope(b7.rope, {Kind::kDefault, 1e4, 128});
  EXPECT_EQ(b7.alibi, Alibi::kNone);
  EXPECT_TRUE(b7.unit_head_rows);
  const DecoderSpec b13 = spec_of("BaichuanForCausalLM", R"("hidden_size": 5120, "intermediate_size": 13696,
      "model_max_length": 4096, "num_attention_heads": 40, "num_hidden_layers": 40, "rms_norm_eps": 1e-06,
      "vocab_size": 125696, "z_loss_weight": 0)");
  expect_sizes(b13, {5120, 13696, 40, 40, 40, 128, 125696, 4096});
  EXPECT_FALSE(b13.has_rope());
  EXPECT_EQ(b13.alibi, Alibi::kPlain);
  EXPECT_TRUE(b13.unit_head_rows);
}

TEST(Families, Baichuan7B) {
  const DecoderSpec s = spec_of("BaiChuanForCausalLM", R"("hidden_size": 4096, "intermediate_size": 11008,
      "max_position_embeddings": 4096, "num_attention_heads": 32, "num_hidden_layers": 32, "rms_norm_eps": 1e-06,
      "vocab_size": 64000)");
  EXPECT_FALSE(s.unit_head_rows);
  EXPECT_TRUE(s.has_rope());
}

constexpr const char* kChatGlm = R"("add_bias_linear": false, "add_qkv_bias": true,
    "apply_residual_connection_post_layernorm": false, "ffn_hidden_size": 13696, "hidden_size": 4096,
    "kv_channels": 128, "multi_query_attention": true, "multi_query_group_num": 2, "num_attention_heads": 32,
    "original_rope": true, "post_layer_norm": true, "rmsnorm": true, "tie_word_embeddings": false)";

TEST(Families, ChatGlm3_6B) {
  const DecoderSpec s =
      spec_of("ChatGLMModel", cat(kChatGlm, R"(, "layernorm_epsilon": 1e-05, "num_layers": 28,
      "padded_vocab_size": 65024, "seq_length": 8192, "eos_token_id": 2)"));
  expect_sizes(s, {4096, 13696, 28, 32, 2, 128, 65024, 8192});
  expect_rope(s.rope, {Kind::kDefault, 1e4, 64, true});
  EXPECT_TRUE(s.qkv_bias);
  EXPECT_FALSE(s.o_bias || s.mlp_bias);
}

TEST(Families, Glm4_9B) {
  const DecoderSpec s = spec_of("ChatGLMModel", cat(kChatGlm, R"(, "layernorm_epsilon": 1.5625e-07,
      "num_layers": 40, "padded_vocab_size": 151552, "rope_ratio": 500, "seq_length": 131072,
      "eos_token_id": [151329, 151336, 151338])"));
  expect_sizes(s, {4096, 13696, 40, 32, 2, 128, 151552, 131072});
  expect_rope(s.rope, {Kind::kDefault, 5e6, 64, true});
  EXPECT_EQ(s.norm_eps, 1.5625e-07f);
  EXPECT_EQ(s.eos_ids, (std::vector<int>{151329, 151336, 151338}));
}

// GlmConfig: attention_bias true (q, k and v), 2 kv heads, head_dim 128, rms_norm_eps 1.5625e-07, half of a
// head turns.
TEST(Families, GlmDefaults) {
  for (const char* name : {"GlmForCausalLM", "Glm4ForCausalLM"}) {
    const DecoderSpec s = spec_of(name, R"("hidden_size": 4096, "intermediate_size": 13696,
        "num_attention_heads": 32, "num_hidden_layers": 40, "vocab_size": 151552)");
    expect_sizes(s, {4096, 13696, 40, 32, 2, 128, 151552, 131072});
    expect_rope(s.rope, {Kind::kDefault, 1e4, 64, true});
    EXPECT_EQ(s.norm_eps, 1.5625e-07f);
    EXPECT_TRUE(s.qkv_bias);
    EXPECT_FALSE(s.o_bias);
    EXPECT_EQ(s.output_norms, std::string(name) == "Glm4ForCausalLM");
  }
}

TEST(Families, Falcon7B) {
  const DecoderSpec s = spec_of("FalconForCausalLM", R"("alibi": false, "bias": false, "eos_token_id": 11,
      "hidden_size": 4544, "layer_norm_epsilon": 1e-05, "multi_query": true, "new_decoder_architecture": false,
      "num_attention_heads": 71, "num_hidden_layers": 32, "parallel_attn": true, "vocab_size": 65024)");
  expect_sizes(s, {4544, 18176, 32, 71, 1, 64, 65024, 2048});
  expect_rope(s.rope, {Kind::kDefault, 1e4, 64});
  EXPECT_TRUE(s.parallel && s.one_norm && s.norm_bias && s.tied_embedding);
  EXPECT_FALSE(s.qkv_bias || s.gated);
  EXPECT_EQ(s.activation, Activation::kGelu);
}

// As published first, with code of its own and other names ("RefinedWeb").
TEST(Families, Falcon40B) {
  const std::string sizes =
      R"("alibi": false, "bias": false, "hidden_size": 8192, "layer_norm_epsilon": 1e-05,
      "parallel_attn": true, "vocab_size": 65024, )";
  for (const DecoderSpec& s :
       {spec_of("FalconForCausalLM", sizes + R"("multi_query": true, "new_decoder_architecture": true,
            "num_attention_heads": 128, "num_hidden_layers": 60, "num_kv_heads": 8)"),
        spec_of("RWForCausalLM", sizes + R"("n_head": 128, "n_layer": 60, "n_head_kv": 8,
            "model_type": "RefinedWeb")")}) {
    expect_sizes(s, {8192, 32768, 60, 128, 8, 64, 65024, 2048});
    EXPECT_TRUE(s.parallel);
    EXPECT_FALSE(s.one_norm);
  }
}

TEST(Families, FalconRw1B) {
  const DecoderSpec s = spec_of("FalconForCausalLM", R"("alibi": true, "bias": true, "hidden_size": 2048,
      "layer_norm_epsilon": 1e-05, "multi_query": false, "n_head": 32, "n_layer": 24, "parallel_attn": false,
      "transformers_version": "4.27.4", "vocab_size": 50304)");
  expect_sizes(s, {2048, 8192, 24, 32, 32, 64, 50304, 2048});
  EXPECT_EQ(s.alibi, Alibi::kInBf16);
  EXPECT_EQ(s.alibi_factor, 1);
  EXPECT_FALSE(s.has_rope() || s.parallel);
  EXPECT_TRUE(s.qkv_bias && s.o_bias && s.mlp_bias);
}

TEST(Families, Gemma) {
  const DecoderSpec b2 = spec_of("GemmaForCausalLM", R"("head_dim": 256, "hidden_act": "gelu",
      "hidden_size": 2048, "intermediate_size": 16384, "max_position_embeddings": 8192, "num_attention_heads": 8,
      "num_hidden_layers": 18, "num_key_value_heads": 1, "rms_norm_eps": 1e-06, "rope_theta": 10000.0,
      "torch_dtype": "bfloat16", "vocab_size": 256000)");
  expect_sizes(b2, {2048, 16384, 18, 8, 1, 256, 256000, 8192});
  EXPECT_EQ(b2.activation, Activation::kGeluTanh);  // whatever hidden_act says
  EXPECT_EQ(b2.embedding_scale, 45.25f);
  EXPECT_EQ(b2.norm_offset, 1);
  EXPECT_TRUE(b2.tied_embedding);
  const DecoderSpec b7 = spec_of("GemmaForCausalLM", R"("head_dim": 256, "hidden_activation": null,
      "hidden_size": 3072, "intermediate_size": 24576, "max_position_embeddings": 8192, "num_attention_heads": 16,
      "num_hidden_layers": 28, "num_key_value_heads": 16, "vocab_size": 256000)");
  EXPECT_EQ(b7.q_size(), 4096);
  EXPECT_EQ(b7.activation, Activation::kGeluTanh);
}

constexpr const char* kGemma2 = R"("head_dim": 256, "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 3584, "intermediate_size": 14336, "num_attention_heads": 16, "num_hidden_layers": 4,
    "num_key_value_heads": 8, "max_position_embeddings": 8192, "vocab_size": 256000)";

TEST(Families, Gemma2_9B) {
  const DecoderSpec s = spec_of("Gemma2ForCausalLM", cat(kGemma2, R"(, "attn_logit_softcapping": 50.0,
      "final_logit_softcapping": 30.0, "query_pre_attn_scalar": 144, "sliding_window": 4096)"));
  EXPECT_EQ(windows(s, 4096), "w.w.");
  EXPECT_EQ(s.attention_soft_cap, 50);
  EXPECT_EQ(s.logit_soft_cap, 30);
  EXPECT_NEAR(s.attention_scale, 1 / 12.0, 1e-7);
  EXPECT_TRUE(s.output_norms && s.input_norms);
}

// Gemma2Config: soft caps 50 and 30, sliding_window 4096, query_pre_attn_scalar 256; null is none.
TEST(Families, Gemma2Defaults) {
  const DecoderSpec absent = spec_of("Gemma2ForCausalLM", kGemma2);
  EXPECT_EQ(absent.attention_soft_cap, 50);
  EXPECT_EQ(absent.logit_soft_cap, 30);
  EXPECT_EQ(windows(absent, 4096), "w.w.");
  EXPECT_EQ(absent.attention_scale, 1 / 16.0f);
  const DecoderSpec null = spec_of("Gemma2ForCausalLM", cat(kGemma2, R"(, "attn_logit_softcapping": null,
      "final_logit_softcapping": null, "sliding_window": null)"));
  EXPECT_EQ(null.attention_soft_cap, 0);
  EXPECT_EQ(null.logit_soft_cap, 0);
  EXPECT_EQ(windows(null, 4096), "....");
}

// The text config of the published 4B names six keys; the rest is Gemma3TextConfig.
TEST(Families, Gemma3_4BText) {
  const DecoderSpec s = spec_of("Gemma3ForCausalLM", R"("eos_token_id": [1, 106], "text_config": {
      "hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34,
      "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024}, "torch_dtype": "bfloat16")");
  expect_sizes(s, {2560, 10240, 34, 8, 4, 256, 262208, 1048576});
  expect_rope(s.rope, {Kind::kLinear, 1e6, 256});
  EXPECT_EQ(s.rope.factor, 8);
  expect_rope(s.local_rope, {Kind::kDefault, 1e4, 256});
  EXPECT_EQ(windows(s, 1024), repeat("wwwww.", 5) + "wwww");
  EXPECT_EQ(layers(s, [](const LayerSpec& l) { return l.local_rope ? 'l' : '.'; }),
            repeat("lllll.", 5) + "llll");
  EXPECT_EQ(s.attention_soft_cap, 0);
  EXPECT_EQ(s.qk_norm, QkNorm::kPerHead);
  EXPECT_EQ(s.eos_ids, (std::vector<int>{1, 106}));
  EXPECT_TRUE(s.tied_embedding);
}

TEST(Families, Gemma3_1B) {
  const DecoderSpec s = spec_of("Gemma3ForCausalLM", R"("head_dim": 256, "hidden_size": 1152,
      "intermediate_size": 6912, "max_position_embeddings": 32768, "num_attention_heads": 4,
      "num_hidden_layers": 26, "num_key_value_heads": 1, "query_pre_attn_scalar": 256, "rope_local_base_freq": 10000,
      "rope_scaling": null, "rope_theta": 1000000, "sliding_window": 512, "sliding_window_pattern": 6,
      "vocab_size": 262144)");
  expect_sizes(s, {1152, 6912, 26, 4, 1, 256, 262144, 32768});
  EXPECT_EQ(windows(s, 512), repeat("wwwww.", 4) + "ww");
}

constexpr const char* kDbrx = R"("attn_config": {"clip_qkv": 8, "kv_n_heads": 8, "rope_theta": 500000},
    "d_model": 6144, "max_seq_len": 32768, "n_heads": 48, "n_layers": 40, "tie_word_embeddings": false,
    "vocab_size": 100352, "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4)";

TEST(Families, Dbrx) {
  const DecoderSpec s =
      spec_of("DbrxForCausalLM", cat(kDbrx, R"(, "moe_jitter_eps": 0, "moe_loss_weight": 0.05})"));
  expect_sizes(s, {6144, 10752, 40, 48, 8, 128, 100352, 32768});
  expect_rope(s.rope, {Kind::kDefault, 5e5, 128});
  EXPECT_EQ(s.qkv_clip, 8);
  EXPECT_EQ(s.norm, NormKind::kLayer);
  EXPECT_FALSE(s.norm_bias);
  EXPECT_EQ(s.experts.num_experts, 16);
  EXPECT_EQ(s.experts.top_k, 4);
  EXPECT_TRUE(s.experts.route.renormalize);  // DbrxFFNConfig: moe_normalize_expert_weights 1
  EXPECT_EQ(s.experts.route.norm_p, 1);
  const DecoderSpec plain =
      spec_of("DbrxForCausalLM", cat(kDbrx, R"(, "moe_normalize_expert_weights": null})"));
  EXPECT_FALSE(plain.experts.route.renormalize);
}

TEST(Families, StarCoder2_3B) {
  const DecoderSpec s = spec_of("Starcoder2ForCausalLM", R"("hidden_act": "gelu_pytorch_tanh",
      "hidden_size": 3072, "intermediate_size": 12288, "max_position_embeddings": 16384, "mlp_type": "default",
      "norm_epsilon": 1e-05, "num_attention_heads": 24, "num_hidden_layers": 30, "num_key_value_heads": 2,
      "rope_theta": 999999.4420358813, "sliding_window": 4096, "use_bias": true, "vocab_size": 49152)");
  expect_sizes(s, {3072, 12288, 30, 24, 2, 128, 49152, 16384});
  EXPECT_DOUBLE_EQ(s.rope.theta, 999999.4420358813);
  EXPECT_EQ(windows(s, 4096), repeat("w", 30));
  EXPECT_TRUE(s.qkv_bias && s.o_bias && s.mlp_bias && s.norm_bias && s.tied_embedding);
  EXPECT_FALSE(s.gated);
}

TEST(Families, Phi2) {
  const DecoderSpec s = spec_of("PhiForCausalLM", R"("hidden_act": "gelu_new", "hidden_size": 2560,
      "intermediate_size": 10240, "layer_norm_eps": 1e-05, "max_position_embeddings": 2048,
      "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32, "partial_rotary_factor": 0.4,
      "qk_layernorm": false, "rope_theta": 10000.0, "tie_word_embeddings": false, "vocab_size": 51200)");
  expect_sizes(s, {2560, 10240, 32, 32, 32, 80, 51200, 2048});
  expect_rope(s.rope, {Kind::kDefault, 1e4, 32});
  EXPECT_TRUE(s.parallel && s.one_norm && s.head_bias && s.qkv_bias && s.o_bias && s.mlp_bias);
}

constexpr const char* kPhi3Mini =
    R"("hidden_size": 3072, "intermediate_size": 8192, "num_attention_heads": 32,
    "num_hidden_layers": 32, "num_key_value_heads": 32, "original_max_position_embeddings": 4096,
    "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "vocab_size": 32064, "eos_token_id": 32000)";

TEST(Families, Phi3Mini4k) {
  const DecoderSpec s = spec_of("Phi3ForCausalLM", cat(kPhi3Mini, R"(, "max_position_embeddings": 4096,
      "rope_scaling": null, "sliding_window": 2047)"));
  expect_sizes(s, {3072, 8192, 32, 32, 32, 96, 32064, 4096});
  expect_rope(s.rope, {Kind::kDefault, 1e4, 96});
  EXPECT_EQ(windows(s, 2047), repeat("w", 32));
}

TEST(Families, Phi3Mini128k) {
  const std::string scaling = cat(R"(, "max_position_embeddings": 131072, "sliding_window": 262144,
      "rope_scaling": {"type": "longrope", "short_factor": [)",
                                  ones(48), "], \"long_factor\": [", ones(48), "]}");
  const DecoderSpec s = spec_of("Phi3ForCausalLM", kPhi3Mini + scaling);
  expect_rope(s.rope, {Kind::kLongRope, 1e4, 96});
  EXPECT_EQ(s.max_positions, 131072);
  EXPECT_EQ(s.rope.original_max_positions, 4096);
  EXPECT_NEAR(s.rope.attention_factor, 1.190238071424, 1e-12);
  EXPECT_EQ(windows(s, 262144), repeat(".", 32));
  // Phi3Config: original_max_position_embeddings 4096.
  std::string without = kPhi3Mini + scaling;
  const std::string key = R"("original_max_position_embeddings": 4096,)";
  without.erase(without.find(key), key.size());
  const DecoderSpec bare = spec_of("Phi3ForCausalLM", without);
  EXPECT_EQ(bare.rope.original_max_positions, 4096);
  EXPECT_NEAR(bare.rope.attention_factor, 1.190238071424, 1e-12);
}

TEST(Families, Phi4Mini) {
  const DecoderSpec s = spec_of("Phi3ForCausalLM", cat(R"("hidden_size": 3072, "intermediate_size": 8192,
      "max_position_embeddings": 131072, "num_attention_heads": 24, "num_hidden_layers": 32,
      "num_key_value_heads": 8, "original_max_position_embeddings": 4096, "partial_rotary_factor": 0.75,
      "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "sliding_window": 262144, "tie_word_embeddings": true,
      "vocab_size": 200064, "rope_scaling": {"type": "longrope", "short_factor": [)",
                                                       ones(48), "], \"long_factor\": [", ones(48), "]}"));
  expect_sizes(s, {3072, 8192, 32, 24, 8, 128, 200064, 131072});
  expect_rope(s.rope, {Kind::kLongRope, 1e4, 96});
  EXPECT_TRUE(s.tied_embedding);
}

TEST(Families, DeepseekMoe16B) {
  const DecoderSpec s = spec_of("DeepseekForCausalLM", R"("first_k_dense_replace": 1, "hidden_size": 2048,
      "intermediate_size": 10944, "max_position_embeddings": 4096, "moe_intermediate_size": 1408,
      "moe_layer_freq": 1, "n_routed_experts": 64, "n_shared_experts": 2, "norm_topk_prob": false,
      "num_attention_heads": 16, "num_experts_per_tok": 6, "num_hidden_layers": 28, "num_key_value_heads": 16,
      "rms_norm_eps": 1e-06, "scoring_func": "softmax", "vocab_size": 102400)");
  expect_sizes(s, {2048, 10944, 28, 16, 16, 128, 102400, 4096});
  EXPECT_EQ(experts(s), "." + repeat("e", 27));
  EXPECT_EQ(s.experts.inner_size, 1408);
  EXPECT_EQ(s.experts.shared_inner_size, 2816);
  EXPECT_FALSE(s.experts.shared_gate || s.experts.route.renormalize || s.experts.correction);
}

TEST(Families, DeepseekV2Lite) {
  const DecoderSpec s = spec_of("DeepseekV2ForCausalLM", R"("first_k_dense_replace": 1, "hidden_size": 2048,
      "intermediate_size": 10944, "kv_lora_rank": 512, "max_position_embeddings": 163840,
      "moe_intermediate_size": 1408, "n_group": 1, "n_routed_experts": 64, "n_shared_experts": 2,
      "norm_topk_prob": false, "num_attention_heads": 16, "num_experts_per_tok": 6, "num_hidden_layers": 27,
      "num_key_value_heads": 16, "q_lora_rank": null, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
      "rms_norm_eps": 1e-06, "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 0.707,
      "mscale_all_dim": 0.707, "original_max_position_embeddings": 4096, "type": "yarn"}, "rope_theta": 10000,
      "routed_scaling_factor": 1.0, "scoring_func": "softmax", "topk_group": 1, "topk_method": "greedy",
      "v_head_dim": 128, "vocab_size": 102400)");
  EXPECT_EQ(s.latent.q_rank, 0);
  EXPECT_EQ(s.latent.kv_rank, 512);
  EXPECT_EQ(s.latent.value_dim, 128);
  EXPECT_EQ(s.head_dim, 192);
  expect_rope(s.rope, {Kind::kYarn, 1e4, 64, true});
  EXPECT_EQ(s.max_positions, 163840);
  EXPECT_NEAR(s.attention_scale, 0.1147213867929, 1e-8);
  EXPECT_EQ(experts(s), "." + repeat("e", 26));
  EXPECT_EQ(s.experts.route.num_groups, 1);
}

constexpr const char* kDeepseekV3 = R"("hidden_size": 7168, "intermediate_size": 18432, "kv_lora_rank": 512,
    "max_position_embeddings": 163840, "moe_intermediate_size": 2048, "num_attention_heads": 128,
    "num_hidden_layers": 61, "num_key_value_heads": 128, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06, "v_head_dim": 128, "vocab_size": 129280)";

// The keys that choose experts, and a config without them: the class's defaults are V3's own values.
TEST(Families, DeepseekV3) {
  for (const std::string keys : {R"(, "first_k_dense_replace": 3, "moe_layer_freq": 1, "n_group": 8,
            "n_routed_experts": 256, "n_shared_experts": 1, "norm_topk_prob": true, "num_experts_per_tok": 8,
            "num_nextn_predict_layers": 1, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid",
            "topk_group": 4, "topk_method": "noaux_tc")",
                                 ""}) {
    const DecoderSpec s = spec_of("DeepseekV3ForCausalLM", kDeepseekV3 + keys);
    EXPECT_EQ(s.latent.q_rank, 1536);
    EXPECT_EQ(experts(s), "..." + repeat("e", 58));
    EXPECT_EQ(s.experts.num_experts, 256);
    EXPECT_EQ(s.experts.top_k, 8);
    EXPECT_EQ(s.experts.shared_inner_size, 2048);
    EXPECT_TRUE(s.experts.correction);
    const RouteOptions& route = s.experts.route;
    EXPECT_TRUE(route.sigmoid && route.renormalize);
    EXPECT_EQ(route.scale, 2.5f);
    EXPECT_EQ(route.num_groups, 8);
    EXPECT_EQ(route.groups_kept, 4);
    EXPECT_EQ(route.group_best, 2);
    EXPECT_TRUE(s.rope.interleaved);
  }
}

TEST(Families, GptOss20B) {
  const DecoderSpec s = spec_of("GptOssForCausalLM", R"("attention_bias": true, "experts_per_token": 4,
      "head_dim": 64, "hidden_act": "silu", "hidden_size": 2880, "initial_context_length": 4096,
      "intermediate_size": 2880, "max_position_embeddings": 131072, "num_attention_heads": 64,
      "num_experts_per_tok": 4, "num_hidden_layers": 4, "num_key_value_heads": 8, "num_local_experts": 32,
      "rms_norm_eps": 1e-05, "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0,
      "original_max_position_embeddings": 4096, "rope_type": "yarn", "truncate": false}, "rope_theta": 150000,
      "sliding_window": 128, "swiglu_limit": 7.0, "tie_word_embeddings": false, "vocab_size": 201088,
      "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"])");
  expect_sizes(s, {2880, 2880, 4, 64, 8, 64, 201088, 131072});
  expect_rope(s.rope, {Kind::kYarn, 150000, 64});
  EXPECT_FALSE(s.rope.truncate);
  EXPECT_EQ(windows(s, 128), "w.w.");
  EXPECT_TRUE(s.sinks && s.qkv_bias && s.o_bias && s.experts.bias && s.experts.router_bias);
  EXPECT_TRUE(s.experts.route.softmax_of_chosen);
  EXPECT_EQ(s.experts.num_experts, 32);
}

// GptOssConfig: window 128 on even layers, 8 kv heads of 64, theta 150000.
TEST(Families, GptOssDefaults) {
  const DecoderSpec s = spec_of("GptOssForCausalLM", R"("hidden_size": 2880, "intermediate_size": 2880,
      "num_attention_heads": 64, "num_hidden_layers": 3, "vocab_size": 201088)");
  expect_sizes(s, {2880, 2880, 3, 64, 8, 64, 201088, 131072});
  EXPECT_EQ(windows(s, 128), "w.w");
  EXPECT_EQ(s.rope.theta, 150000);
  EXPECT_EQ(s.norm_eps, 1e-5f);
}

TEST(Families, Olmo2_7B) {
  const DecoderSpec s = spec_of("Olmo2ForCausalLM", R"("attention_bias": false, "hidden_size": 4096,
      "intermediate_size": 11008, "max_position_embeddings": 4096, "num_attention_heads": 32,
      "num_hidden_layers": 32, "num_key_value_heads": 32, "rms_norm_eps": 1e-06, "rope_scaling": null,
      "rope_theta": 500000, "tie_word_embeddings": false, "vocab_size": 100352)");
  expect_sizes(s, {4096, 11008, 32, 32, 32, 128, 100352, 4096});
  EXPECT_EQ(s.qk_norm, QkNorm::kWholeRow);
  EXPECT_TRUE(s.output_norms);
  EXPECT_FALSE(s.input_norms);
}

TEST(Families, Olmoe1B7B) {
  const DecoderSpec s = spec_of("OlmoeForCausalLM", R"("attention_bias": false, "clip_qkv": null,
      "hidden_size": 2048, "intermediate_size": 1024, "max_position_embeddings": 4096, "norm_topk_prob": false,
      "num_attention_heads": 16, "num_experts": 64, "num_experts_per_tok": 8, "num_hidden_layers": 16,
      "num_key_value_heads": 16, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "vocab_size": 50304)");
  expect_sizes(s, {2048, 1024, 16, 16, 16, 128, 50304, 4096});
  EXPECT_EQ(s.experts.inner_size, 1024);
  EXPECT_EQ(s.qkv_clip, 0);
  EXPECT_FALSE(s.experts.route.renormalize);
}

TEST(Families, Granite31_8B) {
  const DecoderSpec s =
      spec_of("GraniteForCausalLM", R"("attention_bias": false, "attention_multiplier": 0.0078125,
      "embedding_multiplier": 12.0, "hidden_size": 4096, "intermediate_size": 12800, "logits_scaling": 16.0,
      "max_position_embeddings": 131072, "mlp_bias": false, "num_attention_heads": 32, "num_hidden_layers": 40,
      "num_key_value_heads": 8, "residual_multiplier": 0.22, "rms_norm_eps": 1e-05, "rope_theta": 10000000.0,
      "tie_word_embeddings": true, "vocab_size": 49155)");
  expect_sizes(s, {4096, 12800, 40, 32, 8, 128, 49155, 131072});
  EXPECT_EQ(s.embedding_scale, 12);
  EXPECT_EQ(s.attention_scale, 0.0078125f);
  EXPECT_EQ(s.residual_scale, 0.22f);
  EXPECT_EQ(s.logit_scale, 1 / 16.0f);
}

constexpr const char* kSmolLm3 =
    R"("hidden_size": 2048, "intermediate_size": 11008, "num_attention_heads": 16,
    "num_hidden_layers": 8, "vocab_size": 128256)";

TEST(Families, SmolLm3_3B) {
  const DecoderSpec s = spec_of("SmolLM3ForCausalLM", cat(kSmolLm3, R"(, "max_position_embeddings": 65536,
      "no_rope_layer_interval": 4, "no_rope_layers": [1, 1, 1, 0, 1, 1, 1, 0], "num_key_value_heads": 4,
      "rope_theta": 5000000.0, "use_sliding_window": false, "sliding_window": null)"));
  expect_sizes(s, {2048, 11008, 8, 16, 4, 128, 128256, 65536});
  EXPECT_EQ(layers(s, [](const LayerSpec& l) { return l.rope ? 'r' : '.'; }), "rrr.rrr.");
  EXPECT_TRUE(s.tied_embedding);
  // SmolLM3Config: rope_theta 2e6, 4 kv heads, every fourth layer without rope.
  const DecoderSpec bare = spec_of("SmolLM3ForCausalLM", kSmolLm3);
  EXPECT_EQ(bare.rope.theta, 2e6);
  EXPECT_EQ(bare.num_kv_heads, 4);
  EXPECT_EQ(layers(bare, [](const LayerSpec& l) { return l.rope ? 'r' : '.'; }), "rrr.rrr.");
}

TEST(Families, CommandR) {
  const DecoderSpec s = spec_of("CohereForCausalLM", R"("attention_bias": false, "hidden_size": 8192,
      "intermediate_size": 22528, "layer_norm_eps": 1e-05, "logit_scale": 0.0625, "max_position_embeddings": 8192,
      "model_max_length": 131072, "num_attention_heads": 64, "num_hidden_layers": 40, "num_key_value_heads": 64,
      "rope_theta": 8000000.0, "use_qk_norm": false, "vocab_size": 256000, "eos_token_id": 255001)");
  expect_sizes(s, {8192, 22528, 40, 64, 64, 128, 256000, 8192});
  expect_rope(s.rope, {Kind::kDefault, 8e6, 128, true});
  EXPECT_EQ(s.logit_scale, 0.0625f);
  EXPECT_TRUE(s.parallel && s.one_norm && s.tied_embedding);
  EXPECT_FALSE(s.norm_bias);
}

TEST(Families, StableLm3B) {
  const std::string sizes =
      R"("hidden_size": 2560, "intermediate_size": 6912, "max_position_embeddings": 4096,
      "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32, "vocab_size": 50304, )";
  for (const DecoderSpec& s :
       {spec_of("StableLmForCausalLM", sizes + R"("layer_norm_eps": 0.25, "partial_rotary_factor": 0.5)"),
        spec_of("StableLMEpochForCausalLM", sizes + R"("norm_eps": 0.25, "rope_pct": 0.5)")}) {
    expect_sizes(s, {2560, 6912, 32, 32, 32, 80, 50304, 4096});
    expect_rope(s.rope, {Kind::kDefault, 1e4, 40});
    EXPECT_EQ(s.norm_eps, 0.25f);
    EXPECT_FALSE(s.parallel || s.qkv_bias);
  }
  EXPECT_EQ(spec_of("StableLmForCausalLM", sizes + R"("rope_theta": 10000)").rope.rotary_dim, 20);
}

TEST(Families, StableLm2_12B) {
  const DecoderSpec s = spec_of("StableLmForCausalLM", R"("hidden_size": 5120, "intermediate_size": 13824,
      "layer_norm_eps": 1e-05, "max_position_embeddings": 4096, "num_attention_heads": 32, "num_hidden_layers": 40,
      "num_key_value_heads": 8, "partial_rotary_factor": 0.25, "qk_layernorm": true, "rope_theta": 10000,
      "use_parallel_residual": true, "use_qkv_bias": false, "vocab_size": 100352)");
  expect_sizes(s, {5120, 13824, 40, 32, 8, 160, 100352, 4096});
  EXPECT_EQ(s.rope.rotary_dim, 40);
  EXPECT_EQ(s.qk_norm, QkNorm::kPerHeadOwn);
  EXPECT_TRUE(s.parallel && s.one_norm);
}

TEST(Families, Gpt2) {
  const DecoderSpec s =
      spec_of("GPT2LMHeadModel", R"("activation_function": "gelu_new", "eos_token_id": 50256,
      "layer_norm_epsilon": 1e-05, "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024,
      "vocab_size": 50257)");
  expect_sizes(s, {768, 3072, 12, 12, 12, 64, 50257, 1024});
  EXPECT_TRUE(s.learned_positions && s.tied_embedding && s.qkv_bias && s.mlp_bias);
  EXPECT_FALSE(s.has_rope());
  EXPECT_EQ(s.activation, Activation::kGeluTanh);
  const DecoderSpec bare =
      spec_of("GPT2LMHeadModel", R"("n_embd": 768, "n_head": 12, "n_layer": 1, "vocab_size": 9)");
  EXPECT_EQ(bare.max_positions, 1024);  // GPT2Config: rows of wpe
}

TEST(Families, Pythia14B) {
  const DecoderSpec s = spec_of("GPTNeoXForCausalLM", R"("hidden_act": "gelu", "hidden_size": 2048,
      "intermediate_size": 8192, "layer_norm_eps": 1e-05, "max_position_embeddings": 2048,
      "num_attention_heads": 16, "num_hidden_layers": 24, "rotary_emb_base": 10000, "rotary_pct": 0.25,
      "tie_word_embeddings": false, "use_parallel_residual": true, "vocab_size": 50304)");
  expect_sizes(s, {2048, 8192, 24, 16, 16, 128, 50304, 2048});
  expect_rope(s.rope, {Kind::kDefault, 1e4, 32});
  EXPECT_TRUE(s.parallel && s.qkv_bias && s.o_bias && s.mlp_bias);
  EXPECT_FALSE(s.one_norm);
  EXPECT_EQ(s.activation, Activation::kGelu);
}

TEST(Families, Yi6BAsFirstPublished) {
  const DecoderSpec s = spec_of("YiForCausalLM", R"("hidden_size": 4096, "intermediate_size": 11008,
      "max_position_embeddings": 4096, "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 4,
      "rms_norm_eps": 1e-05, "rope_theta": 5000000.0, "vocab_size": 64000)");
  expect_sizes(s, {4096, 11008, 32, 32, 4, 128, 64000, 4096});
  expect_rope(s.rope, {Kind::kDefault, 5e6, 128});
}

// A file may say how its rows are stored for rope, whatever the family does by itself.
TEST(Families, StoredOrderOfRotaryPairsWins) {
  const std::string sizes = R"("hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4,
      "num_key_value_heads": 4, "vocab_size": 9, )";
  const std::string llama = sizes + R"("intermediate_size": 8, "head_dim": 16, )";
  const std::string latent = sizes + R"("intermediate_size": 8, "kv_lora_rank": 8, "qk_nope_head_dim": 8,
      "qk_rope_head_dim": 8, "v_head_dim": 8, "n_routed_experts": null, )";
  const std::string chatglm = sizes + R"("ffn_hidden_size": 8, "num_layers": 1, )";
  struct Case {
    const char* name;
    const std::string& keys;
    bool by_itself;
  };
  for (const Case& c : {Case{"LlamaForCausalLM", llama, false}, Case{"CohereForCausalLM", llama, true},
                        Case{"GlmForCausalLM", llama, true}, Case{"Glm4ForCausalLM", llama, true},
                        Case{"ChatGLMModel", chatglm, true}, Case{"DeepseekV2ForCausalLM", latent, true},
                        Case{"DeepseekV3ForCausalLM", latent, true}}) {
    SCOPED_TRACE(c.name);
    const auto interleaved = [&](const std::string& key) {
      return spec_of(c.name, c.keys + key).rope.interleaved;
    };
    EXPECT_EQ(interleaved(R"("rope_theta": 10000)"), c.by_itself);
    EXPECT_TRUE(interleaved(R"("rope_interleaved": true)"));
    EXPECT_FALSE(interleaved(R"("rope_interleaved": false)"));
  }
}

}  // namespace
}  // namespace lmdeploy
