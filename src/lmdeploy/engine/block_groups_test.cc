// Which blocks a token reads, how many are needed at most.
#include "lmdeploy/engine/block_groups.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lmdeploy {
namespace {

const std::vector<KvGroup> kGroups = {{}, {.window = 1}, {.window = 5}, {.window = 16}};

// By walking over the tokens one by one.
TEST(BlockGroups, CountsWhatTheWindowsTouch) {
  for (const int64_t block_len : {1, 3, 4, 16}) {
    const BlockGroups groups(block_len, kGroups);
    for (size_t group = 0; group < kGroups.size(); ++group) {
      const int64_t window = kGroups[group].window;
      for (const int64_t chunk : {1, 2, 7, 40}) {
        int64_t most = 0;
        for (int64_t begin = 0; begin + chunk <= 200; ++begin) {
          const int64_t first_token = window == 0 ? 0 : std::max<int64_t>(0, begin - window + 1);
          EXPECT_EQ(groups.first_read(group, begin), first_token / block_len);
          most = std::max(most, (begin + chunk - 1) / block_len - first_token / block_len + 1);
        }
        EXPECT_EQ(groups.most_held(group, 200, chunk), most) << block_len << ", " << window << ", " << chunk;
        EXPECT_TRUE(window == 0 || most <= (window + chunk + block_len - 1) / block_len + 1);
      }
    }
  }
}

TEST(BlockGroups, ASequenceNeedsBlocksInEachGroup) {
  const BlockGroups groups(4, kGroups);
  EXPECT_EQ(groups.least_for(1), 4);
  EXPECT_EQ(groups.least_for(8), 2 + 1 + 2 + 2);
  EXPECT_EQ(groups.least_for(100), 25 + 1 + 2 + 5);
}

TEST(BlockGroups, TheLongestSequenceIsTheLongestThatFits) {
  const BlockGroups groups(4, kGroups);
  for (int64_t blocks = 0; blocks < 60; ++blocks) {
    const int64_t longest = groups.longest(blocks);
    EXPECT_LE(groups.least_for(longest), blocks);
    EXPECT_GT(groups.least_for(longest + 1), blocks);
  }
  EXPECT_EQ(groups.longest(3), 0) << "four groups";
  const BlockGroups windows(4, std::span(kGroups).subspan(2));
  EXPECT_EQ(windows.longest(7), BlockGroups::kUnlimited);
  EXPECT_EQ(windows.longest(6), 16);
}

}  // namespace
}  // namespace lmdeploy
