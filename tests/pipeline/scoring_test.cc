// Log probabilities, logits and perplexity, checked against each other.
#include <algorithm>
#include <cmath>

#include "fixture.h"

namespace lmdeploy::testing {
namespace {

class ScoringTest : public PipelineTest {
 protected:
  void SetUp() override { write_random_text_model(folder(), 4); }
};

double log_softmax_at(const float* row, int id) {
  const float max = *std::max_element(row, row + kTextVocab);
  double sum = 0;
  for (int i = 0; i < kTextVocab; ++i) sum += std::exp(static_cast<double>(row[i]) - max);
  return row[id] - max - std::log(sum);
}

// Logits of a few units in f32: each log probability is off by a few epsilons of that size.
constexpr double kTolerance = 1e-4;

TEST_F(ScoringTest, PerplexityIsTheMeanOfTheLogits) {
  Pipeline pipeline(config());
  const std::vector<int> ids = random_ids(3, 30, kTextVocab);
  GenerationConfig gen_config = new_tokens(1);
  gen_config.output_logits = OutputRows::kAll;
  gen_config.ignore_eos = true;
  const Response response = pipeline.infer({ids}, {gen_config}).front();
  ASSERT_EQ(response.logits.size(), ids.size() * kTextVocab);
  double sum = 0;
  for (size_t i = 0; i + 1 < ids.size(); ++i)
    sum -= log_softmax_at(&response.logits[i * kTextVocab], ids[i + 1]);
  const std::vector<double> means = pipeline.get_ppl({ids, {1, 2}, ids});
  ASSERT_EQ(means.size(), 3u);
  EXPECT_NEAR(means[0], sum / static_cast<double>(ids.size() - 1), kTolerance);
  EXPECT_EQ(means[0], means[2]);
  EXPECT_NE(means[0], means[1]);
}

TEST_F(ScoringTest, LogprobsHoldTheChosenToken) {
  Pipeline pipeline(config());
  GenerationConfig gen_config = new_tokens(4);
  gen_config.logprobs = 3;
  gen_config.output_logits = OutputRows::kGeneration;
  gen_config.ignore_eos = true;
  gen_config.do_sample = true;
  gen_config.temperature = 2;
  gen_config.top_k = 0;
  gen_config.random_seed = 1;
  const Response response = pipeline.infer({std::vector<int>{1, 2}}, {gen_config}).front();
  ASSERT_EQ(response.logprobs.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    const auto& entries = response.logprobs[i];
    EXPECT_GE(entries.size(), 3u);
    EXPECT_LE(entries.size(), 4u);
    const auto chosen = std::find_if(entries.begin(), entries.end(),
                                     [&](const auto& e) { return e.first == response.token_ids[i]; });
    ASSERT_NE(chosen, entries.end());
    for (const auto& [id, logprob] : entries)
      EXPECT_NEAR(logprob, log_softmax_at(&response.logits[i * kTextVocab], id), kTolerance);
  }
}

TEST_F(ScoringTest, APromptIsScoredBesideItsAnswer) {
  Pipeline pipeline(config());
  const std::vector<int> ids = random_ids(3, 30, kTextVocab);
  GenerationConfig gen_config = new_tokens(2);
  gen_config.ignore_eos = true;
  gen_config.return_ppl = true;
  gen_config.prompt_logprobs = 1;
  gen_config.output_last_hidden_state = OutputRows::kAll;
  const Response response = pipeline.infer({ids}, {gen_config}).front();
  EXPECT_EQ(response.token_ids.size(), 2u);
  EXPECT_EQ(response.last_hidden_state.size(), 31u * static_cast<size_t>(pipeline.spec().hidden_size));
  ASSERT_EQ(response.prompt_logprobs.size(), 29u);
  double sum = 0;
  for (const TokenLogprobs& at : response.prompt_logprobs) sum -= static_cast<double>(at.chosen);
  ASSERT_TRUE(response.ppl.has_value());
  EXPECT_NEAR(*response.ppl, sum / 29, kTolerance);
  EXPECT_EQ(*response.ppl, pipeline.get_ppl({ids})[0]);
  gen_config = {};
  const Response plain = pipeline.infer({ids}, {gen_config}).front();
  EXPECT_FALSE(plain.ppl.has_value());
  EXPECT_TRUE(plain.prompt_logprobs.empty());
}

TEST_F(ScoringTest, BadInput_RewardScore) {
  Pipeline pipeline(config());
  expect_error(ErrorCode::kUnsupported, {"get_reward_score", "reward model", "LlamaForCausalLM"}, [&] {
    pipeline.get_reward_score({{1, 2}});
  });
}

TEST_F(ScoringTest, BadInput_Perplexity) {
  Pipeline pipeline(config());
  expect_error(ErrorCode::kInvalidArgument, {"input_ids[1]", "at least 2"}, [&] {
    pipeline.get_ppl({{1, 2}, {1}});
  });
  expect_error(ErrorCode::kInvalidArgument, {"input_ids[0]", "260"}, [&] { pipeline.get_ppl({{1, 260}}); });
  expect_error(ErrorCode::kInvalidArgument, {"input_ids[0]", "256"},
               [&] { pipeline.get_ppl({std::vector<int>(300, 1)}); });
  EXPECT_TRUE(pipeline.get_ppl({}).empty());
  EXPECT_GT(pipeline.get_ppl({{1, 2}})[0], 0);
}

}  // namespace
}  // namespace lmdeploy::testing
