// Longrope: one table up to the original length, another beyond it, and the keys of a sequence all of one.
#include <gtest/gtest.h>

#include "core_driver.h"
#include "fake_model.h"

namespace lmdeploy::testing {
namespace {

constexpr int64_t kBorder = 40;  // original_max_positions

class LongRope : public ::testing::TestWithParam<std::tuple<bool, GroupCase>> {
 protected:
  LongRope() : model_(options()) { config_.enable_prefix_caching = std::get<0>(GetParam()); }
  static FakeOptions options() {
    FakeOptions options;
    options.windows = std::get<1>(GetParam()).windows;
    options.rope.kind = RopeSpec::Kind::kLongRope;
    options.rope.original_max_positions = kBorder;
    return options;
  }

  FakeModel model_;
  EngineConfig config_ = small_config(std::get<1>(GetParam()).num_groups());
};

TEST_P(LongRope, ASequenceThatOutgrowsTheBorderIsComputedAgainOnce) {
  config_.max_prefill_token_num = 16;
  CoreDriver driver(model_, config_);
  const std::vector<int> prompt = random_ids(1, 30);
  EXPECT_EQ(driver.complete(request_of(prompt, 30)).token_ids, model_.generate(prompt, 30));
  // 2 chunks and 10 tokens up to the border, then 41 tokens in 3 chunks, then 18 of the 19 tokens after them.
  std::vector<int64_t> tokens;
  for (const StepRecord& step : model_.steps) tokens.push_back(step.tokens);
  std::vector<int64_t> want = {16, 14};
  want.insert(want.end(), 10, 1);
  want.insert(want.end(), {16, 16, 9});
  want.insert(want.end(), 18, 1);
  EXPECT_EQ(tokens, want);
  EXPECT_EQ(driver.stats().preemptions, 0);
  EXPECT_EQ(driver.stats().used_blocks, 0);
}

TEST_P(LongRope, OthersGoOnMeanwhile) {
  config_.max_prefill_token_num = 8;
  CoreDriver driver(model_, config_);
  const auto older = driver.submit(request_of(random_ids(1, 3), 60));
  driver.step();
  const auto crossing = driver.submit(request_of(random_ids(2, 38), 12));
  const auto newer = driver.submit(request_of(random_ids(3, 4), 20));
  while (!crossing->done()) {
    const size_t before = older->output.token_ids.size();
    driver.step();
    EXPECT_TRUE(older->output.token_ids.size() > before || older->output.session_tokens == kBorder + 1)
        << "it stands still only for its own sake";
  }
  driver.run();
  EXPECT_EQ(older->output.token_ids, model_.generate(random_ids(1, 3), 60));
  EXPECT_EQ(crossing->output.token_ids, model_.generate(random_ids(2, 38), 12));
  EXPECT_EQ(newer->output.token_ids, model_.generate(random_ids(3, 4), 20));
}

TEST_P(LongRope, ATurnCrossesAndStepLeadsBack) {
  CoreDriver driver(model_, config_);
  std::vector<int> all = random_ids(1, 20);
  all = concat(all, driver.complete(turn_of(1, all, 10, true)).token_ids);
  const auto turn = [&](std::vector<int> ids, int64_t step, int64_t count) {
    Request request = turn_of(1, ids, count, false);
    request.step = step;
    all.resize(static_cast<size_t>(step));
    all = concat(all, ids);
    const std::vector<int> answer = driver.complete(request).token_ids;
    EXPECT_EQ(answer, model_.generate(all, count)) << "step " << step;
    all = concat(all, answer);
  };
  turn(random_ids(2, 15), 30, 5);  // the prompt crosses
  turn(random_ids(3, 3), 50, 4);   // stays
  turn(random_ids(4, 3), 35, 1);   // back
  turn(random_ids(5, 1), 39, 1);   // up to the border exactly
  turn({}, 41, 3);                 // one token beyond it, which the answer before had drawn
  turn({}, 40, 2);                 // and back to the border, from where the answer crosses it again
  turn(random_ids(6, 2), 12, 40);  // the answer crosses
}

TEST_P(LongRope, AFailedTurnAcrossTheBorderLeavesTheSessionAsItWas) {
  CoreDriver driver(model_, config_);
  std::vector<int> all = random_ids(1, 20);
  all = concat(all, driver.complete(turn_of(1, all, 10, true)).token_ids);
  model_.poison_token = 63;
  EXPECT_EQ(driver.complete(turn_of(1, concat(random_ids(2, 15), {63}), 5, false)).finish,
            FinishReason::kError);
  model_.poison_token = -1;
  EXPECT_EQ(driver.complete(turn_of(1, {3}, 5, false)).token_ids, model_.generate(concat(all, {3}), 5));
}

TEST_P(LongRope, TablesAreKeptApartInThePrefixIndex) {
  CoreDriver driver(model_, config_);
  const std::vector<int> ids = random_ids(1, 60);
  const auto cached = [&](int64_t length) {
    const std::vector<int> prompt(ids.begin(), ids.begin() + length);
    const RequestOutput output = driver.complete(request_of(prompt, 5));
    EXPECT_EQ(output.token_ids, model_.generate(prompt, 5)) << length;
    return output.cached_tokens;
  };
  const bool caching = config_.enable_prefix_caching;
  EXPECT_EQ(cached(33), 0);
  EXPECT_EQ(cached(38), caching ? 32 : 0);  // its answer crosses, and then needs the other table's keys
  EXPECT_EQ(cached(50), caching ? 36 : 0) << "those of 38 tokens after its answer";
  EXPECT_EQ(cached(55), caching ? 48 : 0);
  EXPECT_EQ(cached(34), caching ? 32 : 0);
}

INSTANTIATE_TEST_SUITE_P(Groups, LongRope,
                         ::testing::Combine(::testing::Bool(), ::testing::ValuesIn(kGroupCases)),
                         [](const auto& test) {
                           return cat(std::get<1>(test.param).name, std::get<0>(test.param) ? "Cached" : "");
                         });

}  // namespace
}  // namespace lmdeploy::testing
