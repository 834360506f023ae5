// config.ini and config.yaml: what their keys become, and what is refused.
#include "lmdeploy/formats/turbomind/workspace.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/expect_error.h"
#include "lmdeploy/formats/turbomind/ini.h"
#include "lmdeploy/formats/turbomind/yaml.h"

namespace lmdeploy {
namespace {

// As the documents show it, for a model of 4 heads of 16.
const std::string kModel =
    "[llama]\nmodel_name = llama2\ntensor_para_size = 1\nhead_num = 4\nkv_head_num = 2\nvocab_size = 65\n"
    "num_layer = 2\ninter_size = 48\nnorm_eps = 1e-06\nattn_bias = 0\nstart_id = 1\nend_id = 2\n"
    "weight_type = fp16\nrotary_embedding = 16\nrope_theta = 10000.0\nsize_per_head = 16\n";
const std::string kSecond = kModel + "cache_max_entry_count = 0.5\ncache_block_seq_len = 128\n";

WorkspaceConfig ini(const std::string& text) { return parse_workspace_ini(text, "w/config.ini"); }

std::string without(std::string text, const std::string& key) {
  const size_t at = text.find("\n" + key + " ") + 1;
  return text.erase(at, text.find('\n', at) + 1 - at);
}

TEST(WorkspaceIni, TheSampleOfTheDocuments) {
  const WorkspaceConfig config = ini(kSecond + "session_len = 4104\nmax_batch_size = 32\nunknown_key = 7\n");
  const WorkspaceModel& m = config.model;
  EXPECT_FALSE(config.own_layout);
  EXPECT_EQ(m.heads, 4);
  EXPECT_EQ(m.kv_heads, 2);
  EXPECT_EQ(m.hidden, 64);
  EXPECT_EQ(m.vocab, 65);
  EXPECT_EQ(m.embedding_rows, 65);
  EXPECT_EQ(m.inter, (std::vector<int64_t>{48, 48}));
  EXPECT_EQ(m.dtype, DType::kF16);
  EXPECT_FALSE(m.attention_bias);
  EXPECT_EQ(
      to_json_text(Json(config.settings)),
      R"({"session_len":4104,"max_batch_size":32,"cache_block_seq_len":128,"cache_max_entry_count":5E-1,)"
      R"("chat_template":"llama2"})");
  EXPECT_EQ(config.hub.at("rms_norm_eps").as_double(), 1e-6);
  EXPECT_FALSE(config.hub.contains("rope_scaling"));
}

TEST(WorkspaceIni, RanksAndPadding) {
  std::string text = kSecond;
  text.replace(text.find("size = 1"), 8, "size = 2");
  const WorkspaceConfig config = ini(text);
  EXPECT_EQ(config.model.ranks, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(config.model.embedding_rows, 66);
}

TEST(WorkspaceIni, WhatAFactorMeans) {
  const auto scaling = [](const std::string& keys) {
    const JsonObject hub = ini(kSecond + "max_position_embeddings = 512\n" + keys).hub;
    return hub.contains("rope_scaling") ? to_json_text(hub.at("rope_scaling")) : "none";
  };
  EXPECT_EQ(scaling("rope_scaling_factor = 0.0\n"), "none");
  EXPECT_EQ(scaling("rope_scaling_factor = 1.0\n"), R"({"type":"dynamic","factor":1E0})");
  EXPECT_EQ(scaling("rope_scaling_factor = 2\nuse_dynamic_ntk = 1\n"), R"({"type":"dynamic","factor":2E0})");
  EXPECT_EQ(scaling("rope_scaling_factor = 4.0\nuse_dynamic_ntk = 0\n"), R"({"type":"linear","factor":4E0})");
  EXPECT_EQ(scaling("rope_scaling_factor = 0.0\nuse_dynamic_ntk = True\n"), "none");
  expect_error(ErrorCode::kInvalidData, {"config.ini", "rope_scaling_factor", "0.5"},
               [&] { scaling("rope_scaling_factor = 0.5\n"); });
  expect_error(ErrorCode::kInvalidData, {"dynamic NTK", "max_position_embeddings"},
               [&] { ini(kSecond + "rope_scaling_factor = 1.0\n"); });
}

TEST(WorkspaceIni, LogNNeedsTheTrainedLength) {
  const WorkspaceConfig config = ini(kSecond + "use_logn_attn = 1\nmax_position_embeddings = 512\n");
  EXPECT_TRUE(config.hub.at("use_logn_attn").as_bool());
  expect_error(ErrorCode::kInvalidData, {"use_logn_attn", "max_position_embeddings"},
               [&] { ini(kSecond + "use_logn_attn = 1\n"); });
}

// 48 sequences of 2056 tokens, in blocks of 64.
TEST(WorkspaceIni, TheFirstGenerationCountsSequences) {
  const std::string first = kModel + "session_len = 2056\ncache_max_entry_count = 48\nuse_dynamic_ntk = 0\n";
  EXPECT_EQ(ini(first).settings.at("cache_max_entry_count").as_double(), 48 * 33);
  EXPECT_EQ(ini(first + "cache_block_seq_len = 64\n").settings.at("cache_max_entry_count").as_double(), 48);
  expect_error(ErrorCode::kUnsupported, {"quant_policy", "TurboMind 1.0", "set it to 0"},
               [&] { ini(first + "quant_policy = 4\n"); });
  std::string dynamic = first + "max_position_embeddings = 2048\n";
  dynamic.replace(dynamic.find("ntk = 0"), 7, "ntk = 1");
  EXPECT_EQ(to_json_text(ini(dynamic).hub.at("rope_scaling")), R"({"type":"dynamic","factor":1E0})");
}

TEST(WorkspaceIni, AWrittenDefaultIsNobodysWish) {
  std::string text = kSecond;
  text.replace(text.find("0.5"), 3, "0.8");
  EXPECT_FALSE(ini(text).settings.contains("cache_max_entry_count"));
}

TEST(WorkspaceIni, OurOwnLayout) {
  const WorkspaceConfig config =
      ini("[llama]\nmodel_name = qwen\nweight_layout = 1\nsession_len = 72\nrope_scaling_factor = "
          "2.0\nuse_logn_attn = 1\n");
  EXPECT_TRUE(config.own_layout);
  EXPECT_EQ(config.settings.at("rope_scaling_factor").as_double(), 2);
  EXPECT_TRUE(config.settings.at("use_logn_attn").as_bool());
  expect_error(ErrorCode::kUnsupported, {"weight_layout", "2"},
               [&] { ini(kSecond + "weight_layout = 2\n"); });
}

TEST(WorkspaceIni, WhatDescribesTheModelMustBeThere) {
  for (const char* key : {"head_num", "kv_head_num", "vocab_size", "num_layer", "inter_size", "norm_eps",
                          "attn_bias", "start_id", "end_id"}) {
    SCOPED_TRACE(key);
    expect_error(ErrorCode::kInvalidData, {"w/config.ini", key, "missing"},
                 [&] { ini(without(kSecond, key)); });
  }
  EXPECT_EQ(ini(without(without(kSecond, "rope_theta"), "weight_type")).hub.at("rope_theta").as_double(),
            10000);
}

TEST(WorkspaceIni, RefusedByName) {
  const auto with = [](const std::string& from, const std::string& to) {
    std::string text = kSecond;
    return text.replace(text.find(from), from.size(), to);
  };
  expect_error(ErrorCode::kUnsupported, {"weight_type", "int4", "AWQ checkpoint"},
               [&] { ini(with("= fp16", "= int4")); });
  expect_error(ErrorCode::kUnsupported, {"weight_type", "int8", "fp16"},
               [&] { ini(with("= fp16", "= int8")); });
  expect_error(ErrorCode::kUnsupported, {"lora_policy", "plora"},
               [&] { ini(kSecond + "lora_policy = plora\n"); });
  expect_error(ErrorCode::kUnsupported, {"rotary_embedding", "8"},
               [&] { ini(with("bedding = 16", "bedding = 8")); });
  expect_error(ErrorCode::kInvalidData, {"head_num", "\"x\""},
               [&] { ini(with("head_num = 4", "head_num = x")); });
  expect_error(ErrorCode::kInvalidData, {"head_num", "0"},
               [&] { ini(with("head_num = 4", "head_num = 0")); });
  expect_error(ErrorCode::kInvalidData, {"attn_bias", "2"}, [&] { ini(with("bias = 0", "bias = 2")); });
  expect_error(ErrorCode::kInvalidData, {"head_num 4", "kv_head_num 3"},
               [&] { ini(with("kv_head_num = 2", "kv_head_num = 3")); });
  expect_error(ErrorCode::kInvalidData, {"session_len", "-1"}, [&] { ini(kSecond + "session_len = -1\n"); });
}

TEST(Ini, SyntaxErrorsNameTheLine) {
  const auto parse = [](const std::string& text) { return parse_ini(text, "llama", "f"); };
  EXPECT_EQ(to_json_text(Json(parse("# a\r\n[other]\nx = 1\n[llama]\nA : 1\nb=x = y\n;c\nd =\n"))),
            R"({"a":1,"b":"x = y","d":""})");
  const std::pair<const char*, const char*> bad[] = {
      {"", "no section [llama]"},      {"a = 1\n", "line 1"},
      {"[llama\n", "line 1"},          {"[llama]\na = 1\na = 2\n", "line 3: key \"a\""},
      {"[llama]\nword\n", "line 2"},   {"[llama]\na = 1\n  more\n", "line 3"},
      {"[llama]\n[llama]\n", "twice"}, {"[llama]\na = \xff\n", "UTF-8"},
  };
  for (const auto& [text, message] : bad) {
    SCOPED_TRACE(message);
    expect_error(ErrorCode::kInvalidData, {"f", message}, [&] { parse(text); });
  }
}

TEST(Yaml, WhatDumpersWrite) {
  const std::pair<const char*, const char*> good[] = {
      {"a: 1\nb:\n  c: 1.0e-06\n  d: true\ne: null\n", R"({"a":1,"b":{"c":1E-6,"d":true},"e":null})"},
      {"a:\n- 1\n- 2\nb:\n  - x\n", R"({"a":[1,2],"b":["x"]})"},
      {"- a: 1\n  b: 2\n-\n  c: 3\n- - 4\n  - 5\n", R"([{"a":1,"b":2},{"c":3},[4,5]])"},
      {"a: []\nb: {}\nc: [1, [2, x], {d: 'e, f'}]\n", R"({"a":[],"b":{},"c":[1,[2,"x"],{"d":"e, f"}]})"},
      {"a: {b: 1,\n  c: 2}\nd: 3\n", R"({"a":{"b":1,"c":2},"d":3})"},
      {"--- # head\n'a': 'it''s' # tail\n\"b\": \"\\n#\"\nc: a#b: c\n",
       R"({"a":"it's","b":"\n#","c":"a#b: c"})"},
      {"a: ''\nb:\nc: -1\n", R"({"a":"","b":null,"c":-1})"},
  };
  for (const auto& [text, want] : good) EXPECT_EQ(to_json_text(parse_yaml(text, "f")), want) << text;
}

TEST(Yaml, TheRestIsRefusedWithTheLine) {
  const std::pair<const char*, const char*> bad[] = {
      {"", "empty"},
      {"a: &x 1\n", "line 1"},
      {"a: |\n  text\n", "line 2"},
      {"a: 1\n\tb: 2\n", "line 2: there is a tab"},
      {"a: 1\na: 2\n", "line 2: key \"a\" is there twice"},
      {"a: x\n  y\n", "line 2"},
      {"a:\n    b: 1\n  c: 2\n", "line 3"},
      {"a: [1, 2\n", "line 1"},
      {"a: [1] 2\n", "line 1"},
      {"a: 1\n---\nb: 2\n", "second document"},
      {"a: 'x\n", "line 1"},
      {"a: \"\xff\"\n", "UTF-8"},
  };
  for (const auto& [text, message] : bad) {
    SCOPED_TRACE(text);
    expect_error(ErrorCode::kInvalidData, {"f", message}, [&] { parse_yaml(text, "f"); });
  }
  std::string deep;
  for (int i = 0; i < 40; ++i) deep += std::string(static_cast<size_t>(i), ' ') + "a:\n";
  expect_error(ErrorCode::kInvalidData, {"nested"}, [&] { parse_yaml(deep, "f"); });
  expect_error(ErrorCode::kInvalidData, {"nested"}, [&] { parse_yaml("a: " + std::string(100, '['), "f"); });
}

const std::string kYaml =
    "attention_config:\n  rope_theta: 10000.0\n  rotary_embedding: 16\n  max_position_embeddings: 512\n"
    "  softmax_scale: 0.0\nlora_config:\n  lora_policy: ''\nmodel_config:\n  attn_bias: 0\n  chat_template: "
    "llama2\n"
    "  data_type: float16\n  end_id: [2, 3]\n  head_num: 4\n  hidden_units: 64\n  inter_size:\n  - 48\n  - "
    "48\n"
    "  kv_head_num: 2\n  model_name: anything\n  norm_eps: 1.0e-06\n  num_layer: 2\n  session_len: 512\n"
    "  size_per_head: 16\n  start_id: 1\n  tp: 2\n  vocab_size: 65\n  weight_type: bfloat16\n";

WorkspaceConfig yaml(const std::string& more = "") {
  return parse_workspace_yaml(kYaml + more, "w/config.yaml");
}

TEST(WorkspaceYaml, DenseModels) {
  const WorkspaceConfig config = yaml();
  EXPECT_EQ(config.model.dtype, DType::kBF16);
  EXPECT_EQ(config.model.ranks, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(config.model.embedding_rows, 66);
  EXPECT_EQ(to_json_text(config.hub.at("eos_token_id")), "[2,3]");
  EXPECT_EQ(to_json_text(Json(config.settings)), R"({"session_len":512,"chat_template":"llama2"})");
}

TEST(WorkspaceYaml, Experts) {
  const JsonObject hub = yaml(
                             "  expert_num: [0, 8]\n  expert_inter_size: 24\n  experts_per_token: 2\n"
                             "  moe_shared_gate: true\n  routed_scale: 1.5\n")
                             .hub;
  EXPECT_EQ(to_json_text(hub.at("expert_layers")), "[false,true]");
  EXPECT_EQ(hub.at("num_experts").as_int64(), 8);
  EXPECT_EQ(hub.at("shared_expert_intermediate_size").as_int64(), 48);
  EXPECT_EQ(hub.at("routed_scaling_factor").as_double(), 1.5);
  expect_error(ErrorCode::kUnsupported, {"topk_method", "noaux_tc"}, [] {
    yaml("  expert_num: [0, 8]\n  expert_inter_size: 24\n  experts_per_token: 2\n  topk_method: noaux_tc\n");
  });
  expect_error(ErrorCode::kUnsupported, {"expert_num is 4", "8"},
               [] { yaml("  expert_num: [4, 8]\n  expert_inter_size: 24\n  experts_per_token: 2\n"); });
  expect_error(ErrorCode::kInvalidData, {"expert_num", "3 entries", "2 layers"},
               [] { yaml("  expert_num: [0, 8, 8]\n"); });
}

TEST(WorkspaceYaml, RefusedByName) {
  expect_error(ErrorCode::kUnsupported, {"qk_norm", "original checkpoint"},
               [] { yaml("  qk_norm: true\n"); });
  expect_error(ErrorCode::kUnsupported, {"window_size"}, [] { yaml("  window_size: [0, 128]\n"); });
  expect_error(ErrorCode::kUnsupported, {"tune_layer_num"}, [] { yaml("  tune_layer_num: 2\n"); });
  std::string text = kYaml;
  text.replace(text.find("''"), 2, "plora");
  expect_error(ErrorCode::kUnsupported, {"lora_policy", "plora"}, [&] { parse_workspace_yaml(text, "w"); });
  text = kYaml;
  text.replace(text.find("bfloat16"), 8, "fp8");
  expect_error(ErrorCode::kUnsupported, {"weight_type", "fp8"}, [&] { parse_workspace_yaml(text, "w"); });
  expect_error(ErrorCode::kInvalidData, {"model_config"}, [] { parse_workspace_yaml("a: 1\n", "w"); });
}

}  // namespace
}  // namespace lmdeploy
