// GGUF metadata and tensor names in the hub's words.
#include "lmdeploy/formats/gguf_hub.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <list>
#include <set>
#include <string>
#include <vector>

#include "lmdeploy/formats/gguf_tables.h"
#include "lmdeploy/formats/test_support.h"

namespace lmdeploy {
namespace {

// The metadata of a small Llama, to be changed by each test.
class HubConfigTest : public testing::Test {
 protected:
  HubConfigTest() {
    set("general.architecture", "llama");
    set("llama.context_length", int64_t{8192});
    set("llama.embedding_length", int64_t{576});
    set("llama.block_count", int64_t{30});
    set("llama.feed_forward_length", int64_t{1536});
    set("llama.attention.head_count", int64_t{9});
    set("llama.attention.layer_norm_rms_epsilon", 1e-5);
    add_tensor("token_embd.weight", {49152, 576});
  }

  void set(std::string_view key, GgufValue value) {
    for (auto& [known, old] : content_.metadata) {
      if (known == key) {
        old = std::move(value);
        return;
      }
    }
    content_.metadata.emplace_back(key, std::move(value));
  }
  void remove(std::string_view key) {
    std::erase_if(content_.metadata, [&](const auto& item) { return item.first == key; });
  }
  void add_tensor(std::string_view name, const Shape& shape) {
    content_.tensors.push_back({name, DType::kF32, shape, nullptr, 0});
  }
  JsonObject config() const { return hub_config(content_, "m.gguf"); }
  std::string error(ErrorCode code) const {
    const std::string message = error_of(code, [&] { config(); });
    EXPECT_EQ(message.rfind("m.gguf: ", 0), 0u) << message;
    return message;
  }

  GgufContent content_;
};

TEST_F(HubConfigTest, SaysLlamaInHubWords) {
  set("llama.attention.head_count_kv", int64_t{3});
  set("llama.rope.freq_base", 1e5);
  set("llama.rope.dimension_count", int64_t{64});
  set("llama.vocab_size", int64_t{49152});
  set("tokenizer.ggml.bos_token_id", int64_t{1});
  set("tokenizer.ggml.eos_token_id", int64_t{2});
  set("tokenizer.ggml.padding_token_id", int64_t{2});
  const Json want = parse_json(R"({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "float16", "hidden_act": "silu",
    "rope_interleaved": true, "tie_word_embeddings": true, "attention_bias": false, "mlp_bias": false,
    "head_dim": 64, "partial_rotary_factor": 1.0,
    "max_position_embeddings": 8192, "hidden_size": 576, "num_hidden_layers": 30, "intermediate_size": 1536,
    "num_attention_heads": 9, "num_key_value_heads": 3, "rms_norm_eps": 1e-5, "rope_theta": 1e5, "vocab_size": 49152,
    "bos_token_id": 1, "pad_token_id": 2, "eos_token_id": 2})",
                               "want");
  EXPECT_EQ(Json(config()), want) << to_json_text(Json(config()));
}

TEST_F(HubConfigTest, NamesEveryMissingKey) {
  for (const char* key :
       {"llama.context_length", "llama.embedding_length", "llama.block_count", "llama.feed_forward_length",
        "llama.attention.head_count", "llama.attention.layer_norm_rms_epsilon"}) {
    const GgufContent before = content_;
    remove(key);
    EXPECT_CONTAINS(error(ErrorCode::kInvalidData), cat("\"", key, "\" is missing"));
    content_ = before;
  }
  remove("general.architecture");
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData), "general.architecture");
}

TEST_F(HubConfigTest, TensorsTellTyingAndBiases) {
  add_tensor("output.weight", {49152, 576});
  add_tensor("blk.0.attn_q.bias", {576});
  add_tensor("blk.0.ffn_up.bias", {1536});
  EXPECT_FALSE(config().at("tie_word_embeddings").as_bool());
  EXPECT_TRUE(config().at("attention_bias").as_bool());
  EXPECT_TRUE(config().at("mlp_bias").as_bool());
}

TEST_F(HubConfigTest, VocabSizeFallsBackToTokensThenToTheEmbedding) {
  EXPECT_EQ(config().at("vocab_size"), Json(49152));
  set("tokenizer.ggml.tokens", std::vector<std::string_view>(7));
  EXPECT_EQ(config().at("vocab_size"), Json(7));
  set("llama.vocab_size", int64_t{5});
  EXPECT_EQ(config().at("vocab_size"), Json(5));
}

TEST_F(HubConfigTest, PerLayerArraysMustBeUniform) {
  set("llama.attention.head_count_kv", std::vector<int64_t>(30, 3));
  EXPECT_EQ(config().at("num_key_value_heads"), Json(3));
  std::vector<int64_t> mixed(30, 3);
  mixed[29] = 1;
  set("llama.attention.head_count_kv", mixed);
  EXPECT_CONTAINS(error(ErrorCode::kUnsupported), "\"llama.attention.head_count_kv\" differs between layers");
  set("llama.attention.head_count_kv", std::vector<int64_t>());
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData), "empty array");
  set("llama.attention.head_count_kv", "three");
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData), "is a string, expected an integer");
  set("llama.attention.head_count_kv", 3.0);
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData), "is a number, expected an integer");
}

TEST_F(HubConfigTest, HeadAndRotaryDims) {
  set("llama.attention.key_length", int64_t{128});
  set("llama.attention.value_length", int64_t{128});
  set("llama.rope.dimension_count", int64_t{128});
  EXPECT_EQ(config().at("head_dim"), Json(128));
  EXPECT_EQ(config().at("partial_rotary_factor"), Json(1.0));
  set("llama.rope.dimension_count", int64_t{32});
  EXPECT_EQ(config().at("partial_rotary_factor"), Json(0.25));
  for (const int64_t bad : {int64_t{0}, int64_t{-2}, int64_t{130}}) {
    set("llama.rope.dimension_count", bad);
    EXPECT_CONTAINS(error(ErrorCode::kInvalidData), "expected 1 to the head dimension 128");
  }
  set("llama.rope.dimension_count", int64_t{128});
  set("llama.attention.value_length", int64_t{64});
  EXPECT_CONTAINS(error(ErrorCode::kUnsupported), "\"llama.attention.value_length\" is 64");
}

TEST_F(HubConfigTest, LinearRopeScaling) {
  EXPECT_FALSE(config().contains("rope_scaling"));
  set("llama.rope.scaling.factor", 4.0);  // llama.cpp takes a factor without a type as linear
  const Json want = parse_json(R"({"rope_type": "linear", "factor": 4.0})", "want");
  EXPECT_EQ(config().at("rope_scaling"), want);
  set("llama.rope.scaling.type", "linear");
  EXPECT_EQ(config().at("rope_scaling"), want);
  set("llama.rope.scaling.type", "none");
  EXPECT_FALSE(config().contains("rope_scaling"));
  set("llama.rope.scaling.type", "linear");
  set("llama.rope.scaling.attn_factor", 1.5);
  EXPECT_CONTAINS(error(ErrorCode::kUnsupported), "attn_factor\" is 1.5");
  remove("llama.rope.scaling.attn_factor");
  set("llama.rope.scaling.factor", -1.0);
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData), "expected a number above 0");
  remove("llama.rope.scaling.factor");
  set("llama.rope.scale_linear", 4.0);
  EXPECT_EQ(config().at("rope_scaling"), want);
  set("llama.rope.scale_linear", 0.0);
  EXPECT_FALSE(config().contains("rope_scaling"));
}

TEST_F(HubConfigTest, YarnRopeScaling) {
  set("llama.rope.scaling.type", "yarn");
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData), "\"llama.rope.scaling.factor\" is missing");
  set("llama.rope.scaling.factor", 4.0);
  set("llama.rope.scaling.original_context_length", int64_t{2048});
  EXPECT_EQ(config().at("rope_scaling"),
            parse_json(R"({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048})",
                       "want"));
  set("llama.rope.scaling.attn_factor", 2.0);
  set("llama.rope.scaling.yarn_beta_fast", 16.0);
  set("llama.rope.scaling.yarn_beta_slow", 2.0);
  const Json scaling = config().at("rope_scaling");
  EXPECT_DOUBLE_EQ(scaling.at("attention_factor").as_double(), 2 * (0.1 * std::log(4.0) + 1));
  EXPECT_EQ(scaling.at("beta_fast"), Json(16.0));
  EXPECT_EQ(scaling.at("beta_slow"), Json(2.0));
}

TEST_F(HubConfigTest, RefusesWhatHasNoCounterpart) {
  set("llama.rope.scaling.type", "longrope");
  EXPECT_CONTAINS(error(ErrorCode::kUnsupported),
                  "is \"longrope\"; supported are \"none\", \"linear\" and \"yarn\", and \"longrope\" with "
                  "tensors of factors");
  remove("llama.rope.scaling.type");
  set("llama.attn_logit_softcapping", 0.0);
  EXPECT_NO_THROW(config());
  set("llama.attn_logit_softcapping", 50.0);
  EXPECT_CONTAINS(error(ErrorCode::kUnsupported), "\"llama.attn_logit_softcapping\" is 50");
  remove("llama.attn_logit_softcapping");
  set("llama.rope.freq_base", std::nan(""));
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData), "expected a finite number");
}

TEST_F(HubConfigTest, EveryEndTokenStops) {
  set("tokenizer.ggml.eos_token_id", int64_t{128001});
  set("tokenizer.ggml.eot_token_id", int64_t{128009});
  set("tokenizer.ggml.eom_token_id", int64_t{128001});
  EXPECT_EQ(config().at("eos_token_id"), parse_json("[128001, 128009]", "want"));
  set("tokenizer.ggml.eot_token_id", int64_t{0xffffffff});  // "none"
  EXPECT_EQ(config().at("eos_token_id"), Json(128001));
  set("tokenizer.ggml.bos_token_id", "1");
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData), "\"tokenizer.ggml.bos_token_id\" is a string");
}

TEST_F(HubConfigTest, UnknownArchitecturesAreNamedNotGuessed) {
  set("general.architecture", "mamba");
  EXPECT_EQ(Json(config()), parse_json(R"({"architectures": ["gguf:mamba"]})", "want"));
  set("general.architecture", "llama");
  set("llama.expert_count", int64_t{8});
  EXPECT_EQ(config().at("architectures").at(0), Json("MixtralForCausalLM"));
  set("llama.expert_count", int64_t{0});
  EXPECT_EQ(config().at("architectures").at(0), Json("LlamaForCausalLM"));
  for (const GgufValue& bad : {GgufValue(int64_t{1}), GgufValue(""), GgufValue("a\nb"), GgufValue("\xff")}) {
    set("general.architecture", bad);
    EXPECT_CONTAINS(error(ErrorCode::kInvalidData), "expected a name");
  }
}

// The metadata of a small model of any architecture, with every key that one of them requires.
class FamilyConfigTest : public HubConfigTest {
 protected:
  void become(const std::string& architecture) {
    content_ = {};
    architecture_ = architecture;
    set("general.architecture", std::string_view(architecture_));
    for (const char* key : {"context_length", "embedding_length", "feed_forward_length", "vocab_size"})
      set_own(key, int64_t{64});
    set_own("attention.layer_norm_rms_epsilon", 0.5);
    set_own("attention.layer_norm_epsilon", 0.5);
    if (architecture == "command-r" || architecture == "granite") set_own("logit_scale", 0.5);
    set_own("block_count", int64_t{2});
    set_own("attention.head_count", int64_t{4});
    for (const char* name : {"token_embd.weight", "output_norm.weight"}) add_tensor(name, {64, 64});
  }
  void set_own(std::string_view key, GgufValue value) {
    keys_.push_back(cat(architecture_, ".", key));
    set(keys_.back(), std::move(value));
  }
  Json value(std::string_view key) const {
    const JsonObject found = config();
    return found.contains(key) ? found.at(key) : Json();
  }

 private:
  std::string architecture_;
  std::list<std::string> keys_;  // the content points at them
};

TEST_F(FamilyConfigTest, OnlySomeStoreInterleavedPairs) {
  for (const char* name : {"qwen2", "qwen3", "gemma", "gemma2", "gemma3", "phi2", "phi3", "starcoder2",
                           "falcon", "gpt2", "gptneox", "olmo2", "stablelm"}) {
    become(name);
    EXPECT_EQ(value("rope_interleaved"), Json(false)) << name;
  }
  for (const char* name : {"llama", "command-r"}) {
    become(name);
    EXPECT_EQ(value("rope_interleaved"), Json(true)) << name;
  }
}

TEST_F(FamilyConfigTest, GemmaNormsHoldTheirOne) {
  for (const char* name : {"gemma", "gemma2", "gemma3"}) {
    become(name);
    EXPECT_EQ(value("norm_weight_offset"), Json(0.0)) << name;
    EXPECT_EQ(value("torch_dtype"), Json("bfloat16")) << name;
  }
}

TEST_F(FamilyConfigTest, GemmaWindows) {
  become("gemma2");
  const Json every_second = parse_json(R"(["sliding_attention", "full_attention"])", "want");
  EXPECT_EQ(value("layer_types"), every_second);
  EXPECT_EQ(value("sliding_window"), Json(4096));
  EXPECT_EQ(value("attn_logit_softcapping"), Json(50.0));
  set_own("attention.sliding_window_pattern", std::vector<bool>{false, true});
  EXPECT_EQ(value("layer_types"), parse_json(R"(["full_attention", "sliding_attention"])", "want"));
  set_own("attention.sliding_window_pattern", std::vector<bool>{true});
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData), "has 1 items, expected 2");

  become("gemma3");  // no window: no layer turns by the local base
  EXPECT_EQ(value("layer_types"), parse_json(R"(["full_attention", "full_attention"])", "want"));
  set_own("attention.sliding_window", int64_t{512});
  EXPECT_EQ(value("layer_types"), parse_json(R"(["sliding_attention", "sliding_attention"])", "want"));
  set_own("attention.sliding_window_pattern", int64_t{2});
  EXPECT_EQ(value("layer_types"), every_second);
  set_own("block_count", int64_t{1} << 40);
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData), "expected 1 to the number of tensors");
}

TEST_F(FamilyConfigTest, GemmaQueriesOfTheLargestModel) {
  become("gemma2");
  set_own("attention.key_length", int64_t{32});
  EXPECT_EQ(value("query_pre_attn_scalar"), Json(32));
  set_own("block_count", int64_t{46});
  for (int i = 0; i < 46; ++i) add_tensor("x", {1});
  EXPECT_EQ(value("query_pre_attn_scalar"), Json(16));
}

TEST_F(FamilyConfigTest, ExpertsOfQwen) {
  become("qwen2moe");
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData), "\"qwen2moe.expert_count\" is missing");
  set_own("expert_count", int64_t{8});
  set_own("expert_used_count", int64_t{4});
  EXPECT_EQ(value("moe_intermediate_size"), Json(16));  // feed_forward_length / experts used
  EXPECT_EQ(value("shared_expert_intermediate_size"), Json(64));
  EXPECT_EQ(value("norm_topk_prob"), Json(false));
  set_own("expert_feed_forward_length", int64_t{24});
  EXPECT_EQ(value("moe_intermediate_size"), Json(24));
  set_own("expert_gating_func", int64_t{2});
  EXPECT_CONTAINS(error(ErrorCode::kUnsupported), "expert_gating_func\" is 2");
}

TEST_F(FamilyConfigTest, LatentAttention) {
  become("deepseek2");
  for (const char* key : {"expert_count", "expert_used_count", "expert_feed_forward_length",
                          "expert_shared_count", "attention.kv_lora_rank"})
    set_own(key, int64_t{2});
  set_own("rope.dimension_count", int64_t{8});
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData), "\"deepseek2.attention.key_length\" is missing");
  set_own("attention.key_length", int64_t{24});
  set_own("attention.value_length", int64_t{20});
  EXPECT_EQ(value("qk_nope_head_dim"), Json(16));
  EXPECT_EQ(value("v_head_dim"), Json(20));
  set_own("attention.key_length_mla", int64_t{32});
  set_own("attention.value_length_mla", int64_t{12});
  EXPECT_EQ(value("qk_nope_head_dim"), Json(24));
  EXPECT_EQ(value("v_head_dim"), Json(12));
  EXPECT_EQ(value("topk_method"), Json("greedy"));
  EXPECT_EQ(value("scoring_func"), Json("softmax"));
  set_own("expert_gating_func", int64_t{2});
  EXPECT_EQ(value("scoring_func"), Json("sigmoid"));
  set_own("expert_gating_func", int64_t{3});
  EXPECT_CONTAINS(error(ErrorCode::kUnsupported), "is 3; supported are 1 (softmax) and 2 (sigmoid)");
  set_own("expert_gating_func", int64_t{2});
  set_own("expert_group_count", int64_t{2});
  EXPECT_EQ(value("topk_method"), Json("group_limited_greedy"));
  add_tensor("blk.1.exp_probs_b.bias", {2});
  EXPECT_EQ(value("topk_method"), Json("noaux_tc"));
  set_own("rope.scaling.type", "yarn");
  set_own("rope.scaling.factor", 40.0);
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData), "yarn_log_multiplier\" is missing");
  set_own("rope.scaling.yarn_log_multiplier", 0.0707);
  EXPECT_DOUBLE_EQ(value("rope_scaling").at("mscale").as_double(), 0.707);
}

TEST_F(FamilyConfigTest, FactorsOfLongRope) {
  become("phi3");
  set_own("rope.scaling.original_context_length", int64_t{16});
  set_own("rope.scaling.attn_factor", 1.25);
  const float factors[] = {1, 2};
  const auto* data = reinterpret_cast<const std::byte*>(factors);
  content_.tensors.push_back({"rope_factors_short.weight", DType::kF32, {2}, data, 8});
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData), "tensor \"rope_factors_long.weight\" is missing");
  content_.tensors.push_back({"rope_factors_long.weight", DType::kF32, {2}, data, 8});
  EXPECT_EQ(value("rope_scaling"), parse_json(R"({"rope_type": "longrope", "short_factor": [1.0, 2.0],
      "long_factor": [1.0, 2.0], "attention_factor": 1.25, "original_max_position_embeddings": 16})",
                                              "want"));
  content_.tensors.back().dtype = DType::kF16;
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData), "expected f32");
}

TEST_F(FamilyConfigTest, TensorsTellWhatKeysDoNot) {
  become("falcon");
  EXPECT_EQ(value("num_ln_in_parallel_attn"), Json(1));
  add_tensor("blk.0.attn_norm_2.weight", {64});
  EXPECT_EQ(value("num_ln_in_parallel_attn"), Json(2));
  become("stablelm");
  EXPECT_EQ(value("use_parallel_residual"), Json(true));
  EXPECT_EQ(value("use_qkv_bias"), Json(false));
  add_tensor("blk.0.ffn_norm.weight", {64});
  add_tensor("blk.0.attn_q.bias", {64});
  EXPECT_EQ(value("use_parallel_residual"), Json(false));
  EXPECT_EQ(value("use_qkv_bias"), Json(true));
}

TEST_F(FamilyConfigTest, GraniteFactors) {
  become("granite");
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData), "\"granite.attention.scale\" is missing");
  set_own("attention.scale", 0.25);
  set_own("embedding_scale", 12.0);
  set_own("residual_scale", 0.125);
  EXPECT_EQ(value("attention_multiplier"), Json(0.25));
  EXPECT_EQ(value("embedding_multiplier"), Json(12.0));
  EXPECT_EQ(value("residual_multiplier"), Json(0.125));
  EXPECT_EQ(value("logits_scaling"), Json(0.5));
  set_own("rope.scaling.finetuned", true);
  EXPECT_NO_THROW(config());
  set_own("rope.scaling.finetuned", false);
  EXPECT_CONTAINS(error(ErrorCode::kUnsupported), "rope.scaling.finetuned\" is 0");
}

TEST_F(FamilyConfigTest, RefusesWhatIsNotOfTheFamily) {
  become("olmo2");  // OLMo 3 writes the same name
  set_own("attention.sliding_window", int64_t{4096});
  EXPECT_CONTAINS(error(ErrorCode::kUnsupported), "\"olmo2.attention.sliding_window\" is 4096");
  become("gemma");
  set_own("expert_count", int64_t{2});
  EXPECT_EQ(config().at("architectures").at(0), Json("gguf:gemma (mixture of experts)"));
}

TEST(HubTensorName, TranslatesByTheTable) {
  const auto name = [](std::string_view stored) { return hub_tensor_name("llama", stored); };
  EXPECT_EQ(name("token_embd.weight"), "model.embed_tokens.weight");
  EXPECT_EQ(name("output_norm.weight"), "model.norm.weight");
  EXPECT_EQ(name("output.weight"), "lm_head.weight");
  EXPECT_EQ(name("rope_freqs.weight"), "rope_freqs.weight");
  EXPECT_EQ(name("blk.0.attn_q.weight"), "model.layers.0.self_attn.q_proj.weight");
  EXPECT_EQ(name("blk.31.attn_k.bias"), "model.layers.31.self_attn.k_proj.bias");
  EXPECT_EQ(name("blk.7.attn_v.weight"), "model.layers.7.self_attn.v_proj.weight");
  EXPECT_EQ(name("blk.7.attn_output.weight"), "model.layers.7.self_attn.o_proj.weight");
  EXPECT_EQ(name("blk.7.attn_norm.weight"), "model.layers.7.input_layernorm.weight");
  EXPECT_EQ(name("blk.7.ffn_norm.weight"), "model.layers.7.post_attention_layernorm.weight");
  EXPECT_EQ(name("blk.7.ffn_gate.weight"), "model.layers.7.mlp.gate_proj.weight");
  EXPECT_EQ(name("blk.7.ffn_up.weight"), "model.layers.7.mlp.up_proj.weight");
  EXPECT_EQ(name("blk.120.ffn_down.weight"), "model.layers.120.mlp.down_proj.weight");
}

TEST(HubTensorName, KeepsWhatItDoesNotKnow) {
  for (const char* stored :
       {"", "blk.", "blk.0", "blk.0.attn_q", "blk..attn_q.weight", "blk.00.attn_q.weight",
        "blk.-1.attn_q.weight", "blk.1a.attn_q.weight", "blk.0.attn_q.scale", "blk.0.attn_qq.weight",
        "blk.0.ffn_gate_shexp.weight", "blk.0.ffn_gate.x.weight", "blk.0.ffn_gate.01.weight",
        "blk.0.attn_q.0.weight", "blk.0.attn_qkv.weight", "xblk.0.attn_q.weight", "output.weight.weight"})
    EXPECT_EQ(hub_tensor_name("llama", stored), stored);
  EXPECT_EQ(hub_tensor_name("mamba", "output.weight"), "output.weight");
}

// Where the file's form differs from the hub's, so does the name.
TEST(HubTensorName, OfFamilies) {
  EXPECT_EQ(hub_tensor_name("llama", "blk.2.ffn_gate.11.weight"),
            "model.layers.2.block_sparse_moe.experts.11.w1.weight");
  EXPECT_EQ(hub_tensor_name("llama", "blk.2.ffn_down_exps.weight"),
            "model.layers.2.block_sparse_moe.experts.w2.weight");
  EXPECT_EQ(hub_tensor_name("gemma2", "blk.1.ffn_norm.weight"),
            "model.layers.1.pre_feedforward_layernorm.weight");
  EXPECT_EQ(hub_tensor_name("gemma", "blk.1.ffn_norm.weight"),
            "model.layers.1.post_attention_layernorm.weight");
  EXPECT_EQ(hub_tensor_name("falcon", "blk.0.attn_qkv.weight"),
            "transformer.h.0.self_attention.qkv_proj.weight");
  EXPECT_EQ(hub_tensor_name("gpt2", "blk.0.attn_qkv.bias"), "transformer.h.0.attn.c_attn.linear.bias");
  EXPECT_EQ(hub_tensor_name("deepseek2", "blk.3.exp_probs_b.bias"),
            "model.layers.3.mlp.gate.e_score_correction_bias");
  EXPECT_EQ(hub_tensor_name("stablelm", "blk.0.attn_q_norm.weight"),
            "model.layers.0.self_attn.q_layernorm.weight");
}

TEST(HubTensorName, NoTwoStoredNamesBecomeOne) {
  for (const char* name : {"llama",  "qwen2",    "qwen2moe",  "qwen3",      "qwen3moe", "gemma",    "gemma2",
                           "gemma3", "phi2",     "phi3",      "starcoder2", "falcon",   "gpt2",     "gptneox",
                           "olmo2",  "stablelm", "command-r", "granite",    "deepseek", "deepseek2"}) {
    const GgufArchitecture* known = find_gguf_architecture(name);
    ASSERT_NE(known, nullptr) << name;
    std::set<std::string_view> hub, stored;
    for (const auto& rules : {known->names, known->layer_names}) {
      for (const auto& rule : rules) {
        EXPECT_TRUE(hub.insert(rule.hub).second) << name << " " << rule.hub;
        EXPECT_TRUE(stored.insert(rule.stored).second) << name << " " << rule.stored;
      }
    }
  }
}

}  // namespace
}  // namespace lmdeploy
