// GGUF metadata and tensor names in the hub's words.
#include "lmdeploy/formats/gguf_hub.h"

#include <gtest/gtest.h>

#include <cmath>
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
  EXPECT_FALSE(config().contains("partial_rotary_factor"));
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
                  "is \"longrope\"; supported are \"none\", \"linear\" and \"yarn\"");
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
  EXPECT_EQ(config().at("architectures").at(0), Json("gguf:llama (mixture of experts)"));
  set("llama.expert_count", int64_t{0});
  EXPECT_EQ(config().at("architectures").at(0), Json("LlamaForCausalLM"));
  for (const GgufValue& bad : {GgufValue(int64_t{1}), GgufValue(""), GgufValue("a\nb"), GgufValue("\xff")}) {
    set("general.architecture", bad);
    EXPECT_CONTAINS(error(ErrorCode::kInvalidData), "expected a name");
  }
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
        "blk.0.ffn_gate_exps.weight", "xblk.0.attn_q.weight", "output.weight.weight"})
    EXPECT_EQ(hub_tensor_name("llama", stored), stored);
  EXPECT_EQ(hub_tensor_name("mamba", "output.weight"), "output.weight");
}

TEST(HubTensorName, NoTwoStoredNamesBecomeOne) {
  const GgufArchitecture* llama = find_gguf_architecture("llama");
  ASSERT_NE(llama, nullptr);
  std::set<std::string_view> hub;
  for (const auto& rule : llama->names) EXPECT_TRUE(hub.insert(rule.hub).second) << rule.hub;
  for (const auto& rule : llama->layer_names) EXPECT_TRUE(hub.insert(rule.hub).second) << rule.hub;
}

}  // namespace
}  // namespace lmdeploy
