// Guesses change nothing but the number of steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "core_driver.h"
#include "fake_model.h"
#include "lmdeploy/core/log.h"
#include "lmdeploy/core/random.h"
#include "thirds_grammar.h"

namespace lmdeploy::testing {
namespace {

/// Where guesses come from.
enum class Source { kPromptLookup, kSameModel, kMostlyRight, kWrong };

struct GuessCase {
  const char* name;
  Source source;
  int64_t num_tokens;
};
void PrintTo(const GuessCase& c, std::ostream* out) { *out << c.name; }

void expect_same(const RequestOutput& got, const RequestOutput& want, const std::string& which) {
  EXPECT_EQ(got.token_ids, want.token_ids) << which << ": " << got.error_message;
  EXPECT_EQ(got.finish, want.finish) << which;
  EXPECT_EQ(got.error_message, want.error_message) << which;
  EXPECT_EQ(got.logits, want.logits) << which;
  EXPECT_EQ(got.generated_tokens, want.generated_tokens) << which;
  EXPECT_EQ(got.session_tokens, want.session_tokens) << which;
  ASSERT_EQ(got.logprobs.size(), want.logprobs.size()) << which;
  for (size_t i = 0; i < want.logprobs.size(); ++i) {
    EXPECT_EQ(got.logprobs[i].chosen, want.logprobs[i].chosen) << which;
    EXPECT_EQ(got.logprobs[i].top, want.logprobs[i].top) << which;
  }
}

class Speculative : public ::testing::TestWithParam<std::tuple<GuessCase, GroupCase>> {
 protected:
  Speculative()
      : model_({.windows = std::get<1>(GetParam()).windows}),
        draft_model_(source() == Source::kSameModel ? FakeOptions{.windows = std::get<1>(GetParam()).windows}
                                                    : FakeOptions{}) {
    if (source() == Source::kMostlyRight) guess_mostly_right(draft_model_, model_);
    if (source() == Source::kWrong) draft_model_.script = [](std::span<const int>) { return 63; };
  }
  static Source source() { return std::get<0>(GetParam()).source; }
  EngineConfig plain() const { return small_config(std::get<1>(GetParam()).num_groups()); }
  EngineConfig guessed(const EngineConfig& config) const {
    return guessing(
        config, std::get<0>(GetParam()).num_tokens,
        source() == Source::kPromptLookup ? SpeculativeMethod::kPromptLookup : SpeculativeMethod::kDraft);
  }
  /// A text of few different words, some of which come again.
  static std::vector<int> prompt(uint64_t seed) {
    std::vector<int> ids = random_ids(seed, 9);
    return concat(concat(ids, random_ids(seed + 1, 4)), ids);
  }
  /// All that acts on a token, one after the other, greedy and drawn.
  std::vector<Request> requests() const;

  FakeModel model_, draft_model_;
};

std::vector<Request> Speculative::requests() const {
  std::vector<Request> all;
  for (uint64_t i = 0; i < 14; ++i) {
    Request request = request_of(prompt(i), 30);
    SamplingParams& sampling = request.sampling;
    sampling.seed = i;
    if (i % 2 == 1) sampling.temperature = 0.7f;
    if (i == 1) sampling.top_k = 5;
    if (i == 3) sampling.top_p = 0.6f;
    if (i == 5) sampling.min_p = 0.2f;
    if (i == 2 || i == 5) sampling.repetition_penalty = 1.4f;
    if (i == 4 || i == 7) sampling.presence_penalty = 0.5f, sampling.frequency_penalty = 0.3f;
    if (i == 6 || i == 9) sampling.logit_bias = {{5, 2.5f}, {9, -4}};
    if (i == 8 || i == 11) sampling.bad_words = {{7}, {5, 9}};
    if (i == 9 || i == 10) request.stop_ids = {1, 2, 3, 4, 5}, request.min_new_tokens = 6;
    if (i == 10) request.include_stop_id = true;
    if (i == 11 || i == 12) request.grammar = std::make_shared<ThirdsGrammar>(4, 17);
    if (i == 13) request.repetition_ngram_size = 1, request.repetition_ngram_threshold = 3;
    if (i % 3 == 0) request.num_logprobs = 4;
    if (i % 4 == 0) request.logits = OutputRows::kGeneration;
    if (i % 4 == 1) request.logits = OutputRows::kAll;
    all.push_back(request);
    request.max_new_tokens = 1 + static_cast<int64_t>(i % 3);
    all.push_back(request);
  }
  return all;
}

TEST_P(Speculative, EveryKindOfRequestAlone) {
  CoreDriver want(model_, plain()), got(model_, guessed(plain()), &draft_model_);
  for (const Request& request : requests())
    expect_same(got.complete(request), want.complete(request), cat("seed ", request.sampling.seed));
  const SpeculativeStats s = got.stats().speculative;
  EXPECT_GT(s.num_drafts, 0);
  EXPECT_EQ(s.num_accepted_tokens, std::accumulate(s.num_accepted_tokens_per_pos.begin(),
                                                   s.num_accepted_tokens_per_pos.end(), int64_t{0}));
  if (source() == Source::kMostlyRight || source() == Source::kSameModel) {
    EXPECT_GT(s.num_accepted_tokens, s.num_draft_tokens / 10);
  }
  if (source() != Source::kSameModel) {
    EXPECT_LT(s.num_accepted_tokens, s.num_draft_tokens);
  }
  EXPECT_EQ(got.stats().used_blocks, 0);
}

// Chunks, prefix hits and preemption.
TEST_P(Speculative, ManyAtOnceOverATightPool) {
  CoreDriver alone(model_, plain());
  EngineConfig tight = plain();
  tight.num_blocks = BlockGroups(4, model_.kv_groups()).least_for(60) + 6;
  tight.max_prefill_token_num = 7;
  tight.enable_prefix_caching = true;
  CoreDriver driver(model_, guessed(tight), &draft_model_);
  const std::vector<Request> all = requests();
  std::vector<std::shared_ptr<Client>> clients;
  for (const Request& request : all) {
    clients.push_back(driver.submit(request));
    driver.step();
  }
  driver.run();
  EXPECT_GT(driver.stats().preemptions, 0);
  for (size_t i = 0; i < all.size(); ++i)
    expect_same(clients[i]->output, alone.complete(all[i]), cat("request ", i));
}

TEST_P(Speculative, SessionsThatAreRolledBack) {
  CoreDriver want(model_, plain()), got(model_, guessed(plain()), &draft_model_);
  Rng rng(3);
  int64_t held = 0;
  for (uint64_t turn = 0; turn < 20; ++turn) {
    Request request = turn_of(1, prompt(turn), static_cast<int64_t>(1 + rng.below(20)), held == 0);
    if (turn % 3 == 1) request.sampling.temperature = 0.8f;
    if (turn % 4 == 2) request.step = static_cast<int64_t>(rng.below(static_cast<uint64_t>(held)));
    if (held > 150) request.step = 11;
    const RequestOutput expected = want.complete(request);
    expect_same(got.complete(request), expected, cat("turn ", turn));
    held = expected.session_tokens;
  }
}

// Where a row fails, what came before it has gone out.
TEST_P(Speculative, AFailureInTheMiddle) {
  set_log_level(LogLevel::kCritical);
  const std::vector<int> answer = model_.generate(prompt(1), 30);
  model_.poison_token = answer[12];
  CoreDriver want(model_, plain()), got(model_, guessed(plain()), &draft_model_);
  const RequestOutput expected = want.complete(request_of(prompt(1), 30));
  EXPECT_EQ(expected.finish, FinishReason::kError);
  expect_same(got.complete(request_of(prompt(1), 30)), expected, "poisoned");
  set_log_level(LogLevel::kWarning);
}

TEST_P(Speculative, NoMoreRowsOrTokensThanAStepHas) {
  for (const int64_t rows : {4, 100}) {
    EngineConfig narrow = plain();
    narrow.max_batch_size = 4;
    narrow.max_logit_rows = rows;
    narrow.max_prefill_token_num = 3;
    FakeModel limited(
        {.max_step_tokens = 7, .max_logit_rows = rows, .windows = std::get<1>(GetParam()).windows});
    CoreDriver driver(limited, guessed(narrow), &draft_model_);
    std::vector<std::shared_ptr<Client>> clients;
    for (uint64_t i = 0; i < 6; ++i) clients.push_back(driver.submit(request_of(prompt(i), 25)));
    driver.run();
    for (uint64_t i = 0; i < 6; ++i)
      EXPECT_EQ(clients[i]->output.token_ids, limited.generate(prompt(i), 25))
          << clients[i]->output.error_message;
  }
}

TEST_P(Speculative, NothingIsComputedPastTheEnd) {
  EngineConfig config = plain();
  config.session_len = 48;
  int64_t longest = 0;
  model_.before_step = [&](const StepInput& input) { longest = std::max<int64_t>(longest, input.kv_len[0]); };
  CoreDriver driver(model_, guessed(config), &draft_model_);
  EXPECT_EQ(driver.complete(request_of(prompt(1), 30)).token_ids.size(), 26u);
  EXPECT_EQ(longest, 47) << "the last token is drawn, its keys are not needed";
}

// Without a method too: what a grammar forces is guessed.
TEST(GrammarGuesses, ChangeNothingButTheNumberOfSteps) {
  FakeModel model;
  EngineConfig config = small_config();
  CoreDriver want(model, config);
  config.speculative.always = true;
  CoreDriver got(model, config);
  for (const float temperature : {0.0f, 0.9f})
    for (uint64_t seed = 0; seed < 8; ++seed) {
      Request request = request_of(random_ids(seed, 9), 40);
      request.sampling.temperature = temperature;
      request.sampling.seed = seed;
      for (int id = 3; id < 60; ++id)  // mostly the three that are guessed
        if (seed % 2 == 0) request.sampling.logit_bias.emplace_back(id, -100.0f);
      request.num_logprobs = 2;
      const auto grammar = std::make_shared<ThirdsGrammar>(4, 23);
      request.grammar = grammar;
      const RequestOutput plain = want.complete(request);
      grammar->guesses = true;
      expect_same(got.complete(request), plain, cat("seed ", seed));
    }
  const SpeculativeStats s = got.stats().speculative;
  EXPECT_EQ(want.stats().speculative.num_drafts, 0);
  EXPECT_GT(s.num_accepted_tokens, 0);
  EXPECT_LT(s.num_accepted_tokens, s.num_draft_tokens);
  EXPECT_LT(got.stats().steps, want.stats().steps);
  EXPECT_GE(got.stats().steps, want.stats().steps - s.num_accepted_tokens)
      << "an answer's last one saves none";
}

INSTANTIATE_TEST_SUITE_P(
    Sources, Speculative,
    ::testing::Combine(::testing::Values(GuessCase{"Lookup1", Source::kPromptLookup, 1},
                                         GuessCase{"Lookup", Source::kPromptLookup, 5},
                                         GuessCase{"LookupFar", Source::kPromptLookup, 16},
                                         GuessCase{"Same", Source::kSameModel, 4},
                                         GuessCase{"SameFar", Source::kSameModel, 16},
                                         GuessCase{"MostlyRight", Source::kMostlyRight, 5},
                                         GuessCase{"Wrong", Source::kWrong, 5}),
                       ::testing::ValuesIn(kGroupCases)),
    [](const auto& test) { return cat(std::get<0>(test.param).name, std::get<1>(test.param).name); });

// The same tokens in a fraction of the steps.
TEST(SpeculativeSteps, RightGuessesSaveSteps) {
  FakeModel model, draft;
  CoreDriver driver(model, guessing(small_config(), 4, SpeculativeMethod::kDraft), &draft);
  EXPECT_EQ(driver.complete(request_of(random_ids(1, 10), 51)).token_ids,
            model.generate(random_ids(1, 10), 51));
  EXPECT_EQ(model.steps.size(), 11u) << "the prompt with the first token, then 5 tokens a step";
  EXPECT_EQ(driver.stats().speculative.num_drafts, 10);
  EXPECT_EQ(driver.stats().speculative.num_draft_tokens, 40);
  EXPECT_EQ(driver.stats().speculative.num_accepted_tokens, 40);
  EXPECT_EQ(driver.stats().speculative.num_accepted_tokens_per_pos[3], 10);
  EXPECT_EQ(driver.stats().speculative.num_accepted_tokens_per_pos[4], 0);
}

TEST(SpeculativeSteps, ATextThatRepeatsIsLookedUp) {
  FakeModel model;
  model.script = [](std::span<const int> tokens) { return tokens[tokens.size() - 10]; };
  CoreDriver driver(model, guessing(small_config(), 9));
  driver.complete(request_of(random_ids(1, 20), 101));
  EXPECT_LT(model.steps.size(), 25u);
}

// The draft model reads and writes its own blocks; when it fails, its guesses are missing and nothing else.
TEST(SpeculativeSteps, AFailingDraftModelCostsGuessesOnly) {
  set_log_level(LogLevel::kCritical);
  FakeModel model, draft;
  int calls = 0;
  draft.before_step = [&](const StepInput&) {
    if (++calls % 5 == 0) throw Error(ErrorCode::kInternal, "the draft model is ill");
  };
  CoreDriver driver(model, guessing(small_config(), 3, SpeculativeMethod::kDraft), &draft);
  std::vector<std::shared_ptr<Client>> clients;
  for (uint64_t i = 0; i < 4; ++i) clients.push_back(driver.submit(request_of(random_ids(i, 10), 40)));
  driver.run();
  for (uint64_t i = 0; i < 4; ++i)
    EXPECT_EQ(clients[i]->output.token_ids, model.generate(random_ids(i, 10), 40));
  EXPECT_GT(driver.stats().speculative.num_accepted_tokens, 50);
  EXPECT_EQ(driver.stats().speculative.num_accepted_tokens, driver.stats().speculative.num_draft_tokens);
  set_log_level(LogLevel::kWarning);
}

TEST(SpeculativeSteps, AnEngineThatGoesInTheMiddleLeavesNothing) {
  FakeModel model, draft;
  CoreDriver driver(model, guessing(small_config(), 3, SpeculativeMethod::kDraft), &draft);
  driver.submit(request_of(random_ids(1, 10), 100));
  for (int i = 0; i < 5; ++i) driver.step();
  EXPECT_TRUE(driver.has_work());
}

TEST(SpeculativeSteps, ADraftModelWithoutRoomGuessesForSome) {
  FakeModel model, draft;
  EngineConfig config = guessing(small_config(), 3, SpeculativeMethod::kDraft);
  config.draft_num_blocks = 12;
  CoreDriver driver(model, config, &draft);
  std::vector<std::shared_ptr<Client>> clients;
  for (uint64_t i = 0; i < 5; ++i) clients.push_back(driver.submit(request_of(random_ids(i, 10), 40)));
  driver.run();
  for (uint64_t i = 0; i < 5; ++i)
    EXPECT_EQ(clients[i]->output.token_ids, model.generate(random_ids(i, 10), 40));
  EXPECT_GT(driver.stats().speculative.num_accepted_tokens, 0);
}

TEST(SpeculativeSteps, ADraftModelGuessesNothingBeyondItsPositions) {
  FakeModel model, draft({.max_positions = 25, .learned_positions = true});
  int64_t longest = 0;
  draft.before_step = [&](const StepInput& input) {
    for (const int32_t length : input.kv_len) longest = std::max<int64_t>(longest, length);
  };
  CoreDriver driver(model, guessing(small_config(), 4, SpeculativeMethod::kDraft), &draft);
  EXPECT_EQ(driver.complete(request_of(random_ids(1, 10), 40)).token_ids,
            model.generate(random_ids(1, 10), 40));
  EXPECT_GT(driver.stats().speculative.num_accepted_tokens, 8);
  EXPECT_LE(longest, 25);
}

TEST(SpeculativeConfig, WhatCannotBeIsRefused) {
  FakeModel model, other({.vocab_size = 65});
  const auto message = [&](const EngineConfig& config, Model* draft) -> std::string {
    try {
      resolve_config(config, model, 1 << 20, draft);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message(guessing(small_config(), 2, SpeculativeMethod::kDraft), &other),
            "draft model: its vocabulary has 65 tokens, the model's has 64; both must be the same");
  for (const int64_t count : {0, 17}) {
    EXPECT_EQ(message(guessing(small_config(), count), nullptr),
              cat("engine config: num_speculative_tokens is ", count, "; expected 1 to 16"));
  }
}

// Both pools share the memory.
TEST(SpeculativeConfig, TheDraftModelsPoolComesOutOfTheSameMemory) {
  FakeModel model({.windows = {0, 16}}), draft;
  EngineConfig config = small_config();
  config.num_blocks = 0;
  config.kv_memory_bytes = 1 << 20;
  const EngineConfig alone = resolve_config(config, model, 0);
  EXPECT_EQ(alone.draft_num_blocks, 0);
  const EngineConfig both = resolve_config(guessing(config, 2, SpeculativeMethod::kDraft), model, 0, &draft);
  EXPECT_EQ(both.num_blocks, alone.num_blocks / 2);
  EXPECT_EQ(both.draft_num_blocks, both.num_blocks / 2);
}

}  // namespace
}  // namespace lmdeploy::testing
