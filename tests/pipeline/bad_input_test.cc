// Wrong paths, models, prompts and configs: one clear error each, and the pipeline works on.
#include <fstream>

#include "fixture.h"

namespace lmdeploy::testing {
namespace {

using BadInputTest = PipelineTest;

TEST_F(BadInputTest, MissingPath) {
  PipelineConfig pipeline_config = config();
  pipeline_config.model_path = "/no/such/model";
  expect_error(ErrorCode::kNotFound, {"/no/such/model"}, [&] { Pipeline pipeline(pipeline_config); });
}

TEST_F(BadInputTest, FolderWithoutWeights) {
  expect_error(ErrorCode::kNotFound, {folder().c_str()}, [&] { Pipeline pipeline(config()); });
}

TEST_F(BadInputTest, UnknownArchitectureListsTheKnownOnes) {
  const JsonObject unknown = {{"architectures", JsonArray{"MambaForCausalLM"}}};
  write_chain_model(folder(), {.config = unknown});
  expect_error(ErrorCode::kUnsupported, {"MambaForCausalLM", "LlamaForCausalLM"},
               [&] { Pipeline pipeline(config()); });
}

TEST_F(BadInputTest, BrokenTokenizerIsAnError) {
  write_chain_model(folder());
  std::ofstream(folder() + "/tokenizer.json") << "{";
  expect_error(ErrorCode::kInvalidData, {"tokenizer.json"}, [&] { Pipeline pipeline(config()); });
}

TEST_F(BadInputTest, PromptsAndConfigsAreCheckedBeforeAnythingRuns) {
  write_chain_model(folder());
  Pipeline pipeline(config());
  const Prompt good = std::string("hi");
  const ErrorCode bad = ErrorCode::kInvalidArgument;
  expect_error(bad, {"prompts[1]", "an integer", "expected text"}, [&] {
    pipeline.infer({good, Json(5)}, {GenerationConfig()});
  });
  expect_error(bad, {"prompts[0]", "messages[0].role"}, [&] {
    pipeline.infer({Json(JsonArray{JsonObject()}), good}, {GenerationConfig()});
  });
  expect_error(bad, {"prompts[1]", "99999"}, [&] {
    pipeline.infer({good, std::vector<int>{99999}}, {GenerationConfig()});
  });
  expect_error(bad, {"gen_config.temperature is 5"}, [&] {
    GenerationConfig hot;
    hot.temperature = 5;
    pipeline.infer({good, good}, {GenerationConfig(), hot});
  });
  expect_error(bad, {"2 gen_configs for 3 prompts"}, [&] {
    pipeline.infer({good, good, good}, {GenerationConfig(), GenerationConfig()});
  });
  expect_error(bad, {"0 gen_configs"}, [&] { pipeline.infer({good}, {}); });
  EXPECT_EQ(pipeline.engine().stats().prompt_tokens, 0);
  EXPECT_EQ(run_raw(pipeline, "w").text, "xyz");
}

TEST_F(BadInputTest, EmptyBatchIsEmpty) {
  write_chain_model(folder());
  Pipeline pipeline(config());
  EXPECT_TRUE(pipeline.infer({}, {GenerationConfig()}).empty());
}

TEST_F(BadInputTest, TemplatesOwnComplaint) {
  write_chain_model(folder());
  std::ofstream(folder() + "/tokenizer_config.json")
      << R"({"eos_token":"<|im_end|>","chat_template":"{{ raise_exception('roles must alternate') }}"})";
  Pipeline pipeline(config());
  expect_error(ErrorCode::kInvalidArgument, {"roles must alternate"},
               [&] { pipeline.infer({std::string("hi")}, {GenerationConfig()}); });
  EXPECT_EQ(run_raw(pipeline, "w").text, "xyz");
}

}  // namespace
}  // namespace lmdeploy::testing
