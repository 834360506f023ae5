// `lmdeploy check_env MODEL` as users run it.
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "../models/random_llama.h"
#include "../pipeline/text_models.h"
#include "program_run.h"

namespace lmdeploy::testing {
namespace {

struct Result {
  int code = 0;
  std::string out, err;
};
Result check_env(const std::string& model) {
  ProgramRun run({"check_env", model});
  const int code = run.finish();
  return {code, run.out(), run.err()};
}

void expect_lines(const Result& result, std::initializer_list<const char*> lines) {
  for (const char* line : lines)
    EXPECT_NE(result.out.find(line), std::string::npos) << "no \"" << line << "\" in: " << result.out;
  EXPECT_EQ(result.err, "");
}

void write_file(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

TEST(CheckEnv, WithoutAModelListsTheArchitectures) {
  ProgramRun run({"check_env"});
  EXPECT_EQ(run.finish(), 0);
  expect_lines({0, run.out(), run.err()},
               {"Model architectures: BaiChuanForCausalLM, ", ", YiForCausalLM\n"});
  EXPECT_EQ(run.out().find("Model runs here"), std::string::npos);
}

TEST(CheckEnv, AModelThatRuns) {
  const TempFolder folder;
  write_chain_model(folder.path());
  const Result result = check_env(folder.path());
  EXPECT_EQ(result.code, 0);
  expect_lines(result, {"Model architecture: LlamaForCausalLM\n", "Model runs here: yes\n"});
}

TEST(CheckEnv, WhatIsLeftOutIsListed) {
  const TempFolder folder;
  MemoryCheckpoint checkpoint = make_random_llama({}, 7);
  checkpoint.add("model.layers.2.eh_proj.weight", Tensor(DType::kF32, {4, 4}));
  checkpoint.save(folder.path());
  const Result result = check_env(folder.path());
  EXPECT_EQ(result.code, 0);
  expect_lines(result, {"Model runs here: yes, but\n",
                        "Model note 1: layers for multi-token prediction are not used (1 tensors)\n",
                        "Model note 2: prompts must be token ids: "});
}

TEST(CheckEnv, QuantisedWeightsAreSaid) {
  const TempFolder folder;
  const LlamaShape shape;
  MemoryCheckpoint checkpoint = make_random_llama(shape, 7);
  checkpoint.mutable_config()["quantization_config"] = JsonObject{{"quant_method", "smooth_quant"}};
  const std::string name = "model.layers.0.self_attn.o_proj";
  checkpoint.remove(name + ".weight");
  checkpoint.add(name + ".weight", Tensor(DType::kI8, {shape.hidden, shape.heads * shape.head_dim}));
  checkpoint.add(name + ".scale", Tensor(DType::kF32, {shape.hidden, 1}));
  checkpoint.add(name + ".input_scale", Tensor(DType::kF32, {1}));
  checkpoint.save(folder.path());
  expect_lines(check_env(folder.path()),
               {"Model runs here: yes, but\n", "weights are w8a8 in the files and f32 in memory\n",
                "1 scales of activations are not used"});
}

// Their own kind holds fp8 weights: there is nothing to say.
TEST(CheckEnv, WeightsThatStayAsTheyAre) {
  const TempFolder folder;
  const LlamaShape shape = {.hidden = 64, .heads = 4, .kv_heads = 4};
  MemoryCheckpoint checkpoint = make_random_llama(shape, 7);
  checkpoint.mutable_config()["quantization_config"] = JsonObject{{"quant_method", "fp8"}};
  const std::string name = "model.layers.0.self_attn.o_proj";
  checkpoint.remove(name + ".weight");
  checkpoint.add(name + ".weight", Tensor(DType::kF8E4M3, {shape.hidden, shape.heads * shape.head_dim}));
  checkpoint.add(name + ".weight_scale", Tensor(DType::kF32, {1}));
  checkpoint.save(folder.path());
  const Result result = check_env(folder.path());
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.out.find("f32 in memory"), std::string::npos) << result.out;
}

TEST(CheckEnv, AConfigAlone) {
  const TempFolder folder;
  const std::string config = folder.path() + "/config.json";
  write_file(config,
             R"({"architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
      "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 100, "q_lora_rank": 16,
      "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
      "moe_intermediate_size": 32, "num_nextn_predict_layers": 1})");
  for (const std::string& path : {folder.path(), config}) {
    const Result result = check_env(path);
    EXPECT_EQ(result.code, 0);
    expect_lines(result, {"Model architecture: DeepseekV3ForCausalLM\n", "Model runs here: yes, but\n",
                          "Model note 1: no weights: only the config has been looked at\n",
                          "Model note 2: layers for multi-token prediction are not used\n"});
  }
}

TEST(CheckEnv, AModelThatDoesNotRunSaysWhyAndWhatToUse) {
  const TempFolder folder;
  write_file(folder.path() + "/config.json",
             R"({"architectures": ["Qwen2_5_VLForConditionalGeneration"], "vision_config": {}})");
  const Result result = check_env(folder.path());
  EXPECT_EQ(result.code, 1);
  expect_lines(result, {"Model architecture: Qwen2_5_VLForConditionalGeneration\n", "Model runs here: no\n",
                        " does not run here: ", " does not run here; others run on ", "pictures",
                        "use Qwen2.5-7B-Instruct"});
}

// The words are those of loading it.
TEST(CheckEnv, SaysWhatLoadingSays) {
  const TempFolder folder;
  MemoryCheckpoint checkpoint = make_random_llama({}, 7);
  checkpoint.mutable_config()["rope_scaling"] = JsonObject{{"rope_type", "spiral"}, {"factor", 2.0}};
  checkpoint.remove("model.norm.weight");
  checkpoint.save(folder.path());
  const Result rope = check_env(folder.path());
  EXPECT_EQ(rope.code, 1);
  expect_lines(rope, {"rope kind \"spiral\" is not known"});
  checkpoint.mutable_config().erase("rope_scaling");
  checkpoint.save(folder.path());
  expect_lines(check_env(folder.path()), {"missing", "model.norm.weight", "Model runs here: no\n"});
  write_file(folder.path() + "/model.safetensors", "no such thing");
  expect_lines(check_env(folder.path()), {"Model architecture: Not Found\n", "model.safetensors"});
}

TEST(CheckEnv, NoSuchPath) {
  const Result result = check_env("/no/such/folder");
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.out, "");
  EXPECT_NE(result.err.find("/no/such/folder: no such file or folder"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace lmdeploy::testing
