// hf_overrides: values that replace those of the config, at any depth.
#include <gtest/gtest.h>

#include <string>

#include "lmdeploy/core/error.h"
#include "lmdeploy/models/model_plan.h"
#include "random_family.h"
#include "random_llama.h"

namespace lmdeploy::testing {
namespace {

using Kind = RopeSpec::Kind;

MemoryCheckpoint llama(const JsonObject& config = {}) {
  MemoryCheckpoint checkpoint = make_random_llama({}, 1);
  for (const auto& [key, value] : config) checkpoint.mutable_config()[key] = value;
  return checkpoint;
}

DecoderSpec spec_with(const JsonObject& overrides, const JsonObject& config = {}) {
  return plan_model(llama(config), overrides).spec;
}

/// What is said on standard error.
std::string warnings_of(const JsonObject& overrides, const JsonObject& config = {}) {
  ::testing::internal::CaptureStderr();
  spec_with(overrides, config);
  return ::testing::internal::GetCapturedStderr();
}

void expect_error(const JsonObject& overrides, ErrorCode code, std::initializer_list<const char*> words) {
  try {
    spec_with(overrides);
    ADD_FAILURE() << "no error: " << to_json_text(overrides);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    const std::string message = error.what();
    EXPECT_NE(message.find("config.json with hf_overrides: "), std::string::npos) << message;
    for (const char* word : words)
      EXPECT_NE(message.find(word), std::string::npos) << word << " in " << message;
  }
}

TEST(Overrides, NullTakesAway) {
  const JsonObject yarn = {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 64}};
  EXPECT_EQ(spec_with({}, {{"rope_scaling", yarn}}).rope.kind, Kind::kYarn);
  EXPECT_EQ(spec_with({{"rope_scaling", nullptr}}, {{"rope_scaling", yarn}}).rope.kind, Kind::kDefault);
  EXPECT_EQ(spec_with({{"sliding_window", nullptr}}, {{"sliding_window", 8}}).layers[0].window, 0);
}

// A config of transformers 5 keeps its rope in rope_parameters; rope_scaling of an override means that.
TEST(Overrides, RopeScalingFindsItsHome) {
  const JsonObject config = {{"rope_parameters", JsonObject{{"rope_type", "yarn"},
                                                            {"rope_theta", 500.0},
                                                            {"factor", 4.0},
                                                            {"beta_fast", 16.0},
                                                            {"original_max_position_embeddings", 64}}}};
  EXPECT_EQ(spec_with({}, config).rope.kind, Kind::kYarn);
  const RopeSpec merged = spec_with({{"rope_scaling", JsonObject{{"factor", 8.0}}}}, config).rope;
  EXPECT_EQ(merged.kind, Kind::kYarn);
  EXPECT_EQ(merged.factor, 8);
  EXPECT_EQ(merged.beta_fast, 16);
  EXPECT_EQ(merged.theta, 500);
  const RopeSpec none = spec_with({{"rope_scaling", nullptr}}, config).rope;
  EXPECT_EQ(none.kind, Kind::kDefault);
  EXPECT_EQ(none.theta, 500);
}

TEST(Overrides, LengthFollowsTheScaling) {
  EXPECT_EQ(spec_with({{"max_position_embeddings", 100}}).max_positions, 100);
  EXPECT_EQ(spec_with({{"max_position_embeddings", 100},
                       {"rope_scaling", JsonObject{{"rope_type", "linear"}, {"factor", 3.0}}}})
                .max_positions,
            300);
}

// The text model's own value is nested, and counts there.
TEST(Overrides, NestedTextConfigs) {
  const JsonObject nested = {{"text_config", JsonObject{{"rms_norm_eps", 0.5}, {"rope_theta", 500.0}}}};
  EXPECT_EQ(spec_with({}, nested).norm_eps, 0.5f);
  EXPECT_EQ(spec_with({{"rms_norm_eps", 0.25}}, nested).norm_eps, 0.25f);
  const DecoderSpec below = spec_with({{"text_config", JsonObject{{"rms_norm_eps", 0.25}}}}, nested);
  EXPECT_EQ(below.norm_eps, 0.25f);
  EXPECT_EQ(below.rope.theta, 500);
  const JsonObject scaling = {{"rope_scaling", JsonObject{{"rope_type", "linear"}, {"factor", 2.0}}}};
  EXPECT_EQ(spec_with(scaling, nested).rope.kind, Kind::kLinear);
  EXPECT_EQ(warnings_of({{"rms_norm_eps", 0.25}}, nested), "");
  EXPECT_EQ(warnings_of({{"text_config", JsonObject{{"rms_norm_eps", 0.25}}}}, nested), "");
}

TEST(Overrides, WrongTypesAndValuesAreNamed) {
  expect_error({{"hidden_size", "big"}}, ErrorCode::kInvalidData,
               {"\"hidden_size\"", "\"big\"", "an integer"});
  expect_error({{"rope_scaling", 3}}, ErrorCode::kInvalidData, {"rope_scaling", "an object"});
  expect_error({{"rope_scaling", JsonObject{{"rope_type", "spiral"}}}}, ErrorCode::kUnsupported, {"spiral"});
  expect_error({{"rope_scaling", JsonObject{{"rope_type", "linear"}, {"factor", "2"}}}},
               ErrorCode::kInvalidData, {"rope_scaling: ", "\"factor\"", "a number"});
  expect_error({{"tie_word_embeddings", 1}}, ErrorCode::kInvalidData,
               {"tie_word_embeddings", "true or false"});
  expect_error({{"architectures", "LlamaForCausalLM"}}, ErrorCode::kInvalidData, {"architectures", "array"});
  expect_error({{"quantization_config", nullptr}}, ErrorCode::kUnsupported, {"quantization_config"});
  expect_error({{"architectures", JsonArray{"BloomForCausalLM"}}}, ErrorCode::kUnsupported, {"Bloom"});
}

TEST(Overrides, KeysThatNothingReadsAreWarnedOf) {
  EXPECT_EQ(warnings_of({{"rms_norm_eps", 0.25}, {"rope_theta", 500.0}, {"eos_token_id", 3}}), "");
  EXPECT_EQ(warnings_of({{"rope_scaling", JsonObject{{"rope_type", "linear"}, {"factor", 2.0}}}}), "");
  const std::string typo = warnings_of({{"rope_thetta", 500.0}});
  EXPECT_NE(typo.find("hf_overrides: \"rope_thetta\" has no effect"), std::string::npos) << typo;
  const std::string deep = warnings_of(
      {{"rope_scaling", JsonObject{{"rope_type", "linear"}, {"factor", 2.0}, {"low_freq_factor", 1.0}}}});
  EXPECT_NE(deep.find("\"rope_scaling.low_freq_factor\" has no effect"), std::string::npos) << deep;
  EXPECT_EQ(deep.find("\"rope_scaling.factor\""), std::string::npos) << deep;
}

// Families whose rope is dynamic unless something else is asked for.
TEST(Overrides, ScalingOfFamiliesWithRulesOfTheirOwn) {
  const JsonObject linear = {{"rope_scaling", JsonObject{{"rope_type", "linear"}, {"factor", 2.0}}}};
  const JsonObject sizes = {{"hidden_size", 64},
                            {"intermediate_size", 96},
                            {"num_hidden_layers", 1},
                            {"num_attention_heads", 4},
                            {"vocab_size", 71},
                            {"kv_channels", 16},
                            {"rotary", JsonObject{{"type", "dynamic"}, {"base", 10000}}}};
  for (const char* architecture : {"QWenLMHeadModel", "InternLMForCausalLM"}) {
    JsonObject config = sizes;
    config["architectures"] = JsonArray{Json(architecture)};
    const MemoryCheckpoint checkpoint = make_random_family(config, 1);
    EXPECT_NE(plan_model(checkpoint, {}).spec.rope.kind, Kind::kLinear);
    const RopeSpec rope = plan_model(checkpoint, linear).spec.rope;
    EXPECT_EQ(rope.kind, Kind::kLinear) << architecture;
    EXPECT_EQ(rope.factor, 2) << architecture;
  }
}

}  // namespace
}  // namespace lmdeploy::testing
