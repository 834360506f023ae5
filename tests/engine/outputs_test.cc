// Stops, logits, log probabilities, scores, errors of single requests.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core_driver.h"
#include "fake_model.h"
#include "lmdeploy/engine/logits.h"

namespace lmdeploy::testing {
namespace {

/// The n-th token after a prompt of `prompt_len` is `id`, all others are 1.
auto nth_token(size_t prompt_len, size_t n, int id) {
  return [=](std::span<const int> tokens) { return tokens.size() == prompt_len + n - 1 ? id : 1; };
}

FakeOptions large_vocabulary() {
  FakeOptions options;
  options.vocab_size = 160;
  return options;
}

TEST(Stops, F16_AllEndOfTurnIdsAreHonoured) {
  FakeModel model(large_vocabulary());
  CoreDriver driver(model, small_config());
  for (const int id : {151, 7, 9}) {
    model.script = nth_token(5, 4, id);
    Request request = request_of(random_ids(1, 5), 8);
    request.stop_ids = {151, 7, 9};
    RequestOutput output = driver.complete(request);
    EXPECT_EQ(output.finish, FinishReason::kStop);
    EXPECT_EQ(output.token_ids, (std::vector<int>{1, 1, 1}));
    EXPECT_EQ(output.generated_tokens, 3);
    request.stop_ids.clear();  // ignore_eos
    output = driver.complete(request);
    EXPECT_EQ(output.finish, FinishReason::kLength);
    EXPECT_EQ(output.token_ids.size(), 8u);
  }
}

TEST(Stops, TheStopIdIsHistoryButNotOutput) {
  FakeModel model(large_vocabulary());
  CoreDriver driver(model, small_config());
  model.script = nth_token(5, 3, 99);
  Request request = turn_of(1, random_ids(1, 5), 8, true);
  request.stop_ids = {99};
  request.num_logprobs = 0;
  RequestOutput output = driver.complete(request);
  EXPECT_EQ(output.token_ids, (std::vector<int>{1, 1}));
  EXPECT_EQ(output.logprobs.size(), 2u);
  EXPECT_EQ(output.session_tokens, 8) << "prompt, two tokens and the stop id";
  model.script = nullptr;
  const std::vector<int> history = concat(random_ids(1, 5), {1, 1, 99, 4});
  EXPECT_EQ(driver.complete(turn_of(1, {4}, 5, false)).token_ids, model.generate(history, 5));

  model.script = nth_token(5, 3, 99);
  request.include_stop_id = true;
  output = driver.complete(request);
  EXPECT_EQ(output.token_ids, (std::vector<int>{1, 1, 99}));
  EXPECT_EQ(output.logprobs.size(), 3u);
  EXPECT_EQ(output.generated_tokens, 3);
  EXPECT_EQ(output.finish, FinishReason::kStop);
}

TEST(Stops, MinNewTokensMasksStopIds) {
  FakeModel model;
  CoreDriver driver(model, small_config());
  model.script = [](std::span<const int>) { return 9; };
  Request request = request_of(random_ids(1, 5), 8);
  request.stop_ids = {9};
  request.min_new_tokens = 3;
  const RequestOutput output = driver.complete(request);
  EXPECT_EQ(output.finish, FinishReason::kStop);
  EXPECT_EQ(output.token_ids.size(), 3u);
  EXPECT_EQ(std::ranges::count(output.token_ids, 9), 0);
}

TEST(Stops, RepeatedNgramsEndTheRequest) {
  EXPECT_TRUE(repeats(std::vector<int>{5, 1, 2, 3, 1, 2, 1, 2}, 2, 3));
  EXPECT_FALSE(repeats(std::vector<int>{5, 1, 2, 3, 1, 2, 1, 2}, 2, 4));
  EXPECT_TRUE(repeats(std::vector<int>{7, 7, 7, 7}, 2, 3)) << "overlaps count";
  EXPECT_FALSE(repeats(std::vector<int>{7, 7}, 0, 1));
  EXPECT_FALSE(repeats(std::vector<int>{7}, 2, 1));
  FakeModel model;
  CoreDriver driver(model, small_config());
  model.script = [](std::span<const int> tokens) { return tokens.size() % 2 == 0 ? 11 : 12; };
  Request request = request_of(random_ids(1, 4), 50);
  request.repetition_ngram_size = 2;
  request.repetition_ngram_threshold = 3;
  RequestOutput output = driver.complete(request);
  EXPECT_EQ(output.finish, FinishReason::kStop);
  EXPECT_EQ(output.token_ids, (std::vector<int>{11, 12, 11, 12, 11, 12}));
  request.min_new_tokens = 10;
  EXPECT_EQ(driver.complete(request).token_ids.size(), 10u);
}

std::vector<float> direct_rows(const FakeModel& model, const std::vector<int>& tokens, size_t begin,
                               size_t end) {
  std::vector<float> rows;
  for (size_t i = begin; i < end; ++i) {
    const std::vector<float> row = model.logits_after(std::span(tokens).first(i + 1), 0);
    rows.insert(rows.end(), row.begin(), row.end());
  }
  return rows;
}

TEST(LogitRows, GenerationAndAll) {
  FakeOptions options;
  options.max_logit_rows = 8;
  FakeModel model(options);
  EngineConfig config = small_config();
  config.max_logit_rows = 8;
  config.enable_prefix_caching = true;
  CoreDriver driver(model, config);
  const std::vector<int> prompt = random_ids(1, 21);
  const std::vector<int> tokens = concat(prompt, model.generate(prompt, 4));
  for (int round = 0; round < 2; ++round) {  // the second time the prompt could come from the cache
    Request request = request_of(prompt, 4);
    request.logits = OutputRows::kGeneration;
    EXPECT_EQ(driver.complete(request).logits, direct_rows(model, tokens, 20, 24));
    request.logits = OutputRows::kAll;
    const RequestOutput all = driver.complete(request);
    EXPECT_EQ(all.logits, direct_rows(model, tokens, 0, 24)) << "input_len + generated - 1 rows";
    EXPECT_EQ(all.cached_tokens, 0) << "rows are wanted, so nothing may be skipped";
  }
}

TEST(LogitRows, TheRowOfAStopIdIsDropped) {
  FakeModel model;
  CoreDriver driver(model, small_config());
  model.script = nth_token(5, 3, 9);
  Request request = request_of(random_ids(1, 5), 8);
  request.stop_ids = {9};
  request.logits = OutputRows::kGeneration;
  EXPECT_EQ(driver.complete(request).logits.size(), 2u * 64);
  request.logits = OutputRows::kAll;
  EXPECT_EQ(driver.complete(request).logits.size(), 6u * 64);
  request.include_stop_id = true;
  EXPECT_EQ(driver.complete(request).logits.size(), 7u * 64);
  model.script = nth_token(5, 1, 9);
  request.include_stop_id = false;
  EXPECT_EQ(driver.complete(request).logits.size(), 5u * 64) << "rows of input ids stay";
  request.logits = OutputRows::kGeneration;
  EXPECT_EQ(driver.complete(request).logits.size(), 0u);
}

TEST(LogitRows, OnceEachThoughTheRequestIsPreempted) {
  FakeModel model;
  EngineConfig config = small_config();
  config.num_blocks = 10;
  config.session_len = 40;
  CoreDriver driver(model, config);
  const std::vector<int> prompt = random_ids(2, 15);
  driver.submit(request_of(random_ids(1, 15), 20));
  Request request = request_of(prompt, 10);
  request.logits = OutputRows::kAll;
  const auto client = driver.submit(request);
  driver.run();
  EXPECT_GT(driver.stats().preemptions, 0);
  const std::vector<int> tokens = concat(prompt, model.generate(prompt, 10));
  EXPECT_EQ(client->output.token_ids, model.generate(prompt, 10));
  EXPECT_EQ(client->output.logits, direct_rows(model, tokens, 0, 24));
}

double direct_nll(const FakeModel& model, const std::vector<int>& tokens, size_t begin) {
  double sum = 0;
  for (size_t i = begin; i + 1 < tokens.size(); ++i)
    sum += negative_log_likelihood(model.logits_after(std::span(tokens).first(i + 1), 0), tokens[i + 1]);
  return sum;
}

TEST(Score, SumsOverThePromptInBoundedSteps) {
  FakeOptions options;
  options.max_logit_rows = 8;
  FakeModel model(options);
  EngineConfig config = small_config();
  config.max_logit_rows = 8;
  config.session_len = 101;
  CoreDriver driver(model, config);
  for (const int64_t length : {2, 7, 8, 9, 100, 101}) {
    Request request = request_of(random_ids(3, length), 0);
    request.score_prompt = true;
    const RequestOutput output = driver.complete(request);
    EXPECT_EQ(output.finish, FinishReason::kLength) << output.error_message;
    EXPECT_TRUE(output.token_ids.empty());
    EXPECT_EQ(output.session_tokens, length);
    EXPECT_NEAR(output.prompt_nll, direct_nll(model, request.input_ids, 0), 1e-9) << length;
  }
  Request request = request_of(random_ids(3, 102), 0);
  request.score_prompt = true;
  EXPECT_EQ(driver.complete(request).error_code, ErrorCode::kInvalidArgument);
}

TEST(Score, OfOneIdIsNothing) {
  FakeModel model;
  CoreDriver driver(model, small_config());
  Request request = request_of({1}, 2);
  request.score_prompt = true;
  const RequestOutput output = driver.complete(request);
  EXPECT_EQ(output.prompt_nll, 0);
  EXPECT_EQ(output.token_ids.size(), 2u);
}

TEST(Score, OfALaterTurnCountsItsOwnPairs) {
  FakeModel model;
  CoreDriver driver(model, small_config());
  Request request = turn_of(1, random_ids(1, 10), 0, true);
  request.score_prompt = true;
  driver.complete(request);
  Request next = turn_of(1, random_ids(2, 6), 0, false);
  next.score_prompt = true;
  EXPECT_NEAR(driver.complete(next).prompt_nll,
              direct_nll(model, concat(request.input_ids, next.input_ids), 10), 1e-9);
}

TEST(Score, NanIsAnErrorNotANumber) {
  FakeModel model;
  model.poison_token = 63;
  CoreDriver driver(model, small_config());
  Request request = request_of({1, 63, 2}, 0);
  request.score_prompt = true;
  const RequestOutput output = driver.complete(request);
  EXPECT_EQ(output.finish, FinishReason::kError);
  EXPECT_NE(output.error_message.find("not finite"), std::string::npos) << output.error_message;
}

/// What FakeModel::hidden_states() has for tokens [begin, end).
std::vector<float> direct_hidden(const std::vector<int>& tokens, size_t begin, size_t end) {
  std::vector<float> rows;
  for (size_t i = begin; i < end; ++i)
    rows.insert(rows.end(), {static_cast<float>(i + 1), static_cast<float>(tokens[i])});
  return rows;
}

TEST(HiddenStates, GenerationAndAllBesideLogits) {
  FakeOptions options;
  options.max_logit_rows = 8;
  FakeModel model(options);
  EngineConfig config = small_config();
  config.max_logit_rows = 8;
  config.enable_prefix_caching = true;
  CoreDriver driver(model, config);
  const std::vector<int> prompt = random_ids(1, 21);
  const std::vector<int> tokens = concat(prompt, model.generate(prompt, 4));
  Request request = request_of(prompt, 4);
  for (const auto& [wanted, begin] :
       {std::pair(OutputRows::kGeneration, 20u), std::pair(OutputRows::kAll, 0u)}) {
    request.hidden_states = wanted;
    request.logits = OutputRows::kNone;
    RequestOutput output = driver.complete(request);
    EXPECT_EQ(output.hidden_states, direct_hidden(tokens, begin, 24));
    EXPECT_TRUE(output.logits.empty());
    request.logits = OutputRows::kGeneration;
    output = driver.complete(request);
    EXPECT_EQ(output.hidden_states, direct_hidden(tokens, begin, 24));
    EXPECT_EQ(output.logits, direct_rows(model, tokens, 20, 24)) << "each in its own way";
  }
}

TEST(HiddenStates, OnceEachThoughTheRequestIsPreempted) {
  FakeModel model;
  EngineConfig config = small_config();
  config.num_blocks = 10;
  config.session_len = 40;
  CoreDriver driver(model, config);
  const std::vector<int> prompt = random_ids(2, 15);
  driver.submit(request_of(random_ids(1, 15), 20));
  Request request = request_of(prompt, 10);
  request.hidden_states = OutputRows::kAll;
  request.num_prompt_logprobs = 0;
  const auto client = driver.submit(request);
  driver.run();
  EXPECT_GT(driver.stats().preemptions, 0);
  EXPECT_EQ(client->output.hidden_states, direct_hidden(concat(prompt, model.generate(prompt, 10)), 0, 24));
  EXPECT_EQ(client->output.prompt_logprobs.size(), 14u);
}

TEST(HiddenStates, TheLastRowOfAPromptThatIsOnlyRead) {
  FakeModel model;
  CoreDriver driver(model, small_config());
  const std::vector<int> prompt = random_ids(1, 21);
  Request request = request_of(prompt, 0);
  request.hidden_states = request.logits = OutputRows::kGeneration;
  const RequestOutput output = driver.complete(request);
  EXPECT_EQ(output.hidden_states, direct_hidden(prompt, 20, 21));
  EXPECT_EQ(output.logits, direct_rows(model, prompt, 20, 21));
}

TEST(PromptLogprobs, OfEachIdButTheFirstGivenThoseBeforeIt) {
  FakeOptions options;
  options.max_logit_rows = 8;
  FakeModel model(options);
  EngineConfig config = small_config();
  config.max_logit_rows = 8;
  config.enable_prefix_caching = true;
  CoreDriver driver(model, config);
  const std::vector<int> prompt = random_ids(1, 21);
  for (const int new_tokens : {0, 3}) {
    Request request = request_of(prompt, new_tokens);
    request.num_prompt_logprobs = 2;
    const RequestOutput output = driver.complete(request);
    ASSERT_EQ(output.prompt_logprobs.size(), 20u);
    EXPECT_EQ(output.token_ids.size(), static_cast<size_t>(new_tokens));
    for (size_t i = 0; i < 20; ++i) {
      const std::vector<float> row = model.logits_after(std::span(prompt).first(i + 1), 0);
      const TokenLogprobs& at = output.prompt_logprobs[i];
      EXPECT_NEAR(at.chosen, -negative_log_likelihood(row, prompt[i + 1]), 1e-5) << i;
      ASSERT_EQ(at.top.size(), 2u);
      EXPECT_EQ(at.top[0].first, std::ranges::max_element(row) - row.begin()) << i;
      EXPECT_GE(at.top[0].second, at.top[1].second);
    }
  }
}

TEST(Processors, ChangeTheLogitsOfTheirRequestAlone) {
  FakeModel model;
  CoreDriver driver(model, small_config());
  const std::vector<int> prompt = random_ids(1, 5);
  std::vector<std::vector<int>> seen;
  Request request = request_of(prompt, 3);
  request.num_logprobs = 0;
  request.logits = OutputRows::kGeneration;
  request.sampling.logit_bias = {{7, 50.0f}};  // after the processors
  request.logits_processors.push_back([&](std::span<const int> tokens, std::vector<float>& logits) {
    EXPECT_EQ(logits, model.logits_after(tokens, 0));
    seen.emplace_back(tokens.begin(), tokens.end());
    logits.assign(logits.size(), -1000);
    logits[9] = logits[7] = 0;
  });
  request.logits_processors.push_back([](std::span<const int>, std::vector<float>& logits) {
    EXPECT_EQ(logits[9], 0) << "what the first one left";
    logits[9] = 20;
  });
  const auto with = driver.submit(request);
  const auto without = driver.submit(request_of(random_ids(2, 5), 3));
  driver.run();
  EXPECT_EQ(with->output.token_ids, (std::vector<int>{7, 7, 7}));
  EXPECT_EQ(seen, (std::vector<std::vector<int>>{prompt, concat(prompt, {7}), concat(prompt, {7, 7})}));
  EXPECT_EQ(with->output.logits, direct_rows(model, concat(prompt, {7, 7}), 4, 7)) << "the model's own";
  EXPECT_NEAR(with->output.logprobs[0].chosen, -negative_log_likelihood(model.logits_after(prompt, 0), 7),
              1e-5);
  EXPECT_EQ(without->output.token_ids, model.generate(random_ids(2, 5), 3));
}

TEST(Processors, WhatTheyThrowEndsTheirRequestAlone) {
  FakeModel model;
  CoreDriver driver(model, small_config());
  const auto failing = [&](LogitsProcessor processor) {
    Request request = request_of(random_ids(1, 5), 4);
    request.logits_processors = {std::move(processor)};
    const auto bad = driver.submit(std::move(request));
    const auto good = driver.submit(request_of(random_ids(2, 5), 4));
    driver.run();
    EXPECT_EQ(good->output.token_ids, model.generate(random_ids(2, 5), 4));
    EXPECT_EQ(bad->output.finish, FinishReason::kError);
    return bad->output.error_message;
  };
  EXPECT_EQ(failing([](auto, auto&) { throw std::runtime_error("no more words"); }), "no more words");
  EXPECT_NE(failing([](auto, auto& logits) { logits.pop_back(); }).find("63 logits; expected 64"),
            std::string::npos);
  const std::string nan = failing([](auto, auto& logits) { logits[3] = std::nanf(""); });
  EXPECT_NE(nan.find("logits_processors"), std::string::npos) << nan;
  EXPECT_EQ(driver.stats().used_blocks, 0);
}

TEST(Outputs, ZeroNewTokensOnlyReadsThePromptIn) {
  FakeModel model;
  CoreDriver driver(model, small_config());
  const RequestOutput output = driver.complete(turn_of(1, random_ids(1, 9), 0, true));
  EXPECT_EQ(output.finish, FinishReason::kLength);
  EXPECT_EQ(output.session_tokens, 9);
  EXPECT_EQ(driver.complete(turn_of(1, {4}, 3, false)).token_ids,
            model.generate(concat(random_ids(1, 9), {4}), 3));
}

TEST(Outputs, F20_LogprobsBelongToTheirOwnStep) {
  FakeModel model;
  CoreDriver driver(model, small_config());
  std::vector<int> tokens = random_ids(1, 5);
  Request request = request_of(tokens, 6);
  request.num_logprobs = 5;
  const RequestOutput output = driver.complete(request);
  ASSERT_EQ(output.logprobs.size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    const TokenLogprobs& at = output.logprobs[i];
    ASSERT_EQ(at.top.size(), 5u);
    EXPECT_TRUE(
        std::ranges::is_sorted(at.top, std::greater<>(), [](const auto& item) { return item.second; }));
    EXPECT_EQ(at.top[0].first, output.token_ids[i]);
    EXPECT_EQ(at.top[0].second, at.chosen);
    EXPECT_NEAR(at.chosen, -negative_log_likelihood(model.logits_after(tokens, 0), output.token_ids[i]),
                1e-5);
    tokens.push_back(output.token_ids[i]);
  }
}

TEST(Errors, NanLogitsEndThatRequestAlone) {
  FakeModel model;
  EngineConfig config = small_config();
  config.enable_prefix_caching = true;
  CoreDriver driver(model, config);
  model.poison_token = 63;
  const std::vector<int> head = random_ids(1, 8);
  const auto good = driver.submit(request_of(concat(head, {5}), 10));
  const auto bad = driver.submit(request_of(concat(head, {5, 63}), 10));
  driver.run();
  EXPECT_EQ(bad->output.finish, FinishReason::kError);
  EXPECT_EQ(bad->output.error_code, ErrorCode::kInternal);
  EXPECT_TRUE(bad->output.token_ids.empty());
  EXPECT_EQ(good->output.token_ids, model.generate(concat(head, {5}), 10));
  EXPECT_EQ(driver.stats().failed, 1);
  EXPECT_EQ(driver.stats().used_blocks, 0);
}

TEST(Errors, AnExceptionInAStepFailsItsRequestsAndTheEngineGoesOn) {
  FakeModel model;
  CoreDriver driver(model, small_config());
  model.before_step = [](const StepInput& input) {
    if (input.kv_len.size() == 2) throw std::runtime_error("the device fell off the bus");
  };
  const auto a = driver.submit(request_of(random_ids(1, 5), 10));
  driver.step();
  const auto b = driver.submit(request_of(random_ids(2, 5), 10));
  driver.run();
  for (const auto& client : {a, b}) {
    EXPECT_EQ(client->output.finish, FinishReason::kError);
    EXPECT_EQ(client->output.error_message, "the device fell off the bus");
  }
  EXPECT_EQ(a->output.token_ids.size(), 1u) << "what came before the failure was delivered";
  EXPECT_EQ(driver.stats().free_blocks, driver.stats().total_blocks);
  EXPECT_EQ(driver.complete(request_of(random_ids(3, 5), 4)).token_ids, model.generate(random_ids(3, 5), 4));
}

}  // namespace
}  // namespace lmdeploy::testing
