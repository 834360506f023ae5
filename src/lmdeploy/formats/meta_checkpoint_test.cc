// Meta's form: names, configs and the joining of files.
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/formats/meta_config.h"
#include "lmdeploy/formats/test_support.h"
#include "lmdeploy/formats/torch/torch_test_support.h"

namespace lmdeploy {
namespace {

constexpr const char* kParams =
    R"({"dim": 4, "n_layers": 1, "n_heads": 2, "n_kv_heads": 1, "multiple_of": 8, "norm_eps": 1e-06, "vocab_size": -1})";

class MetaCheckpointTest : public testing::Test {
 protected:
  using Shapes = std::vector<std::pair<std::string, Shape>>;

  // Tensor k of file f has pattern 20 f + k, norms are the same in all.
  void write(int file, const Shapes& shapes) {
    std::vector<NamedTensor> named;
    for (size_t k = 0; k < shapes.size(); ++k) {
      const bool norm = shapes[k].first.find("norm") != std::string::npos;
      kept_.push_back(
          golden_tensor(DType::kF32, shapes[k].second, static_cast<int>(k) + (norm ? 0 : 20 * file)));
      named.push_back({shapes[k].first, kept_.back()});
    }
    folder_.write(cat("consolidated.0", file, ".pth"), torch_file(named));
  }
  void write_params(std::string_view text = kParams) { folder_.write("params.json", text); }
  std::string error(ErrorCode code) {
    return error_of(code, [&] { open_checkpoint(folder_.path()); });
  }

  // Names and shapes of the whole, of one file of two, with the embedding by columns (Llama 1, 2) or rows
  // (3).
  static Shapes whole() {
    return {{"tok_embeddings.weight", {6, 4}},
            {"layers.0.attention.wq.weight", {4, 4}},
            {"layers.0.attention.wk.weight", {2, 4}},
            {"layers.0.attention.wo.weight", {4, 4}},
            {"layers.0.feed_forward.w1.weight", {16, 4}},
            {"layers.0.feed_forward.w2.weight", {4, 16}},
            {"layers.0.attention_norm.weight", {4}},
            {"norm.weight", {4}},
            {"output.weight", {6, 4}},
            {"rope.freqs", {1}}};
  }
  static Shapes half(bool embedding_by_rows) {
    Shapes shapes = whole();
    shapes[0].second = embedding_by_rows ? Shape{3, 4} : Shape{6, 2};
    shapes[1].second = {2, 4};
    shapes[2].second = {1, 4};
    shapes[3].second = {4, 2};
    shapes[4].second = {8, 4};
    shapes[5].second = {4, 8};
    shapes[8].second = {3, 4};
    return shapes;
  }

  TempFolder folder_;
  std::deque<Tensor> kept_;
};

std::map<std::string, size_t> by_name(const Checkpoint& checkpoint) {
  std::map<std::string, size_t> out;
  for (size_t i = 0; i < checkpoint.tensors().size(); ++i) out[checkpoint.tensors()[i].name] = i;
  return out;
}

TEST_F(MetaCheckpointTest, OneFileHasHubNames) {
  write_params();
  write(0, whole());
  for (const std::string& path : {folder_.path(), folder_.file("consolidated.00.pth")}) {
    const auto checkpoint = open_checkpoint(path, {"llama"});
    const auto tensors = by_name(*checkpoint);
    const std::pair<const char*, int> wanted[] = {{"model.embed_tokens.weight", 0},
                                                  {"model.layers.0.self_attn.q_proj.weight", 1},
                                                  {"model.layers.0.self_attn.k_proj.weight", 2},
                                                  {"model.layers.0.self_attn.o_proj.weight", 3},
                                                  {"model.layers.0.mlp.gate_proj.weight", 4},
                                                  {"model.layers.0.mlp.down_proj.weight", 5},
                                                  {"model.layers.0.input_layernorm.weight", 6},
                                                  {"model.norm.weight", 7},
                                                  {"lm_head.weight", 8}};
    EXPECT_EQ(tensors.size(), std::size(wanted));
    for (const auto& [name, k] : wanted) {
      ASSERT_TRUE(tensors.contains(name)) << name;
      EXPECT_EQ(bytes_of(checkpoint->tensor(tensors.at(name))), bytes_of(kept_[static_cast<size_t>(k)]))
          << name;
    }
    EXPECT_EQ(checkpoint->config_path(), folder_.file("params.json"));
  }
}

class MetaSplitTest : public MetaCheckpointTest, public testing::WithParamInterface<bool> {};

TEST_P(MetaSplitTest, TwoFilesAreJoined) {
  write_params();
  write(0, half(GetParam()));
  write(1, half(GetParam()));
  const auto checkpoint = open_checkpoint(folder_.path());
  const auto tensors = by_name(*checkpoint);
  const auto rows = [&](size_t k) { return bytes_of(kept_[k]) + bytes_of(kept_[10 + k]); };
  const auto columns = [&](size_t k) {
    std::string out;
    for (int64_t r = 0; r < kept_[k].dim(0); ++r)
      for (const Tensor* part : {&kept_[k], &kept_[10 + k]}) out += bytes_of(part->view().slice_rows(r, 1));
    return out;
  };
  const auto expect = [&](const std::string& name, const Shape& shape, const std::string& bytes) {
    const size_t index = tensors.at(name);
    EXPECT_EQ(checkpoint->tensors()[index].shape, shape) << name;
    EXPECT_EQ(bytes_of(checkpoint->tensor(index)), bytes) << name;
    checkpoint->drop(index);
    EXPECT_EQ(bytes_of(checkpoint->tensor(index)), bytes) << name << " again";
  };
  expect("model.embed_tokens.weight", {6, 4}, GetParam() ? rows(0) : columns(0));
  expect("model.layers.0.self_attn.q_proj.weight", {4, 4}, rows(1));
  expect("model.layers.0.self_attn.k_proj.weight", {2, 4}, rows(2));
  expect("model.layers.0.self_attn.o_proj.weight", {4, 4}, columns(3));
  expect("model.layers.0.mlp.gate_proj.weight", {16, 4}, rows(4));
  expect("model.layers.0.mlp.down_proj.weight", {4, 16}, columns(5));
  expect("model.norm.weight", {4}, bytes_of(kept_[7]));
  expect("lm_head.weight", {6, 4}, rows(8));
  EXPECT_EQ(ConfigReader(checkpoint->config(), "c").get("vocab_size", 0), 6);
}

INSTANTIATE_TEST_SUITE_P(Embedding, MetaSplitTest, testing::Values(false, true),
                         [](const auto& test) { return test.param ? "ByRows" : "ByColumns"; });

TEST_F(MetaCheckpointTest, FilesThatDoNotFitTogether) {
  write_params();
  write(1, half(false));
  EXPECT_CONTAINS(error(ErrorCode::kNotFound), "not consolidated.00.pth");
  MetaCheckpointTest::Shapes other = half(false);
  other.pop_back();
  other[1].second = {3, 4};
  write(0, other);
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData), "tensor \"layers.0.attention.wq.weight\" is f32 [3, 4] in");
  other[1].second = {2, 4};
  write(0, other);
  folder_.write("params.json", "{}");
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData), "params.json: key \"dim\" is missing");
  write_params();
  other.erase(other.begin() + 7);
  write(0, other);
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData), "tensor \"norm.weight\" is in 1 of 2 files");
  other.insert(other.begin(), {"norm.weight", {4}});  // number 0 of this file, 7 of the other: other bytes
  write(0, other);
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData), "norm.weight\" is not the same in");
}

// ---- params.json of the published models

JsonObject config_of(std::string_view params, MetaWeights weights) {
  return meta_hub_config(parse_json(params, "p"), "params.json", weights);
}
std::string error_of_params(ErrorCode code, std::string_view params) {
  return error_of(code, [&] { config_of(params, {.ffn_rows = 16}); });
}

TEST(MetaConfig, Llama2) {
  const JsonObject config = config_of(
      R"({"dim": 4096, "multiple_of": 256, "n_heads": 32, "n_layers": 32, "norm_eps": 1e-05, "vocab_size": -1})",
      {.embedding_rows = 32000, .ffn_rows = 11008, .dtype = DType::kF16});
  EXPECT_EQ(Json(config), parse_json(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
      "intermediate_size": 11008, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "rope_interleaved": true,
      "vocab_size": 32000, "max_position_embeddings": 4096, "hidden_act": "silu", "tie_word_embeddings": false,
      "torch_dtype": "float16"})",
                                     "want"));
}

TEST(MetaConfig, Llama3AndLater) {
  const JsonObject llama31 = config_of(
      R"({"dim": 4096, "ffn_dim_multiplier": 1.3, "multiple_of": 1024, "n_heads": 32, "n_kv_heads": 8, "n_layers": 32,
          "norm_eps": 1e-05, "rope_theta": 500000.0, "use_scaled_rope": true, "vocab_size": 128256})",
      {.embedding_rows = 128256, .ffn_rows = 14336});
  EXPECT_EQ(llama31.at("intermediate_size"), 14336);
  EXPECT_EQ(llama31.at("num_key_value_heads"), 8);
  EXPECT_EQ(llama31.at("rope_scaling"),
            parse_json(R"({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
      "high_freq_factor": 4.0, "original_max_position_embeddings": 8192})",
                       "want"));
  const JsonObject llama32 = config_of(
      R"({"dim": 2048, "ffn_dim_multiplier": 1.5, "multiple_of": 256, "n_heads": 32, "n_kv_heads": 8, "n_layers": 16,
          "norm_eps": 1e-05, "rope_theta": 500000.0, "use_scaled_rope": true, "vocab_size": 128256})",
      {.embedding_rows = 128256, .ffn_rows = 8192, .has_output = false});
  EXPECT_EQ(llama32.at("intermediate_size"), 8192);
  EXPECT_EQ(llama32.at("rope_scaling").at("factor"), 32.0);
  EXPECT_EQ(llama32.at("max_position_embeddings"), 131072);
  EXPECT_EQ(llama32.at("tie_word_embeddings"), true);
}

TEST(MetaConfig, BadParams) {
  EXPECT_CONTAINS(error_of_params(ErrorCode::kInvalidData, R"({"n_layers": 1, "n_heads": 1})"),
                  "key \"dim\" is missing");
  EXPECT_CONTAINS(error_of_params(ErrorCode::kInvalidData, R"({"dim": 0, "n_layers": 1, "n_heads": 1})"),
                  "key \"dim\"");
  EXPECT_CONTAINS(error_of_params(ErrorCode::kUnsupported, R"({"dim": 4, "moe": {}})"),
                  "key \"moe\" is not supported");
  EXPECT_CONTAINS(error_of_params(ErrorCode::kInvalidData,
                                  R"({"dim": 4, "n_layers": 1, "n_heads": 1, "multiple_of": 32})"),
                  "give 32 rows of layers.0.feed_forward.w1, the files have 16");
  EXPECT_CONTAINS(
      error_of_params(
          ErrorCode::kInvalidData,
          R"({"dim": 4, "n_layers": 1, "n_heads": 1, "multiple_of": 4, "ffn_dim_multiplier": 1e300})"),
      "ffn_dim_multiplier");
  EXPECT_CONTAINS(error_of_params(ErrorCode::kInvalidData, "[]"), "expected an object");
}

}  // namespace
}  // namespace lmdeploy
