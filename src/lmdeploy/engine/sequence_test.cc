// What a resting sequence gets back.
#include "lmdeploy/engine/sequence.h"

#include <gtest/gtest.h>

namespace lmdeploy {
namespace {

/// Blocks of 4 tokens, a full group and one with a window of 6.
class SequenceTest : public ::testing::Test {
 protected:
  SequenceTest() { sequence_.tokens.assign(30, 1); }
  /// Computes up to token `cache_len` and rests.
  void compute(int64_t cache_len) {
    take_blocks(sequence_, store_);
    ASSERT_TRUE(take_room(sequence_, cache_len - sequence_.cache_len, store_));
    advance(sequence_, cache_len - sequence_.cache_len, store_);
    rest(sequence_, store_);
  }

  const std::vector<KvGroup> kv_groups_ = {{}, {.window = 6}};
  BlockGroups groups_{4, kv_groups_};
  BlockManager blocks_{20};
  BlockStore store_{blocks_, nullptr, groups_};
  Sequence sequence_;
};

TEST_F(SequenceTest, APartOfABlockThatAnotherReadsIsComputedAgain) {
  for (const size_t group : {0u, 1u}) {
    compute(6);
    const BlockHandle other = std::move(*blocks_.acquire(sequence_.resting_blocks[group].keys.back()));
    take_blocks(sequence_, store_);
    EXPECT_EQ(sequence_.cache_len, 4) << "group " << group;
    drop_blocks(sequence_, store_);
  }
  EXPECT_EQ(blocks_.num_free(), 20);
}

TEST_F(SequenceTest, RestsOnTheLastWindowAndComesBackOnlyWithAllOfIt) {
  compute(22);
  EXPECT_EQ(sequence_.resting_blocks[0].keys.size(), 6u);
  EXPECT_EQ(sequence_.resting_blocks[1].first, 4) << "token 22 sees 17 to 22";
  EXPECT_EQ(sequence_.resting_blocks[1].keys.size(), 2u);
  for (const int64_t length : {23, 22, 21}) {  // one token is always computed
    truncate(sequence_, length);
    take_blocks(sequence_, store_);
    EXPECT_EQ(sequence_.cache_len, length > 21 ? length - 1 : 0) << "token 20 sees block 3";
    rest(sequence_, store_);
  }
  EXPECT_EQ(blocks_.num_free(), 20) << "of no use without the window's";
}

}  // namespace
}  // namespace lmdeploy
