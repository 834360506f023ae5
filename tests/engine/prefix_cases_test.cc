// Prefix caching through the whole engine: field cases F44, F45, F51.
#include <gtest/gtest.h>

#include "core_driver.h"
#include "fake_model.h"
#include "lmdeploy/core/random.h"

namespace lmdeploy::testing {
namespace {

class Prefix : public ::testing::TestWithParam<GroupCase> {
 protected:
  /// `num_blocks` for each group.
  static EngineConfig blocks_of_64(int64_t num_blocks, bool caching) {
    EngineConfig config = small_config();
    config.block_len = 64;
    config.session_len = 512;
    config.num_blocks = num_blocks * GetParam().num_groups();
    config.max_prefill_token_num = 256;
    config.enable_prefix_caching = caching;
    return config;
  }
};

TEST_P(Prefix, F44_NeverChangesTheAnswer) {
  FakeModel model({.windows = GetParam().windows});
  CoreDriver driver(model, blocks_of_64(64, true));
  for (const int64_t length : {300, 63, 64, 65, 128, 129}) {
    const std::vector<int> prompt = random_ids(static_cast<uint64_t>(length), length);
    const std::vector<int> want = model.generate(prompt, 10);
    for (int i = 0; i < 4; ++i) {
      const RequestOutput output = driver.complete(request_of(prompt, 10));
      EXPECT_EQ(output.token_ids, want) << length << " ids, time " << i;
      EXPECT_EQ(output.cached_tokens, i == 0 ? 0 : (length - 1) / 64 * 64);
      EXPECT_LT(output.cached_tokens, length) << "at least the last token is computed";
    }
  }
  const std::vector<int> head = random_ids(9, 200);
  for (const uint64_t seed : {1, 2}) {
    const std::vector<int> prompt = concat(head, random_ids(seed, 50));
    const RequestOutput output = driver.complete(request_of(prompt, 10));
    EXPECT_EQ(output.token_ids, model.generate(prompt, 10));
    EXPECT_EQ(output.cached_tokens, seed == 1 ? 0 : 192);
  }
}

TEST_P(Prefix, F45_StaysRightAfterEvictionAndReuse) {
  FakeModel model({.windows = GetParam().windows});
  CoreDriver driver(model, blocks_of_64(8, true));
  Rng rng(45);
  std::vector<std::vector<int>> prompts;
  for (uint64_t i = 0; i < 50; ++i) {
    const auto length = static_cast<int64_t>(130 + rng.below(250));  // 3 to 6 blocks
    const std::vector<int> head = random_ids(i % 3, i % 2 == 0 ? 128 : 0);
    prompts.push_back(concat(head, random_ids(1000 + i, length - static_cast<int64_t>(head.size()))));
  }
  for (int round = 0; round < 3; ++round) {
    std::vector<std::pair<size_t, std::shared_ptr<Client>>> running;
    for (size_t i = 0; i < prompts.size(); ++i) {
      const size_t which = rng.below(prompts.size());
      running.emplace_back(which, driver.submit(request_of(prompts[which], 8)));
      for (uint64_t steps = rng.below(4); steps > 0; --steps) driver.step();
      if (rng.below(4) == 0) driver.cancel(*running[rng.below(running.size())].second);
    }
    driver.run();
    for (const auto& [which, client] : running) {
      const std::vector<int> want = model.generate(prompts[which], 8);
      const std::vector<int>& got = client->output.token_ids;
      EXPECT_NE(client->output.finish, FinishReason::kError) << client->output.error_message;
      EXPECT_EQ(got, std::vector<int>(want.begin(), want.begin() + static_cast<int64_t>(got.size())));
      EXPECT_TRUE(client->output.finish == FinishReason::kAbort || got.size() == 8u);
    }
  }
  const EngineStats stats = driver.stats();
  EXPECT_EQ(stats.free_blocks + stats.cached_blocks, stats.total_blocks);
  EXPECT_GT(stats.prefix_hit_tokens, 0);
  EXPECT_GT(stats.aborted, 0);
}

TEST_P(Prefix, F51_HitsAreVisible) {
  FakeModel model({.windows = GetParam().windows});
  CoreDriver driver(model, blocks_of_64(32, true));
  EXPECT_EQ(driver.complete(request_of(random_ids(1, 200), 4)).cached_tokens, 0);
  EXPECT_EQ(driver.complete(request_of(random_ids(1, 200), 4)).cached_tokens, 192);
  EXPECT_EQ(driver.stats().prefix_queried_tokens, 400);
  EXPECT_EQ(driver.stats().prefix_hit_tokens, 192);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(driver.complete(request_of(random_ids(2, 40), 4)).cached_tokens, 0);
  CoreDriver off(model, blocks_of_64(32, false));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(off.complete(request_of(random_ids(1, 200), 4)).cached_tokens, 0);
  EXPECT_EQ(off.stats().prefix_queried_tokens, 0);
}

TEST_P(Prefix, GeneratedBlocksAreFoundToo) {
  FakeModel model({.windows = GetParam().windows});
  EngineConfig config = small_config(GetParam().num_groups());
  config.enable_prefix_caching = true;
  CoreDriver driver(model, config);
  const std::vector<int> prompt = random_ids(1, 5);
  const std::vector<int> answer = driver.complete(request_of(prompt, 20)).token_ids;
  const RequestOutput next = driver.complete(request_of(concat(concat(prompt, answer), {7, 8}), 4));
  EXPECT_EQ(next.cached_tokens, 24) << "of 25 + 2; the last of the 25 had no keys";
  EXPECT_EQ(next.token_ids, model.generate(concat(concat(prompt, answer), {7, 8}), 4));
}

TEST_P(Prefix, RopeTablesThatDifferAreKeptApart) {
  FakeOptions options;
  options.windows = GetParam().windows;
  options.rope.kind = RopeSpec::Kind::kDynamicNtk;
  options.rope.original_max_positions = 16;
  options.rope.factor = 2;
  options.rope.rotary_dim = 4;
  FakeModel model(options);
  EngineConfig config = small_config(GetParam().num_groups());
  config.enable_prefix_caching = true;
  CoreDriver driver(model, config);
  const std::vector<int> head = random_ids(1, 12);
  const auto cached = [&](int64_t more) {
    const std::vector<int> prompt = concat(head, random_ids(2, more));
    const RequestOutput output = driver.complete(request_of(prompt, 3));
    EXPECT_EQ(output.token_ids, model.generate(prompt, 3)) << more;
    return output.cached_tokens;
  };
  EXPECT_EQ(cached(2), 0);
  EXPECT_EQ(cached(4), 12) << "up to 16 tokens the tables are equal";
  EXPECT_EQ(cached(8), 0) << "20 tokens: another table";
  EXPECT_EQ(cached(9), 0) << "21 tokens: yet another";
  EXPECT_EQ(cached(8), 16) << "20 tokens again";
}

// What is computed after a poisoned token may be wrong, also where its block has left the window since.
TEST_P(Prefix, AFailedRequestLeavesNothingToBeFound) {
  FakeModel model({.windows = GetParam().windows});
  EngineConfig config = small_config(GetParam().num_groups());
  config.enable_prefix_caching = true;
  CoreDriver driver(model, config);
  const std::vector<int> prompt = random_ids(1, 120);
  model.before_step = [&](const StepInput& input) {
    if (input.kv_len[0] == 140) throw Error(ErrorCode::kInternal, "broken");
  };
  EXPECT_EQ(driver.complete(request_of(prompt, 50)).finish, FinishReason::kError);
  EXPECT_EQ(driver.stats().free_blocks, driver.stats().total_blocks);
  model.before_step = nullptr;
  const RequestOutput again = driver.complete(request_of(prompt, 50));
  EXPECT_EQ(again.cached_tokens, 0);
  EXPECT_EQ(again.token_ids, model.generate(prompt, 50));
}

INSTANTIATE_TEST_SUITE_P(Groups, Prefix, ::testing::ValuesIn(kGroupCases), name_of);

}  // namespace
}  // namespace lmdeploy::testing
