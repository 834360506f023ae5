// Sessions: history, rollback, eviction, conflicts, limits.
#include <gtest/gtest.h>

#include "core_driver.h"
#include "fake_model.h"

namespace lmdeploy::testing {
namespace {

class Sessions : public ::testing::TestWithParam<GroupCase> {};

TEST_P(Sessions, ATurnSeesTheWholeHistory) {
  FakeModel model({.windows = GetParam().windows});
  CoreDriver driver(model, small_config(GetParam().num_groups()));
  std::vector<int> all = random_ids(1, 9);
  for (int turn = 0; turn < 4; ++turn) {
    const std::vector<int> prompt = turn == 0 ? all : random_ids(10 + turn, 5);
    if (turn > 0) all = concat(all, prompt);
    const size_t steps_before = model.steps.size();
    const RequestOutput output = driver.complete(turn_of(7, prompt, 6, turn == 0));
    EXPECT_EQ(output.finish, FinishReason::kLength);
    EXPECT_EQ(output.token_ids, model.generate(all, 6)) << "turn " << turn;
    all = concat(all, output.token_ids);
    EXPECT_EQ(output.session_tokens, static_cast<int64_t>(all.size()));
    const int64_t computed = model.steps[steps_before].tokens;
    EXPECT_EQ(computed, turn == 0 ? 9 : 6) << "the new prompt, and the last token, which had no keys yet";
  }
  EXPECT_EQ(driver.stats().sessions, 1);
}

TEST_P(Sessions, StepRollsBack) {
  FakeModel model({.windows = GetParam().windows});
  for (const bool caching : {false, true}) {
    EngineConfig config = small_config(GetParam().num_groups());
    config.enable_prefix_caching = caching;
    CoreDriver driver(model, config);
    const std::vector<int> first = random_ids(1, 13);
    const std::vector<int> answer = driver.complete(turn_of(1, first, 9, true)).token_ids;
    const std::vector<int> all = concat(first, answer);
    for (const int64_t step : {22, 20, 13, 12, 9, 8, 3, 0}) {
      Request again = turn_of(1, random_ids(2, 2), 4, false);
      again.step = step;
      const std::vector<int> history = concat({all.begin(), all.begin() + step}, again.input_ids);
      EXPECT_EQ(driver.complete(again).token_ids, model.generate(history, 4)) << "step " << step;
    }
  }
}

TEST_P(Sessions, RollbackDoesNotWriteIntoBlocksThatOthersRead) {
  FakeModel model({.windows = GetParam().windows});
  EngineConfig config = small_config(GetParam().num_groups());
  config.enable_prefix_caching = true;
  CoreDriver driver(model, config);
  const std::vector<int> head = random_ids(5, 12);
  driver.complete(turn_of(1, concat(head, {1}), 2, true));
  const auto other = driver.submit(request_of(concat(head, {2, 3}), 30));  // runs on the session's blocks
  driver.step();
  EXPECT_EQ(other->output.cached_tokens, 12);
  Request back = turn_of(1, {9, 9, 9}, 5, false);
  back.step = 6;
  EXPECT_EQ(driver.complete(back).token_ids,
            model.generate(concat({head.begin(), head.begin() + 6}, {9, 9, 9}), 5));
  EXPECT_EQ(other->output.token_ids, model.generate(concat(head, {2, 3}), 30));
}

TEST_P(Sessions, StepBeyondTheHistoryIsIgnored) {
  FakeModel model({.windows = GetParam().windows});
  CoreDriver driver(model, small_config(GetParam().num_groups()));
  const std::vector<int> first = random_ids(1, 5);
  const std::vector<int> answer = driver.complete(turn_of(1, first, 3, true)).token_ids;
  Request next = turn_of(1, {4}, 3, false);
  next.step = 1000;
  EXPECT_EQ(driver.complete(next).token_ids, model.generate(concat(concat(first, answer), {4}), 3));
}

TEST_P(Sessions, AnEmptyPromptContinues) {
  FakeModel model({.windows = GetParam().windows});
  CoreDriver driver(model, small_config(GetParam().num_groups()));
  const std::vector<int> first = random_ids(1, 8);
  const std::vector<int> answer = driver.complete(turn_of(1, first, 4, true)).token_ids;
  EXPECT_EQ(driver.complete(turn_of(1, {}, 4, false)).token_ids, model.generate(concat(first, answer), 4));
  Request back = turn_of(1, {}, 4, false);
  back.step = 8;  // all of the history has keys: the last token is computed again
  EXPECT_EQ(driver.complete(back).token_ids, answer);
  back.step = 0;
  EXPECT_EQ(driver.complete(back).error_code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(driver.complete(turn_of(1, {}, 1, false)).finish, FinishReason::kLength) << "it is still there";
}

TEST_P(Sessions, EvictedHistoryIsComputedAgain) {
  FakeModel model({.windows = GetParam().windows});
  EngineConfig config = small_config(GetParam().num_groups());
  config.num_blocks = 8 * GetParam().num_groups();
  config.session_len = 32;
  CoreDriver driver(model, config);
  const std::vector<int> first = random_ids(1, 10);
  const std::vector<int> answer = driver.complete(turn_of(1, first, 4, true)).token_ids;
  const int64_t kept = driver.stats().cached_blocks;
  for (uint64_t seed = 2; seed < 10; ++seed) driver.submit(request_of(random_ids(seed, 28), 4));
  driver.run();  // together they need the whole pool, or nearly
  EXPECT_LT(driver.stats().cached_blocks, GetParam().num_groups() > 1 ? kept : 1);
  model.steps.clear();
  EXPECT_EQ(driver.complete(turn_of(1, {3, 4}, 5, false)).token_ids,
            model.generate(concat(concat(first, answer), {3, 4}), 5));
  EXPECT_EQ(model.steps[0].tokens, 16) << "all of it was recomputed";
}

TEST_P(Sessions, ASecondRequestOfABusySessionIsRefused) {
  FakeModel model({.windows = GetParam().windows});
  CoreDriver driver(model, small_config(GetParam().num_groups()));
  const auto running = driver.submit(turn_of(1, random_ids(1, 5), 20, true));
  driver.step();
  for (const bool start : {false, true}) {
    const auto second = driver.submit(turn_of(1, {1, 2}, 5, start));
    driver.step();
    EXPECT_EQ(second->output.finish, FinishReason::kError);
    EXPECT_EQ(second->output.error_code, ErrorCode::kBusy);
    EXPECT_NE(second->output.error_message.find("session 1"), std::string::npos);
  }
  driver.run();
  EXPECT_EQ(running->output.token_ids, model.generate(random_ids(1, 5), 20));
}

TEST_P(Sessions, AnUnknownSessionIsNamed) {
  FakeModel model({.windows = GetParam().windows});
  CoreDriver driver(model, small_config(GetParam().num_groups()));
  const RequestOutput output = driver.complete(turn_of(77, {1}, 5, false));
  EXPECT_EQ(output.error_code, ErrorCode::kNotFound);
  EXPECT_NE(output.error_message.find("session 77"), std::string::npos);
}

TEST_P(Sessions, StartErasesAnIdleSessionOfThatId) {
  FakeModel model({.windows = GetParam().windows});
  CoreDriver driver(model, small_config(GetParam().num_groups()));
  driver.complete(turn_of(1, random_ids(1, 9), 5, true));
  EXPECT_EQ(driver.complete(turn_of(1, random_ids(2, 3), 5, true)).token_ids,
            model.generate(random_ids(2, 3), 5));
  EXPECT_EQ(driver.stats().sessions, 1);
  driver.end_session(1);
  driver.step();
  EXPECT_EQ(driver.stats().sessions, 0);
  EXPECT_EQ(driver.stats().free_blocks, driver.stats().total_blocks);
}

TEST_P(Sessions, CancelKeepsWhatWasGenerated) {
  FakeModel model({.windows = GetParam().windows});
  CoreDriver driver(model, small_config(GetParam().num_groups()));
  const std::vector<int> first = random_ids(1, 5);
  const auto client = driver.submit(turn_of(1, first, 50, true));
  for (int i = 0; i < 4; ++i) driver.step();
  driver.cancel(*client);
  driver.step();
  EXPECT_EQ(client->output.finish, FinishReason::kAbort);
  EXPECT_EQ(client->output.token_ids.size(), 4u);
  EXPECT_EQ(client->output.session_tokens, 9);
  EXPECT_EQ(driver.stats().used_blocks, 0);
  EXPECT_EQ(driver.complete(turn_of(1, {8}, 5, false)).token_ids,
            model.generate(concat(concat(first, client->output.token_ids), {8}), 5));
}

TEST_P(Sessions, CancelInTheMiddleOfAPrompt) {
  FakeModel model({.windows = GetParam().windows});
  EngineConfig config = small_config(GetParam().num_groups());
  config.max_prefill_token_num = 5;
  CoreDriver driver(model, config);
  const std::vector<int> prompt = random_ids(1, 23);
  const auto client = driver.submit(turn_of(1, prompt, 50, true));
  driver.step();
  driver.cancel(*client);
  driver.run();
  EXPECT_EQ(client->output.finish, FinishReason::kAbort);
  EXPECT_EQ(client->output.session_tokens, 23);
  EXPECT_EQ(driver.complete(turn_of(1, {8}, 5, false)).token_ids, model.generate(concat(prompt, {8}), 5));
}

TEST_P(Sessions, EndSessionCancelsTheRunningRequest) {
  FakeModel model({.windows = GetParam().windows});
  CoreDriver driver(model, small_config(GetParam().num_groups()));
  const auto client = driver.submit(turn_of(1, random_ids(1, 5), 50, true));
  driver.step();
  driver.end_session(1);
  driver.end_session(99);
  driver.step();
  EXPECT_EQ(client->output.finish, FinishReason::kAbort);
  EXPECT_EQ(driver.stats().sessions, 0);
  EXPECT_EQ(driver.stats().free_blocks, driver.stats().total_blocks);
}

TEST_P(Sessions, AFailedTurnLeavesTheSessionAsItWas) {
  FakeModel model({.windows = GetParam().windows});
  CoreDriver driver(model, small_config(GetParam().num_groups()));
  const std::vector<int> first = random_ids(1, 6);
  const std::vector<int> answer = driver.complete(turn_of(1, first, 3, true)).token_ids;
  model.poison_token = 63;
  const RequestOutput failed = driver.complete(turn_of(1, {5, 63}, 5, false));
  EXPECT_EQ(failed.finish, FinishReason::kError);
  EXPECT_EQ(failed.error_code, ErrorCode::kInternal);
  EXPECT_EQ(failed.session_tokens, 9);
  const RequestOutput longer = driver.complete(turn_of(1, random_ids(3, 300), 5, false));
  EXPECT_EQ(longer.error_code, ErrorCode::kInvalidArgument);
  EXPECT_NE(longer.error_message.find("300 tokens and the session 9"), std::string::npos)
      << longer.error_message;
  EXPECT_EQ(driver.complete(turn_of(1, {5}, 5, false)).token_ids,
            model.generate(concat(concat(first, answer), {5}), 5));
}

TEST_P(Sessions, TheOneUnusedForLongestIsForgotten) {
  FakeModel model({.windows = GetParam().windows});
  EngineConfig config = small_config(GetParam().num_groups());
  config.max_sessions = 3;
  CoreDriver driver(model, config);
  for (uint64_t id = 1; id <= 3; ++id) driver.complete(turn_of(id, {1, 2}, 2, true));
  driver.complete(turn_of(1, {3}, 2, false));
  driver.complete(turn_of(4, {1, 2}, 2, true));
  EXPECT_EQ(driver.stats().sessions, 3);
  EXPECT_EQ(driver.complete(turn_of(2, {3}, 2, false)).error_code, ErrorCode::kNotFound);
  EXPECT_EQ(driver.complete(turn_of(1, {3}, 2, false)).finish, FinishReason::kLength);
}

TEST_P(Sessions, DrawsGoOnFromTurnToTurn) {
  FakeModel model({.windows = GetParam().windows});
  CoreDriver driver(model, small_config(GetParam().num_groups()));
  const auto turn = [](std::vector<int> ids, int64_t count, bool start) {
    Request request = turn_of(1, std::move(ids), count, start);
    request.sampling.temperature = 1;
    request.sampling.seed = 42;
    return request;
  };
  const std::vector<int> whole = driver.complete(turn({1, 2, 3}, 10, true)).token_ids;
  std::vector<int> parts = driver.complete(turn({1, 2, 3}, 4, true)).token_ids;
  parts = concat(parts, driver.complete(turn({}, 6, false)).token_ids);
  EXPECT_EQ(parts, whole);
}

INSTANTIATE_TEST_SUITE_P(Groups, Sessions, ::testing::ValuesIn(kGroupCases), name_of);

}  // namespace
}  // namespace lmdeploy::testing
