// Sliding windows bound the blocks of a sequence.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "core_driver.h"
#include "fake_model.h"
#include "lmdeploy/engine/block_groups.h"

namespace lmdeploy::testing {
namespace {

struct WindowCase {
  std::vector<int64_t> windows;
  int64_t block_len, chunk;
};
void PrintTo(const WindowCase& c, std::ostream* out) {
  *out << c.windows.size() << " groups, blocks of " << c.block_len << ", chunks of " << c.chunk;
}

class Windows : public ::testing::TestWithParam<WindowCase> {};

TEST_P(Windows, TenThousandTokensHoldNoMoreThanAWindowAndAChunk) {
  constexpr int64_t kPrompt = 10000, kNew = 50, kWindow = 16;
  const auto& [windows, block_len, chunk] = GetParam();
  FakeModel model({.max_positions = 20000, .windows = windows});
  const auto num_windows = std::ranges::count(windows, kWindow);
  const auto num_full = static_cast<int64_t>(windows.size()) - num_windows;
  const auto blocks_for = [&](int64_t tokens) { return (tokens + block_len - 1) / block_len; };
  const int64_t of_full = num_full * blocks_for(kPrompt + kNew);
  for (const bool caching : {false, true}) {
    EngineConfig config = small_config();
    config.block_len = block_len;
    config.max_prefill_token_num = chunk;
    config.session_len = 0;
    config.num_blocks =
        of_full + num_windows * (blocks_for(kWindow + chunk) + 1) + blocks_for(4 * (kNew + kWindow));
    config.enable_prefix_caching = caching;
    CoreDriver driver(model, config);
    int64_t num_steps = 0;
    model.before_step = [&](const StepInput& input) {
      const auto tokens = static_cast<int64_t>(input.token_ids.size());
      ASSERT_LE(driver.stats().used_blocks, of_full + num_windows * (blocks_for(kWindow + tokens) + 1));
      ++num_steps;
    };
    const std::vector<int> prompt = random_ids(1, kPrompt);
    const RequestOutput output = driver.complete(request_of(prompt, kNew));
    EXPECT_EQ(output.token_ids, model.generate(prompt, kNew)) << output.error_message;
    EXPECT_EQ(num_steps, (kPrompt + chunk - 1) / chunk + kNew - 1) << "no chunk is cut";
    EXPECT_EQ(driver.stats().used_blocks, 0);
    EXPECT_TRUE(caching || driver.stats().free_blocks == driver.stats().total_blocks);
    const int64_t cached = driver.complete(request_of(prompt, 1)).cached_tokens;
    EXPECT_EQ(cached, caching ? (kPrompt - 1) / block_len * block_len : 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, Windows,
                         ::testing::Values(WindowCase{{16}, 1, 100}, WindowCase{{16}, 4, 7},
                                           WindowCase{{16}, 4, 1000}, WindowCase{{16}, 16, 64},
                                           WindowCase{{16}, 64, 8192}, WindowCase{{16}, 7, 333},
                                           WindowCase{{0, 16}, 4, 64}, WindowCase{{0, 16}, 16, 1000},
                                           WindowCase{{16, 0, 16}, 64, 512}, WindowCase{{16, 16}, 5, 100}));

// What a long prompt leaves behind its window does not push out what others will ask for again.
TEST(WindowGroups, ALongPromptTakesItsOwnPassedBlocksFirst) {
  FakeModel model({.max_positions = 20000, .windows = {16}});
  EngineConfig config = small_config();
  config.session_len = 0;
  config.max_prefill_token_num = 32;  // 8 of the 64 blocks
  config.enable_prefix_caching = true;
  CoreDriver driver(model, config);
  const std::vector<int> other = random_ids(1, 60), long_prompt = random_ids(2, 2000);
  driver.complete(request_of(other, 1));
  const RequestOutput output = driver.complete(request_of(long_prompt, 40));
  EXPECT_EQ(output.token_ids, model.generate(long_prompt, 40));
  EXPECT_EQ(driver.complete(request_of(other, 1)).cached_tokens, 56);
  EXPECT_EQ(driver.complete(request_of(long_prompt, 1)).cached_tokens, 1996);
}

TEST(WindowGroups, ASessionLongerThanThePoolRunsWhereAllGroupsHaveWindows) {
  FakeModel model({.windows = {16, 7}});
  EngineConfig config = small_config();
  config.num_blocks = 9;  // 36 tokens
  config.session_len = 2000;
  CoreDriver driver(model, config);
  EXPECT_EQ(driver.config().session_len, 2000);
  const std::vector<int> first = random_ids(1, 900), second = random_ids(2, 700);
  const auto a = driver.submit(turn_of(1, first, 50, true));
  const auto b = driver.submit(request_of(second, 60));
  driver.run();
  EXPECT_EQ(a->output.token_ids, model.generate(first, 50));
  EXPECT_EQ(b->output.token_ids, model.generate(second, 60));
  const std::vector<int> history = concat(concat(first, a->output.token_ids), {5});
  EXPECT_EQ(driver.complete(turn_of(1, {5}, 20, false)).token_ids, model.generate(history, 20));
}

TEST(WindowGroups, ATurnNeedsOnlyTheWindowOfItsHistory) {
  FakeModel model({.windows = {16, 0}});
  CoreDriver driver(model, small_config(2));
  const std::vector<int> first = random_ids(1, 150);
  const std::vector<int> answer = driver.complete(turn_of(1, first, 10, true)).token_ids;
  EXPECT_LE(driver.stats().cached_blocks, 40 + 5);
  model.steps.clear();
  const std::vector<int> history = concat(concat(first, answer), {7, 8});
  EXPECT_EQ(driver.complete(turn_of(1, {7, 8}, 5, false)).token_ids, model.generate(history, 5));
  EXPECT_EQ(model.steps[0].tokens, 3);
}

TEST(WindowGroups, TooLargeNamesTokensAndBlocks) {
  FakeModel model({.windows = {0, 16}});
  EngineConfig config = small_config();
  config.num_blocks = 20;
  CoreDriver driver(model, config);
  EXPECT_EQ(driver.config().session_len, 60) << "15 blocks in the full group, 5 in the other";
  EXPECT_EQ(driver.complete(request_of(random_ids(1, 59), -1)).token_ids,
            model.generate(random_ids(1, 59), 1));
  const RequestOutput output = driver.complete(request_of(random_ids(1, 60), 1));
  EXPECT_EQ(output.error_code, ErrorCode::kInvalidArgument);
}

TEST(WindowGroups, ThePoolHoldsABatchInEachGroup) {
  FakeModel model({.windows = {0, 16}});
  EngineConfig config = small_config();
  config.num_blocks = 0;
  config.max_prefill_token_num = 40;
  EXPECT_EQ(resolve_config(config, model, size_t{1} << 40).num_blocks, 8 * (64 + 5) + 10);
  config.num_blocks = 30;
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(resolve_config(config, model, 0).session_len, 100);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("30 blocks of 4 tokens hold 100 in each of 2 groups of layers"), std::string::npos)
      << log;
  config.num_blocks = 1;
  try {
    resolve_config(config, model, 0);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("KV cache of 1 blocks holds no sequence"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace lmdeploy::testing
