// What is shared, what must not be.
#include "lmdeploy/engine/prefix_index.h"

#include <gtest/gtest.h>

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
  /// Computes and publishes `tokens`, as a sequence that ends then. Returns the keys of its full blocks.
  std::vector<BlockKey> compute(const std::vector<int>& tokens, uint64_t salt = 0) {
    BlockList list;
    const auto full = static_cast<int64_t>(tokens.size()) / kBlockLen;
    for (int64_t i = 0; i < full; ++i) list.append(std::move(*blocks_.allocate()));
    PrefixCursor cursor;
    index_.publish(salt, tokens, static_cast<int64_t>(tokens.size()), list, cursor);
    EXPECT_EQ(cursor.depth, full);
    std::vector<BlockKey> keys;
    for (int64_t i = 0; i < full; ++i) keys.push_back(list[i].key());
    return keys;
  }
  /// Tokens found when all but the last may be.
  int64_t matched(const std::vector<int>& tokens, uint64_t salt = 0) {
    BlockList list;
    index_.match(salt, tokens, static_cast<int64_t>(tokens.size()) - 1, list);
    return list.size() * kBlockLen;
  }

  BlockManager blocks_{16};
  PrefixIndex index_{blocks_, kBlockLen};
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
  BlockList list;
  for (int i = 0; i < 3; ++i) list.append(std::move(*blocks_.allocate()));
  PrefixCursor cursor;
  index_.publish(0, iota(12), /*num_computed=*/7, list, cursor);
  EXPECT_EQ(cursor.depth, 1);
  EXPECT_EQ(matched(iota(12)), 4);
  index_.publish(0, iota(12), /*num_computed=*/12, list, cursor);
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
  EXPECT_EQ(index_.num_valid(), 2) << "the child's content is there, but nothing leads to it";
  // Computed again, the middle block has a new unique id: the old child stays hidden and a new one replaces
  // it.
  BlockList list;
  index_.match(0, iota(13), 12, list);
  list.append(std::move(*blocks_.allocate()));
  PrefixCursor cursor;
  index_.publish(0, iota(13), 8, list, cursor);
  EXPECT_EQ(matched(iota(13)), 8);
}

TEST_F(PrefixIndexTest, F45_AReusedBlockLosesItsOldKey) {
  compute(iota(12));
  std::vector<BlockHandle> all;
  while (auto handle = blocks_.allocate()) all.push_back(std::move(*handle));
  EXPECT_EQ(matched(iota(13)), 0);
  EXPECT_EQ(index_.num_valid(), 0);
}

TEST_F(PrefixIndexTest, HasAtMostOneEntryABlock) {
  for (int i = 0; i < 100; ++i) compute(iota(12, 1000 * i));
  EXPECT_LE(index_.num_valid(), blocks_.num_total());
  EXPECT_EQ(blocks_.num_free() + blocks_.num_cached(), blocks_.num_total());
  EXPECT_EQ(matched(iota(13, 99000)), 12);
  EXPECT_EQ(matched(iota(13, 0)), 0);
}

TEST_F(PrefixIndexTest, AHashCollisionIsAMissNeverAWrongBlock) {
  PrefixIndex colliding(blocks_, kBlockLen, /*hash_mask=*/0);
  BlockList first, second, found;
  first.append(std::move(*blocks_.allocate()));
  second.append(std::move(*blocks_.allocate()));
  PrefixCursor cursor;
  colliding.publish(/*salt=*/1, iota(4), 4, first, cursor);
  colliding.match(1, iota(4, 50), 4, found);
  colliding.match(2, iota(4), 4, found);
  EXPECT_EQ(found.size(), 0) << "other tokens, other salt";
  colliding.match(1, concat(iota(4), iota(4)), 8, found);
  EXPECT_EQ(found.size(), 1) << "the second block has the same tokens and hash, but another parent";
  found.truncate(0);
  cursor = {};
  colliding.publish(1, iota(4, 50), 4, second, cursor);  // takes the place in the map
  EXPECT_FALSE(colliding.contains(first[0].key()));
  colliding.match(1, iota(4), 4, found);
  EXPECT_EQ(found.size(), 0);
  colliding.match(1, iota(4, 50), 4, found);
  ASSERT_EQ(found.size(), 1);
  EXPECT_EQ(found[0].key(), second[0].key());
}

TEST_F(PrefixIndexTest, ContinuesBehindTheBlocksThatASequenceHas) {
  const std::vector<BlockKey> keys = compute(iota(12));
  BlockList list;
  list.append(std::move(*blocks_.acquire(keys[0])));
  index_.match(0, iota(13), 12, list);
  ASSERT_EQ(list.size(), 3);
  EXPECT_EQ(list[2].key(), keys[2]);
  EXPECT_EQ(blocks_.use_count(keys[0].id), 1) << "not taken twice";
}

}  // namespace
}  // namespace lmdeploy
