// Config keys of Llama and its relatives.
#include "lmdeploy/models/llama_like.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/models/registry.h"
#include "lmdeploy/models/spec_check.h"

namespace lmdeploy {
namespace {

// Llama-3.2-1B's config.json, shortened.
JsonObject small_config() {
  return parse_json(R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 2048, "intermediate_size": 8192,
      "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
      "vocab_size": 128256, "max_position_embeddings": 131072, "tie_word_embeddings": true,
      "eos_token_id": [128001, 128008, 128009]})",
                    "test")
      .as_object();
}

DecoderSpec read(JsonObject config) {
  const Json json(std::move(config));
  return read_llama_like(ConfigReader(json, "config.json"));
}

std::string error_of(JsonObject config, ErrorCode code) {
  try {
    read(std::move(config));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(LlamaLike, ReadsSizes) {
  const DecoderSpec s = read(small_config());
  EXPECT_EQ(s.hidden_size, 2048);
  EXPECT_EQ(s.intermediate_size, 8192);
  EXPECT_EQ(s.num_layers, 16);
  EXPECT_EQ(s.num_heads, 32);
  EXPECT_EQ(s.num_kv_heads, 8);
  EXPECT_EQ(s.head_dim, 64);
  EXPECT_EQ(s.vocab_size, 128256);
  EXPECT_EQ(s.norm_eps, 1e-5f);
  EXPECT_TRUE(s.tied_embedding);
  EXPECT_FALSE(s.qkv_bias || s.o_bias || s.mlp_bias);
  EXPECT_EQ(s.q_size(), 2048);
  EXPECT_EQ(s.kv_size(), 512);
  EXPECT_EQ(s.architecture, "LlamaForCausalLM");
}

TEST(LlamaLike, DefaultsOfMissingKeys) {
  JsonObject config = small_config();
  for (const char* key : {"num_key_value_heads", "rms_norm_eps", "tie_word_embeddings",
                          "max_position_embeddings", "eos_token_id"})
    config.erase(key);
  const DecoderSpec s = read(config);
  EXPECT_EQ(s.num_kv_heads, 32);
  EXPECT_EQ(s.norm_eps, 1e-6f);
  EXPECT_FALSE(s.tied_embedding);
  EXPECT_EQ(s.max_positions, 2048);
  EXPECT_TRUE(s.eos_ids.empty());
}

TEST(LlamaLike, BiasesAndHeadDim) {
  JsonObject config = small_config();
  config["attention_bias"] = true;
  config["mlp_bias"] = true;
  config["head_dim"] = 128;
  const DecoderSpec s = read(config);
  EXPECT_TRUE(s.qkv_bias && s.o_bias && s.mlp_bias);
  EXPECT_EQ(s.q_size(), 4096);
}

TEST(LlamaLike, F16_EndIdsOfConfigIntOrList) {
  JsonObject config = small_config();
  EXPECT_EQ(read(config).eos_ids, (std::vector<int>{128001, 128008, 128009}));
  config["eos_token_id"] = 0;
  EXPECT_EQ(read(config).eos_ids, std::vector<int>{0});
  config["eos_token_id"] = nullptr;
  EXPECT_TRUE(read(config).eos_ids.empty());
  config["eos_token_id"] = "</s>";
  error_of(config, ErrorCode::kInvalidData);
}

TEST(LlamaLike, F42_LengthIsTheShortestKeyTimesScaling) {
  JsonObject config = small_config();
  EXPECT_EQ(read(config).max_positions, 131072);
  config["max_position_embeddings"] = 4096;
  config["max_sequence_length"] = 16384;  // lmsys/vicuna-7b-v1.5-16k
  config["rope_scaling"] = JsonObject{{"type", "linear"}, {"factor", 4.0}};
  EXPECT_EQ(read(config).max_positions, 16384);
  config.erase("rope_scaling");
  config["seq_length"] = 1000;
  EXPECT_EQ(read(config).max_positions, 1000);
  for (const char* key : {"n_positions", "max_seq_len", "model_max_length", "max_seq_length", "seq_len"}) {
    JsonObject one = small_config();
    one[key] = 77;
    EXPECT_EQ(read(one).max_positions, 77) << key;
  }
  JsonObject huge = small_config();
  huge["rope_scaling"] = JsonObject{{"type", "linear"}, {"factor", 1e9}};
  EXPECT_EQ(read(huge).max_positions, 2147483647);
}

TEST(LlamaLike, NestedTextConfigComesFirst) {
  JsonObject config = small_config();
  config["text_config"] = JsonObject{{"num_hidden_layers", 3}, {"max_position_embeddings", 55}};
  EXPECT_EQ(read(config).num_layers, 3);
  EXPECT_EQ(read(config).max_positions, 55);
  EXPECT_EQ(read(config).hidden_size, 2048);
}

TEST(LlamaLike, BadValuesAreNamed) {
  for (const char* key : {"hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers",
                          "num_key_value_heads", "vocab_size", "max_position_embeddings"}) {
    for (const Json& value : {Json(0), Json(-3), Json(int64_t{1} << 60), Json("8")}) {
      JsonObject config = small_config();
      config[key] = value;
      const std::string message = error_of(config, ErrorCode::kInvalidData);
      EXPECT_NE(message.find(key), std::string::npos) << message;
      EXPECT_NE(message.find("config.json"), std::string::npos) << message;
    }
  }
  for (const char* key :
       {"hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers", "vocab_size"}) {
    JsonObject config = small_config();
    config.erase(key);
    EXPECT_NE(error_of(config, ErrorCode::kInvalidData).find(key), std::string::npos);
  }
}

TEST(LlamaLike, SizesThatDoNotDivide) {
  JsonObject config = small_config();
  config["num_attention_heads"] = 24;
  EXPECT_NE(error_of(config, ErrorCode::kInvalidData).find("head_dim"), std::string::npos);
}

TEST(LlamaLike, ActivationsByName) {
  const std::pair<const char*, Activation> names[] = {{"swish", Activation::kSilu},
                                                      {"gelu", Activation::kGelu},
                                                      {"gelu_new", Activation::kGeluTanh},
                                                      {"gelu_fast", Activation::kGeluTanh},
                                                      {"quick_gelu", Activation::kQuickGelu}};
  JsonObject config = small_config();
  for (const auto& [name, activation] : names) {
    config["hidden_act"] = name;
    EXPECT_EQ(read(config).activation, activation) << name;
  }
  config["hidden_act"] = "mish";
  EXPECT_NE(error_of(config, ErrorCode::kUnsupported).find("\"mish\""), std::string::npos);
}

const ModelFamily& family_of(const std::string& architecture, const std::string& where = "test") {
  const Json config = JsonObject{{"architectures", JsonArray{Json(architecture)}}};
  return find_family(ConfigReader(config, where));
}

TEST(Registry, ListsWhatIsSupported) {
  const std::vector<std::string> names = supported_architectures();
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
  for (const char* name : {"LLaMAForCausalLM", "LlamaForCausalLM", "YiForCausalLM", "DeepseekV3ForCausalLM"})
    EXPECT_TRUE(std::binary_search(names.begin(), names.end(), name)) << name;
  for (const std::string& name : names) EXPECT_EQ(family_of(name).architecture, name);
}

TEST(Registry, UnknownArchitectureIsRefusedWithTheList) {
  for (const char* name : {"BloomForCausalLM", "llamaforcausallm", ""}) {
    try {
      family_of(name, "dir/config.json");
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
      const std::string message = error.what();
      EXPECT_NE(message.find(name), std::string::npos) << message;
      EXPECT_NE(message.find("dir/config.json"), std::string::npos) << message;
      EXPECT_NE(message.find("LlamaForCausalLM, MiniCPMForCausalLM"), std::string::npos) << message;
    }
  }
}

DecoderSpec read_family(const char* architecture, JsonObject config) {
  const Json json(std::move(config));
  return checked_spec(family_of(architecture), ConfigReader(json, "config.json"));
}

// A Mistral file relabelled as Llama.
TEST(LlamaFamily, SlidingWindowIsKept) {
  JsonObject config = small_config();
  config["sliding_window"] = 4096;
  const DecoderSpec s = read_family("LlamaForCausalLM", config);
  EXPECT_TRUE(
      std::all_of(s.layers.begin(), s.layers.end(), [](const LayerSpec& l) { return l.window == 4096; }));
  for (const Json& none : {Json(nullptr), Json(0), Json(131072)}) {
    config["sliding_window"] = none;
    EXPECT_EQ(read_family("LlamaForCausalLM", config).layers[0].window, 0) << to_json_text(none);
  }
  config["sliding_window"] = -1;
  EXPECT_THROW(read_family("LlamaForCausalLM", config), Error);
}

TEST(QwenFamily, WindowOnlyOfLaterLayersAndOnlyIfAskedFor) {
  JsonObject config = small_config();
  config["sliding_window"] = 4096;
  config["max_window_layers"] = 10;
  EXPECT_EQ(read_family("Qwen2ForCausalLM", config).layers[15].window, 0);
  config["use_sliding_window"] = true;
  const DecoderSpec s = read_family("Qwen2ForCausalLM", config);
  EXPECT_EQ(s.layers[9].window, 0);
  EXPECT_EQ(s.layers[10].window, 4096);
}

TEST(LayerTypes, MustNameEveryLayer) {
  JsonObject config = small_config();
  config["sliding_window"] = 128;
  config["layer_types"] = JsonArray{"sliding_attention"};
  EXPECT_THROW(read_family("MistralForCausalLM", config), Error);
  config["num_hidden_layers"] = 2;
  config["layer_types"] = JsonArray{"sliding_attention", "full_attention"};
  const DecoderSpec s = read_family("MistralForCausalLM", config);
  EXPECT_EQ(s.layers[0].window, 128);
  EXPECT_EQ(s.layers[1].window, 0);
  config["layer_types"] = JsonArray{"sliding_attention", "chunked_attention"};
  EXPECT_THROW(read_family("MistralForCausalLM", config), Error);
}

}  // namespace
}  // namespace lmdeploy
