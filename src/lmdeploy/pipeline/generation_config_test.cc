#include <gtest/gtest.h>

#include <cmath>

#include "lmdeploy/core/expect_error.h"
#include "lmdeploy/pipeline/pipeline.h"

namespace lmdeploy {
namespace {

struct BadField {
  const char* field;
  const char* value;
  std::function<void(GenerationConfig&)> set;
};

TEST(GenerationConfig, DefaultsAndBordersAreValid) {
  EXPECT_NO_THROW(GenerationConfig().validate());
  GenerationConfig borders;
  borders.max_new_tokens.reset();
  borders.top_p = 0;
  borders.min_p = 1;
  borders.temperature = 2;
  borders.top_k = 0;
  borders.presence_penalty = -2;
  borders.repetition_ngram_size = -1;
  EXPECT_NO_THROW(borders.validate());
}

TEST(GenerationConfig, BadValuesNameFieldAndRange) {
  const std::vector<BadField> bad = {
      {"n", "0", [](GenerationConfig& c) { c.n = 0; }},
      {"n", "1 to 16384", [](GenerationConfig& c) { c.n = 100000000; }},
      {"max_new_tokens", "-1", [](GenerationConfig& c) { c.max_new_tokens = -1; }},
      {"min_new_tokens", "-1", [](GenerationConfig& c) { c.min_new_tokens = -1; }},
      {"top_k", "-1", [](GenerationConfig& c) { c.top_k = -1; }},
      {"top_p", "1.5", [](GenerationConfig& c) { c.top_p = 1.5f; }},
      {"top_p", "nan", [](GenerationConfig& c) { c.top_p = std::nanf(""); }},
      {"min_p", "-0.5", [](GenerationConfig& c) { c.min_p = -0.5f; }},
      {"temperature", "from 0 to 2", [](GenerationConfig& c) { c.temperature = 2.5f; }},
      {"repetition_penalty", "0", [](GenerationConfig& c) { c.repetition_penalty = 0; }},
      {"presence_penalty", "3", [](GenerationConfig& c) { c.presence_penalty = 3; }},
      {"frequency_penalty", "-3", [](GenerationConfig& c) { c.frequency_penalty = -3; }},
      {"logprobs", "-1", [](GenerationConfig& c) { c.logprobs = -1; }},
      {"stop_words[1]", "empty",
       [](GenerationConfig& c) {
         c.stop_words = {"a", ""};
       }},
      {"bad_words[0]", "empty", [](GenerationConfig& c) { c.bad_words = {""}; }},
      {"stop_token_ids[0]", "-4", [](GenerationConfig& c) { c.stop_token_ids = {-4}; }},
      {"bad_token_ids[1]", "-4",
       [](GenerationConfig& c) {
         c.bad_token_ids = {1, -4};
       }},
      {"logit_bias[3]", "inf",
       [](GenerationConfig& c) {
         c.logit_bias = {{3, INFINITY}};
       }},
  };
  for (const BadField& b : bad) {
    SCOPED_TRACE(b.field);
    GenerationConfig config;
    b.set(config);
    expect_error(ErrorCode::kInvalidArgument, {b.field, b.value, "expected"}, [&] { config.validate(); });
  }
}

TEST(GenerationConfig, ChoicesDifferInSeedOnly) {
  GenerationConfig config;
  config.n = 3;
  config.random_seed = 5;
  EXPECT_EQ(config.choice(0).random_seed, 5u);
  EXPECT_NE(config.choice(1).random_seed, config.choice(2).random_seed);
  EXPECT_EQ(config.choice(1).random_seed, config.choice(1).random_seed);
  EXPECT_EQ(config.choice(2).n, 1);
  config.random_seed.reset();
  EXPECT_FALSE(config.choice(1).random_seed);
}

}  // namespace
}  // namespace lmdeploy
