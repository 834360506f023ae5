// What is shared, what must not be.
#include "lmdeploy/engine/prefix_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace lmdeploy {
namespace {

constexpr int64_t kBlockLen = 4;

std::vector<int> iota(int64_t count, int first = 0) {
  std::vector<int> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

std::vector<int> concat(std::vector<int> a, const std::vector<int>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class PrefixIndexTest : public ::testing::Test {
 protected:
  using Lists = std::vector<BlockList>;

  explicit PrefixIndexTest(const std::vector<KvGroup>& groups = {{}}, int64_t num_blocks = 16,
                           int64_t max_nodes = 32)
      : groups_(kBlockLen, groups), blocks_(num_blocks), index_(blocks_, groups_, max_nodes) {}

  Lists empty_lists() const { return Lists(groups_.size()); }
  /// Computes and publishes `tokens` block by block, as a sequence that ends then. Returns the keys of its
  /// full blocks, group by group.
  std::vector<BlockKey> compute(const std::vector<int>& tokens, uint64_t salt = 0) {
    Lists lists = empty_lists();
    const auto full = static_cast<int64_t>(tokens.size()) / kBlockLen;
    PrefixCursor cursor;
    std::vector<std::vector<BlockKey>> keys(groups_.size());
    for (int64_t i = 0; i < full; ++i) {
      for (size_t group = 0; group < groups_.size(); ++group) {
        lists[group].append(std::move(*blocks_.allocate()));
        keys[group].push_back(lists[group][i].key());
      }
      index_.publish(salt, tokens, (i + 1) * kBlockLen, lists, cursor);
      for (size_t group = 0; group < groups_.size(); ++group)
        lists[group].drop_before(groups_.first_read(group, (i + 1) * kBlockLen));
    }
    EXPECT_EQ(cursor.depth, full);
    std::vector<BlockKey> all;
    for (const auto& of_group : keys) all.insert(all.end(), of_group.begin(), of_group.end());
    return all;
  }
  /// Tokens found when all but the last may be.
  int64_t matched(const std::vector<int>& tokens, uint64_t salt = 0) {
    Lists lists = empty_lists();
    index_.match(salt, tokens, static_cast<int64_t>(tokens.size()) - 1, lists);
    for (size_t group = 0; group < groups_.size(); ++group)
      EXPECT_EQ(lists[group].first(), groups_.first_read(group, lists[0].end() * kBlockLen));
    return lists[0].end() * kBlockLen;
  }
  int64_t num_valid(const std::vector<BlockKey>& keys) const {
    return std::ranges::count_if(keys,
                                 [&](BlockKey key) { return blocks_.holds(key) && index_.contains(key); });
  }

  BlockGroups groups_;
  BlockManager blocks_;
  PrefixIndex index_;
};

TEST_F(PrefixIndexTest, SharesFullBlocksButNeverTheLastToken) {
  compute(iota(10));
  EXPECT_EQ(matched(iota(10)), 8);
  EXPECT_EQ(matched(iota(9)), 8);
  EXPECT_EQ(matched(iota(8)), 4) << "one token must be left to compute";
  EXPECT_EQ(matched(iota(5)), 4);
  EXPECT_EQ(matched(iota(4)), 0);
}

TEST_F(PrefixIndexTest, SharesOnlyTheCommonHead) {
  compute(iota(12));
  std::vector<int> other = iota(13);
  other[5] = 99;
  EXPECT_EQ(matched(other), 4);
  EXPECT_EQ(matched(iota(12, 4)), 0) << "the same block content below another head is another block";
}

TEST_F(PrefixIndexTest, KeepsSaltsApart) {
  compute(iota(12), /*salt=*/1);
  EXPECT_EQ(matched(iota(12), /*salt=*/2), 0);
  EXPECT_EQ(matched(iota(12), /*salt=*/1), 8);
}

TEST_F(PrefixIndexTest, PublishesOnlyWhatIsComputed) {
  Lists lists = empty_lists();
  for (int i = 0; i < 3; ++i) lists[0].append(std::move(*blocks_.allocate()));
  PrefixCursor cursor;
  index_.publish(0, iota(12), /*num_computed=*/7, lists, cursor);
  EXPECT_EQ(cursor.depth, 1);
  EXPECT_EQ(matched(iota(12)), 4);
  index_.publish(0, iota(12), /*num_computed=*/12, lists, cursor);
  EXPECT_EQ(matched(iota(13)), 12);
}

TEST_F(PrefixIndexTest, FirstBlockWithTheSameTokensStays) {
  const std::vector<BlockKey> first = compute(iota(8));
  const std::vector<BlockKey> second = compute(iota(12));
  EXPECT_TRUE(index_.contains(first[0]));
  EXPECT_FALSE(index_.contains(second[0]));
  EXPECT_TRUE(index_.contains(second[2])) << "it continues the chain of the indexed blocks";
  EXPECT_EQ(matched(iota(13)), 12);
  EXPECT_EQ(blocks_.num_cached(), 3);
}

TEST_F(PrefixIndexTest, F45_EvictingAMiddleBlockHidesItsChildren) {
  const std::vector<BlockKey> keys = compute(iota(12));
  blocks_.discard(keys[1]);
  EXPECT_EQ(matched(iota(13)), 4);
  EXPECT_EQ(num_valid(keys), 2) << "the child's content is there, but nothing leads to it";
  // Computed again, the middle block leads to it again: the content depends on the tokens alone.
  Lists lists = empty_lists();
  index_.match(0, iota(13), 12, lists);
  lists[0].append(std::move(*blocks_.allocate()));
  PrefixCursor cursor;
  index_.publish(0, iota(13), 8, lists, cursor);
  EXPECT_EQ(matched(iota(13)), 12);
}

TEST_F(PrefixIndexTest, F45_AReusedBlockLosesItsOldKey) {
  const std::vector<BlockKey> keys = compute(iota(12));
  std::vector<BlockHandle> all;
  while (auto handle = blocks_.allocate()) all.push_back(std::move(*handle));
  EXPECT_EQ(matched(iota(13)), 0);
  EXPECT_EQ(num_valid(keys), 0);
}

TEST_F(PrefixIndexTest, TheNumberOfNodesIsBounded) {
  for (int i = 0; i < 100; ++i) compute(iota(12, 1000 * i));
  EXPECT_EQ(index_.num_nodes(), 32);
  EXPECT_EQ(blocks_.num_free() + blocks_.num_cached(), blocks_.num_total());
  EXPECT_EQ(matched(iota(13, 99000)), 12);
  EXPECT_EQ(matched(iota(13, 0)), 0);
}

TEST_F(PrefixIndexTest, ANodeWithABlockIsNotForgotten) {
  Lists held = empty_lists();
  compute(iota(12));
  index_.match(0, iota(13), 12, held);
  for (int i = 1; i < 100; ++i) compute(iota(12, 1000 * i));
  EXPECT_EQ(matched(iota(13)), 12);
}

TEST_F(PrefixIndexTest, ForgetsWhatMayBeWrong) {
  const std::vector<BlockKey> keys = compute(iota(16));
  Lists held = empty_lists();
  index_.match(0, iota(13), 12, held);
  index_.forget(0, iota(16), /*first=*/1);
  EXPECT_EQ(matched(iota(17)), 4);
  EXPECT_EQ(num_valid(keys), 1);
  EXPECT_FALSE(blocks_.holds(keys[2])) << "not for those either who know the key";
  EXPECT_EQ(blocks_.num_free(), 13) << "the last one had no user";
  held[0].truncate(0);
  EXPECT_EQ(blocks_.num_free(), 15);
}

TEST_F(PrefixIndexTest, AHashCollisionIsAMissNeverAWrongBlock) {
  PrefixIndex colliding(blocks_, groups_, 32, /*hash_mask=*/0);
  Lists first = empty_lists(), second = empty_lists(), found = empty_lists();
  first[0].append(std::move(*blocks_.allocate()));
  second[0].append(std::move(*blocks_.allocate()));
  PrefixCursor cursor;
  colliding.publish(/*salt=*/1, iota(4), 4, first, cursor);
  colliding.match(1, iota(4, 50), 4, found);
  colliding.match(2, iota(4), 4, found);
  EXPECT_EQ(found[0].end(), 0) << "other tokens, other salt";
  colliding.match(1, concat(iota(4), iota(4)), 8, found);
  EXPECT_EQ(found[0].end(), 1) << "the second block has the same tokens and hash, but another parent";
  found[0].truncate(0);
  cursor = {};
  colliding.publish(1, iota(4, 50), 4, second, cursor);  // takes the place in the map
  EXPECT_EQ(colliding.num_nodes(), 1);
  EXPECT_FALSE(colliding.contains(first[0][0].key()));
  colliding.match(1, iota(4), 4, found);
  EXPECT_EQ(found[0].end(), 0);
  colliding.match(1, iota(4, 50), 4, found);
  ASSERT_EQ(found[0].end(), 1);
  EXPECT_EQ(found[0][0].key(), second[0][0].key());
}

TEST_F(PrefixIndexTest, ContinuesBehindTheBlocksThatASequenceHas) {
  const std::vector<BlockKey> keys = compute(iota(12));
  Lists lists = empty_lists();
  lists[0].append(std::move(*blocks_.acquire(keys[0])));
  index_.match(0, iota(13), 12, lists);
  ASSERT_EQ(lists[0].end(), 3);
  EXPECT_EQ(lists[0][2].key(), keys[2]);
  EXPECT_EQ(blocks_.use_count(keys[0].id), 1) << "not taken twice";
}

// Blocks of 4 tokens; after token 16 the window group needs tokens 11 to 15, blocks 2 and 3.
class WindowPrefixTest : public PrefixIndexTest {
 protected:
  WindowPrefixTest() : PrefixIndexTest({{}, {.window = 6}}, 16, 32) {}
};

TEST_F(WindowPrefixTest, NeedsOnlyTheLastWindowOfAWindowGroup) {
  const std::vector<BlockKey> keys = compute(iota(20));
  EXPECT_EQ(matched(iota(17)), 16);
  for (const size_t i : {0u, 1u}) blocks_.discard(keys[5 + i]);
  EXPECT_EQ(matched(iota(17)), 16) << "blocks before the window are not missed";
  Lists lists = empty_lists();
  index_.match(0, iota(17), 16, lists);
  EXPECT_EQ(lists[0].num_held(), 4);
  EXPECT_EQ(lists[1].first(), 2);
  EXPECT_EQ(lists[1][3].key(), keys[5 + 3]);
}

TEST_F(WindowPrefixTest, AShorterMatchWhereTheWindowOfTheLongestIsGone) {
  const std::vector<BlockKey> keys = compute(iota(20));
  blocks_.discard(keys[5 + 4]);
  EXPECT_EQ(matched(iota(21)), 16);
  blocks_.discard(keys[5 + 2]);
  EXPECT_EQ(matched(iota(21)), 8) << "12 and 16 need block 2";
  blocks_.discard(keys[1]);
  EXPECT_EQ(matched(iota(21)), 4) << "the full group needs all";
}

TEST_F(WindowPrefixTest, OwnBlocksCountAndThoseThatHavePassedAreLetGoOf) {
  const std::vector<BlockKey> keys = compute(iota(20));
  Lists lists = empty_lists();
  for (size_t group = 0; group < 2; ++group)
    for (size_t i = 0; i < 2; ++i) lists[group].append(std::move(*blocks_.acquire(keys[5 * group + i])));
  index_.match(0, iota(17), 16, lists);
  EXPECT_EQ(lists[0].end(), 4);
  EXPECT_EQ(lists[1].first(), 2);
  EXPECT_EQ(blocks_.num_used(), 6);
}

class WindowsOnlyPrefixTest : public PrefixIndexTest {
 protected:
  WindowsOnlyPrefixTest() : PrefixIndexTest({{.window = 6}, {.window = 9}}, 16, 100) {}
};

TEST_F(WindowsOnlyPrefixTest, AChainOutlivesItsFirstBlocks) {
  compute(iota(160));
  EXPECT_EQ(matched(iota(161)), 160);
  EXPECT_EQ(matched(iota(81)), 0) << "the blocks before are gone, and no shorter prefix has its window";
  compute(iota(160, 1000));
  EXPECT_EQ(matched(iota(161)), 0);
  EXPECT_EQ(matched(iota(161, 1000)), 160);
}

}  // namespace
}  // namespace lmdeploy
