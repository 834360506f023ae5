// The sampler against a plain one in double precision: exact probabilities, then draws counted against them.
#include "lmdeploy/engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "lmdeploy/core/random.h"
#include "lmdeploy/engine/exact_sampling.h"
#include "lmdeploy/engine/softmax.h"

namespace lmdeploy {
namespace {

using testing::exact_logits;
using testing::exact_probabilities;
using testing::expect_distribution;

constexpr double kInf = std::numeric_limits<double>::infinity();

std::vector<float> random_logits(Rng& rng, size_t vocab_size, double spread) {
  std::vector<float> logits(vocab_size);
  for (float& logit : logits) logit = static_cast<float>((rng.uniform() - 0.5) * spread);
  return logits;
}

/// Rows of equal length as one tensor.
class Logits {
 public:
  explicit Logits(const std::vector<std::vector<float>>& rows)
      : tensor_(DType::kF32, {static_cast<int64_t>(rows.size()), static_cast<int64_t>(rows[0].size())}) {
    for (size_t i = 0; i < rows.size(); ++i)
      std::ranges::copy(rows[i], tensor_.view().row<float>(static_cast<int64_t>(i)));
  }
  operator ConstTensorView() const { return tensor_; }  // NOLINT: implicit by intent

 private:
  Tensor tensor_;
};

class SamplerTest : public ::testing::Test {
 protected:
  SampleResult draw_one(const std::vector<float>& logits, SampleInput input) {
    input.row = 0;
    return sampler_.sample(Logits({logits}), {&input, 1})[0];
  }
  std::vector<int64_t> count_draws(const std::vector<float>& row, SampleInput input, int64_t num_draws) {
    std::vector<int64_t> counts(row.size(), 0);
    const Logits logits({row});
    std::vector<SampleInput> batch(1000, input);
    for (int64_t done = 0; done < num_draws; done += static_cast<int64_t>(batch.size())) {
      for (size_t i = 0; i < batch.size(); ++i) batch[i].draw = static_cast<uint64_t>(done) + i;
      for (const SampleResult& result : sampler_.sample(logits, batch)) {
        EXPECT_EQ(result.error, "");
        ++counts[static_cast<size_t>(result.token)];
      }
    }
    return counts;
  }

  ThreadPool threads_{2};
  Sampler sampler_{threads_};
};

struct DrawCase {
  const char* name;
  size_t vocab_size;
  double spread;
  float temperature;
  int top_k;
  float top_p, min_p;
};
void PrintTo(const DrawCase& c, std::ostream* out) { *out << c.name; }

class DrawTest : public SamplerTest, public ::testing::WithParamInterface<DrawCase> {};

TEST_P(DrawTest, DrawsWithTheExactProbabilities) {
  const DrawCase& c = GetParam();
  Rng rng(c.vocab_size);
  const std::vector<float> logits = random_logits(rng, c.vocab_size, c.spread);
  SamplingParams params;
  params.temperature = c.temperature;
  params.top_k = c.top_k;
  params.top_p = c.top_p;
  params.min_p = c.min_p;
  params.seed = 20240607;
  SampleInput input;
  input.params = &params;
  const int64_t num_draws = testing::num_test_draws(60000);
  expect_distribution(count_draws(logits, input, num_draws), exact_probabilities(logits, input), num_draws);
}

INSTANTIATE_TEST_SUITE_P(
    Sampler, DrawTest,
    ::testing::Values(DrawCase{"plain", 50, 6, 1, 0, 1, 0}, DrawCase{"hot", 50, 6, 2, -1, 1, 0},
                      DrawCase{"cold", 50, 6, 0.3f, 0, 1, 0}, DrawCase{"top_k", 50, 6, 1, 7, 1, 0},
                      DrawCase{"top_k_above_vocabulary", 50, 6, 1, 999, 1, 0},
                      DrawCase{"top_k_large", 300, 1, 1, 200, 1, 0}, DrawCase{"top_p", 50, 6, 1, 0, 0.8f, 0},
                      DrawCase{"top_p_tiny", 50, 6, 1, 0, 1e-6f, 0},
                      DrawCase{"top_p_flat", 300, 0.5, 1, 0, 0.9f, 0},
                      DrawCase{"top_p_nearly_1", 300, 3, 1, 0, 0.99999f, 0},
                      DrawCase{"min_p", 50, 6, 1, 0, 1, 0.1f}, DrawCase{"min_p_1", 50, 6, 1, 0, 1, 1},
                      DrawCase{"all_filters", 50, 4, 0.7f, 20, 0.9f, 0.05f}),
    [](const auto& param) { return param.param.name; });

/// What changes logits, alone and with the filters that come after it.
struct RuleCase {
  const char* name;
  void (*set)(SamplingParams& params);
  bool bans_stops = false;  // min_new_tokens
};
void PrintTo(const RuleCase& c, std::ostream* out) { *out << c.name; }

class RuleTest : public SamplerTest, public ::testing::WithParamInterface<RuleCase> {};

TEST_P(RuleTest, DrawsWithTheExactProbabilities) {
  const std::vector<int> tokens = {3, 3, 17, 8, 5, 9, 5, 5, 11}, stops = {0, 1, 2, 30};
  Rng rng(30);
  const std::vector<float> logits = random_logits(rng, 40, 5);
  SamplingParams params;
  params.temperature = 1;
  params.seed = 991;
  GetParam().set(params);
  SampleInput input;
  input.params = &params;
  input.tokens = tokens;
  input.generated_begin = 4;
  if (GetParam().bans_stops) input.banned_ids = stops;
  const std::vector<double> want = exact_probabilities(logits, input);
  SamplingParams none = params;
  none.repetition_penalty = 1;
  none.presence_penalty = none.frequency_penalty = 0;
  none.logit_bias.clear();
  none.bad_words.clear();
  SampleInput plain;
  plain.params = &none;
  EXPECT_NE(want, exact_probabilities(logits, plain)) << "the rule changes something";
  const int64_t num_draws = testing::num_test_draws(60000);
  expect_distribution(count_draws(logits, input, num_draws), want, num_draws);
}

INSTANTIATE_TEST_SUITE_P(
    Sampler, RuleTest,
    ::testing::Values(RuleCase{"repetition", [](SamplingParams& p) { p.repetition_penalty = 1.7f; }},
                      RuleCase{"repetition_below_1", [](SamplingParams& p) { p.repetition_penalty = 0.6f; }},
                      RuleCase{"presence", [](SamplingParams& p) { p.presence_penalty = 1.5f; }},
                      RuleCase{"frequency", [](SamplingParams& p) { p.frequency_penalty = -0.7f; }},
                      RuleCase{"bias",
                               [](SamplingParams& p) {
                                 p.logit_bias = {{7, 2.5f}, {31, -100.0f}};
                               }},
                      RuleCase{"bad_words",
                               [](SamplingParams& p) {
                                 p.bad_words = {{6}, {5, 11, 9}, {2, 4}};
                               }},
                      RuleCase{"min_new_tokens", [](SamplingParams&) {}, true},
                      RuleCase{"penalties_and_top_p",
                               [](SamplingParams& p) {
                                 p.repetition_penalty = 1.3f;
                                 p.presence_penalty = 0.4f;
                                 p.frequency_penalty = 0.3f;
                                 p.top_p = 0.85f;
                               }},
                      RuleCase{"bias_and_top_k",
                               [](SamplingParams& p) {
                                 p.logit_bias = {{7, 3.0f}, {20, 1.0f}};
                                 p.top_k = 6;
                                 p.temperature = 1.4f;
                               }},
                      RuleCase{"bad_words_and_min_p",
                               [](SamplingParams& p) {
                                 p.bad_words = {{22}, {11, 19}};
                                 p.min_p = 0.08f;
                               }},
                      RuleCase{"everything",
                               [](SamplingParams& p) {
                                 p.temperature = 0.8f;
                                 p.repetition_penalty = 1.2f;
                                 p.presence_penalty = 0.5f;
                                 p.frequency_penalty = 0.2f;
                                 p.logit_bias = {{7, 2.0f}, {9, -1.0f}};
                                 p.bad_words = {{21}, {11, 22}};
                                 p.top_k = 15;
                                 p.top_p = 0.95f;
                                 p.min_p = 0.02f;
                               },
                               true}),
    [](const auto& param) { return param.param.name; });

TEST_F(SamplerTest, TopKHasNoCap) {
  Rng rng(2);
  const std::vector<float> logits = random_logits(rng, 3000, 0.1);
  SamplingParams params;
  params.temperature = 1;
  params.top_k = 2000;
  SampleInput input;
  input.params = &params;
  const std::vector<double> want = exact_probabilities(logits, input);
  const std::vector<int64_t> counts = count_draws(logits, input, 3000);
  int64_t distinct = 0;
  for (size_t id = 0; id < 3000; ++id) {
    EXPECT_TRUE(want[id] > 0 || counts[id] == 0) << id;
    distinct += counts[id] > 0 ? 1 : 0;
  }
  EXPECT_GT(distinct, 1400) << "2000 (1 - e^-1.5) = 1550 are expected";
}

TEST_F(SamplerTest, F18_TopKOffIsTheWholeDistribution) {
  const std::vector<float> logits = {1.0f, 0.9f, 0.8f, 0.7f};
  const std::vector<double> want = {0.289, 0.261, 0.236, 0.214};
  for (const int top_k : {0, -1, 4, 999}) {
    SamplingParams params;
    params.temperature = 1;
    params.top_k = top_k;
    params.seed = 5;
    SampleInput input;
    input.params = &params;
    const std::vector<int64_t> counts = count_draws(logits, input, 4000);
    for (size_t i = 0; i < 4; ++i) {
      const double error = std::sqrt(want[i] * (1 - want[i]) / 4000);
      EXPECT_NEAR(static_cast<double>(counts[i]) / 4000, want[i], 4 * error + 0.0005) << "top_k " << top_k;
    }
  }
}

TEST_F(SamplerTest, F26_RepetitionPenaltyOncePerDistinctId) {
  std::vector<float> logits = {2.0f, -1.0f, 0.5f};
  const std::vector<int> tokens = {0, 1, 0};
  SamplingParams params;
  params.repetition_penalty = 1.25f;
  SampleInput input;
  input.params = &params;
  input.tokens = tokens;
  input.generated_begin = 2;
  std::vector<int32_t> counts(3, 0);
  process_logits(logits, input, counts);
  EXPECT_EQ(logits, (std::vector<float>{1.6f, -1.25f, 0.5f}));
  EXPECT_EQ(counts, (std::vector<int32_t>{0, 0, 0}));
  params.repetition_penalty = 1;
  EXPECT_FALSE(needs_processing(input));
}

TEST_F(SamplerTest, ProcessingMatchesTheReferenceOnRandomRequests) {
  Rng rng(11);
  for (int round = 0; round < 300; ++round) {
    std::vector<float> logits = random_logits(rng, 20, 8);
    std::vector<int> tokens, banned;
    for (uint64_t i = rng.below(30); i > 0; --i) tokens.push_back(static_cast<int>(rng.below(20)));
    SamplingParams params;
    params.repetition_penalty = static_cast<float>(0.5 + rng.uniform());
    params.presence_penalty = static_cast<float>(rng.uniform() - 0.5);
    params.frequency_penalty = static_cast<float>(rng.uniform() - 0.5);
    params.logit_bias = {{static_cast<int>(rng.below(20)), 3.5f}, {static_cast<int>(rng.below(20)), -2.25f}};
    params.bad_words = {{static_cast<int>(rng.below(20))}};
    if (!tokens.empty()) params.bad_words.push_back({tokens.back(), static_cast<int>(rng.below(20))});
    params.bad_words.push_back({1, 2, 3});
    if (rng.below(2) == 0) banned = {4, 5};
    SampleInput input;
    input.params = &params;
    input.tokens = tokens;
    input.generated_begin = static_cast<int64_t>(rng.below(tokens.size() + 1));
    input.banned_ids = banned;
    const std::vector<double> want = exact_logits(logits, input);
    std::vector<int32_t> counts(20, 0);
    process_logits(logits, input, counts);
    for (size_t i = 0; i < 20; ++i) {
      if (want[i] == -kInf) {
        EXPECT_EQ(logits[i], -kInf);
      } else {
        EXPECT_NEAR(logits[i], want[i], 1e-5) << "token " << i;
      }
    }
  }
}

// Each pair of neighbouring rules gives another result in the other order.
TEST_F(SamplerTest, OrderOfTheRules) {
  const std::vector<int> tokens = {0};
  std::vector<int32_t> counts(2, 0);
  SamplingParams params;
  params.repetition_penalty = 2;
  params.presence_penalty = 1;
  params.logit_bias = {{0, 4.0f}};
  SampleInput input;
  input.params = &params;
  input.tokens = tokens;
  std::vector<float> logits = {2, 0};
  process_logits(logits, input, counts);
  EXPECT_EQ(logits[0], 2.0f / 2 - 1 + 4) << "(2 - 1) / 2 + 4 or (2 + 4) / 2 - 1 would be another order";
  params.bad_words = {{0}};
  logits = {2, 0};
  process_logits(logits, input, counts);
  EXPECT_EQ(logits[0], -std::numeric_limits<float>::infinity()) << "bias does not lift a ban";

  // top-k before top-p: of {0.5, 0.3, 0.2} the 2 best share {0.625, 0.375}, and top_p 0.6 keeps one of them;
  // from the whole distribution it would keep two. Temperature before both.
  SamplingParams draw;
  draw.temperature = 1;
  draw.top_k = 2;
  draw.top_p = 0.6f;
  input = {};
  input.params = &draw;
  const std::vector<float> row = {std::log(0.5f), std::log(0.3f), std::log(0.2f)};
  EXPECT_EQ(count_draws(row, input, 1000)[0], 1000);
  draw.temperature = 2;  // shares {0.564, 0.436}: two are needed
  EXPECT_LT(count_draws(row, input, 1000)[0], 1000);
}

TEST_F(SamplerTest, GreedyTakesTheLowestOfEqualIds) {
  SamplingParams greedy;
  SampleInput input;
  input.params = &greedy;
  EXPECT_EQ(draw_one({1, 3, 2, 3, 3}, input).token, 1);
  SamplingParams top_1;
  top_1.temperature = 0.7f;
  top_1.top_k = 1;
  input.params = &top_1;
  EXPECT_EQ(draw_one({1, 3, 2, 3, 3}, input).token, 1);
}

TEST_F(SamplerTest, PenaltiesActUnderGreedyToo) {
  const std::vector<int> tokens = {1};
  SamplingParams greedy;
  greedy.repetition_penalty = 2;
  SampleInput input;
  input.params = &greedy;
  input.tokens = tokens;
  EXPECT_EQ(draw_one({1.6f, 3, 1}, input).token, 0);
}

TEST_F(SamplerTest, BadWordsOfSeveralIdsBanTheLastOneAfterTheOthers) {
  SamplingParams params;
  params.bad_words = {{7, 8, 2}, {1}};
  SampleInput input;
  input.params = &params;
  const std::vector<float> logits = {0, 9, 5, 1, 0, 0, 0, 0, 0, 0};
  const std::vector<int> match = {3, 7, 8}, other = {7, 8, 3}, shorter = {8};
  input.tokens = match;
  EXPECT_EQ(draw_one(logits, input).token, 3);
  input.tokens = other;
  EXPECT_EQ(draw_one(logits, input).token, 2);
  input.tokens = shorter;
  EXPECT_EQ(draw_one(logits, input).token, 2);
}

TEST_F(SamplerTest, BannedIdsOutsideTheVocabularyAreHarmless) {
  SamplingParams greedy;
  SampleInput input;
  input.params = &greedy;
  const std::vector<int> banned = {1, 151643, -1};
  input.banned_ids = banned;
  EXPECT_EQ(draw_one({0, 5, 1}, input).token, 2);
}

TEST_F(SamplerTest, BadLogitsEndTheirRowAlone) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  SamplingParams greedy, drawing;
  drawing.temperature = 1;
  SampleInput inputs[5];
  for (int i = 0; i < 5; ++i) {
    inputs[i].row = i;
    inputs[i].params = i % 2 == 0 ? &greedy : &drawing;
  }
  const Logits logits({{0, nan, 1}, {0, inf, 1}, {-inf, -inf, -inf}, {-inf, 2, -inf}, {nan, nan, nan}});
  const std::span<const SampleResult> results = sampler_.sample(logits, inputs);
  for (const int bad : {0, 1, 2, 4}) {
    EXPECT_EQ(results[bad].token, -1);
    EXPECT_NE(results[bad].error.find("expected a finite one"), std::string::npos) << results[bad].error;
  }
  EXPECT_EQ(results[3].token, 1) << "-inf is an ordinary mask";
  EXPECT_EQ(results[3].error, "");
}

TEST_F(SamplerTest, EveryTokenBannedIsAnError) {
  SamplingParams params;
  params.bad_words = {{0}, {1}};
  SampleInput input;
  input.params = &params;
  const SampleResult result = draw_one({1, 2}, input);
  EXPECT_EQ(result.token, -1);
  EXPECT_EQ(result.error_code, ErrorCode::kInvalidArgument) << "the request's own doing";
  EXPECT_NE(result.error.find("no token is left"), std::string::npos) << result.error;
}

TEST_F(SamplerTest, ADrawDependsOnSeedAndPositionAlone) {
  Rng rng(3);
  SamplingParams params[6];
  std::vector<std::vector<float>> rows;
  std::vector<SampleInput> inputs;
  for (int i = 0; i < 6; ++i) {
    params[i].temperature = 1;
    params[i].top_k = i % 2 == 0 ? 0 : 30;
    params[i].seed = static_cast<uint64_t>(i / 2);
    rows.push_back(random_logits(rng, 200, 4));
    SampleInput input;
    input.row = i;
    input.params = &params[i];
    input.draw = static_cast<uint64_t>(i);
    inputs.push_back(input);
  }
  std::vector<int> together;
  for (const SampleResult& result : sampler_.sample(Logits(rows), inputs)) together.push_back(result.token);
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(draw_one(rows[i], inputs[i]).token, together[i]) << i;
  // Another position or another seed draws independently.
  std::set<int> by_position, by_seed;
  for (uint64_t i = 0; i < 50; ++i) {
    inputs[0].draw = i;
    by_position.insert(draw_one(rows[0], inputs[0]).token);
    inputs[0].draw = 0;
    params[0].seed = i;
    by_seed.insert(draw_one(rows[0], inputs[0]).token);
  }
  EXPECT_GT(by_position.size(), 20u);
  EXPECT_GT(by_seed.size(), 20u);
}

TEST_F(SamplerTest, F22_LogprobsAreOfTheFullDistribution) {
  SamplingParams greedy;
  SampleInput input;
  input.params = &greedy;
  input.num_logprobs = 3;
  const TokenLogprobs logprobs = draw_one({2, 1, 0}, input).logprobs;
  EXPECT_NEAR(logprobs.chosen, -0.4076, 1e-4);
  ASSERT_EQ(logprobs.top.size(), 3u);
  EXPECT_EQ(logprobs.top[0].first, 0);
  EXPECT_NEAR(logprobs.top[1].second, -1.4076, 1e-4);
  EXPECT_NEAR(logprobs.top[2].second, -2.4076, 1e-4);
}

TEST_F(SamplerTest, LogprobsIgnorePenaltiesTemperatureAndFilters) {
  SamplingParams params;
  params.temperature = 0.5f;
  params.top_k = 2;
  params.bad_words = {{0}};
  SampleInput input;
  input.params = &params;
  input.num_logprobs = 1;
  const SampleResult result = draw_one({2, 1, -9}, input);
  EXPECT_EQ(result.token, 1);
  EXPECT_NEAR(result.logprobs.chosen, -1.31328, 1e-4);
  ASSERT_EQ(result.logprobs.top.size(), 1u);
  EXPECT_EQ(result.logprobs.top[0].first, 0);
  input.num_logprobs = 0;
  EXPECT_TRUE(draw_one({2, 1, -9}, input).logprobs.top.empty());
}

TEST(Logits, SelectTopEqualsASort) {
  Rng rng(17);
  for (const size_t vocab_size : {1u, 2u, 511u, 512u, 513u, 5000u}) {
    std::vector<float> row(vocab_size);
    for (float& logit : row) logit = static_cast<float>(rng.below(40));  // many equal ones
    std::vector<Candidate> all;
    for (size_t i = 0; i < vocab_size; ++i) all.push_back({row[i], static_cast<int>(i)});
    std::sort(all.begin(), all.end(), ranks_before);
    for (const int64_t count : {1, 5, 300, 5000, 100000}) {
      std::vector<Candidate> top;
      select_top(row, count, top);
      ASSERT_EQ(top.size(), std::min<size_t>(vocab_size, static_cast<size_t>(count)));
      for (size_t i = 0; i < top.size(); ++i) ASSERT_EQ(top[i].id, all[i].id) << vocab_size << ", " << count;
    }
  }
}

TEST(Logits, EveryFloatTypeIsRead) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
    const Tensor logits(dtype, {2, 3});
    for (int64_t i = 0; i < 6; ++i) logits.view().set(i / 3, i % 3, static_cast<double>(i) - 2.5);
    std::vector<float> buffer;
    const std::span<const float> row = logits_row(logits, 1, buffer);
    EXPECT_EQ(std::vector<float>(row.begin(), row.end()), (std::vector<float>{0.5f, 1.5f, 2.5f}));
  }
}

TEST(Logits, ExpIsWithinItsBound) {
  for (float x = 0; x > -87; x -= 0.00137f) {
    const double want = std::exp(static_cast<double>(x));
    ASSERT_NEAR(exp_nonpositive(x), want, want * 0x1p-22) << x;
  }
  EXPECT_EQ(exp_nonpositive(0), 1.0f);
  EXPECT_EQ(exp_nonpositive(-87.5f), 0.0f);
  EXPECT_EQ(exp_nonpositive(-std::numeric_limits<float>::infinity()), 0.0f);
}

TEST(Logits, MaximumOfAnyLength) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (size_t size = 1; size < 40; ++size)
    for (size_t at = 0; at < size; ++at) {
      std::vector<float> row(size, -1);
      row[at] = 2;
      EXPECT_EQ(max_logit(row), 2);
      EXPECT_NEAR(sum_of_weights(row, 2, 1), 1 + static_cast<double>(size - 1) * std::exp(-3.0), 1e-5);
      row[at] = nan;
      EXPECT_TRUE(std::isnan(max_logit(row))) << size << ", " << at;
    }
}

TEST(Logits, NegativeLogLikelihood) {
  EXPECT_NEAR(negative_log_likelihood(std::vector<float>{2, 1, 0}, 1), 1.4076, 1e-4);
  EXPECT_NEAR(negative_log_likelihood(std::vector<float>{1000, 1000}, 0), std::log(2.0), 1e-9);
}

}  // namespace
}  // namespace lmdeploy
