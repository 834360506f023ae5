// Reference counts, the three states, and the order in which cached blocks are given up.
#include "lmdeploy/engine/block_manager.h"

#include <gtest/gtest.h>

#include "lmdeploy/core/random.h"

namespace lmdeploy {
namespace {

BlockHandle take(BlockManager& manager) {
  std::optional<BlockHandle> handle = manager.allocate();
  EXPECT_TRUE(handle.has_value());
  return std::move(*handle);
}

TEST(BlockManager, GivesTheLowestFreeIdFirst) {
  BlockManager manager(4);
  BlockHandle a = take(manager), b = take(manager), c = take(manager);
  EXPECT_EQ(a.id(), 0);
  EXPECT_EQ(b.id(), 1);
  EXPECT_EQ(c.id(), 2);
  a = BlockHandle();
  EXPECT_EQ(take(manager).id(), 0);
  EXPECT_EQ(manager.num_free(), 2);
  EXPECT_EQ(manager.num_used(), 2);
  manager.check_invariants();
}

TEST(BlockManager, GivesNothingWhenAllAreUsed) {
  BlockManager manager(2);
  const BlockHandle a = take(manager), b = take(manager);
  EXPECT_FALSE(manager.allocate().has_value());
  manager.check_invariants();
}

// 0 and 1 pass out of a window, 2 and 3 are let go of before that; 1 has been found by somebody.
TEST(BlockManager, WhatHasPassedGoesFirstUnlessItWasFound) {
  BlockManager manager(4);
  BlockList list, other;
  for (BlockList* each : {&list, &list, &other, &other}) {
    each->append(take(manager));
    (*each)[each->end() - 1].set_keep(true);
  }
  const BlockKey keys[] = {list[0].key(), list[1].key(), other[0].key(), other[1].key()};
  other.truncate(0);  // 3, then 2
  manager.acquire(keys[1]);
  list[0].let_pass();
  list[1].let_pass();
  list.drop_before(2);
  EXPECT_EQ(list.first(), 2);
  EXPECT_EQ(manager.num_cached(), 4);
  manager.check_invariants();
  std::vector<BlockHandle> taken;
  for (const int gone : {0, 3, 2, 1}) {
    ASSERT_TRUE(manager.holds(keys[gone])) << gone;
    taken.push_back(take(manager));
    EXPECT_FALSE(manager.holds(keys[gone])) << gone;
    manager.check_invariants();
  }
}

TEST(BlockManager, ASharedBlockIsFreeAfterItsLastUser) {
  BlockManager manager(1);
  BlockHandle first = take(manager);
  {
    const std::optional<BlockHandle> second = manager.acquire(first.key());
    ASSERT_TRUE(second.has_value());
    EXPECT_EQ(manager.use_count(0), 2);
    EXPECT_TRUE(first.is_shared());
  }
  EXPECT_FALSE(first.is_shared());
  EXPECT_EQ(manager.num_used(), 1);
  first = BlockHandle();
  EXPECT_EQ(manager.num_free(), 1);
  manager.check_invariants();
}

TEST(BlockManager, KeptContentIsFoundUntilTheBlockIsNeeded) {
  BlockManager manager(1);
  BlockHandle handle = take(manager);
  const BlockKey key = handle.key();
  handle.set_keep(true);
  handle = BlockHandle();
  EXPECT_EQ(manager.num_cached(), 1);
  EXPECT_EQ(manager.num_free(), 0);
  handle = std::move(*manager.acquire(key));
  EXPECT_EQ(handle.key(), key);
  handle = BlockHandle();
  EXPECT_TRUE(manager.holds(key));
  handle = take(manager);  // the same block, other content
  EXPECT_EQ(handle.id(), key.id);
  EXPECT_NE(handle.key(), key);
  EXPECT_FALSE(manager.acquire(key).has_value());
  manager.check_invariants();
}

TEST(BlockManager, DiscardFreesOnlyThatContent) {
  BlockManager manager(1);
  BlockHandle handle = take(manager);
  const BlockKey key = handle.key();
  handle.set_keep(true);
  manager.discard(key);  // used: stays
  EXPECT_EQ(manager.num_used(), 1);
  handle = BlockHandle();
  manager.discard({key.id, key.unique_id + 1});
  EXPECT_EQ(manager.num_cached(), 1);
  manager.discard(key);
  EXPECT_EQ(manager.num_free(), 1);
  manager.check_invariants();
}

// Spec: a sequence is touched from its tail, so that the head is the most recent and the tail goes first.
TEST(BlockManager, EvictsTheTailOfTheOldestSequenceFirst) {
  BlockManager manager(6);
  std::vector<BlockKey> keys[2];
  for (auto& sequence_keys : keys) {
    BlockList list;
    for (int i = 0; i < 3; ++i) {
      list.append(take(manager));
      list[i].set_keep(true);
      sequence_keys.push_back(list[i].key());
    }
  }
  EXPECT_EQ(manager.num_cached(), 6);
  std::vector<BlockHandle> taken;
  for (const int sequence : {0, 1})
    for (const size_t i : {2u, 1u, 0u}) {
      taken.push_back(take(manager));
      EXPECT_EQ(taken.back().id(), keys[sequence][i].id) << sequence << ", " << i;
      manager.check_invariants();
    }
}

TEST(BlockList, LetsGoFromBothEnds) {
  BlockManager manager(8);
  BlockList list;
  for (int i = 0; i < 6; ++i) list.append(take(manager));
  list.drop_before(2);
  EXPECT_EQ(list.first(), 2);
  EXPECT_EQ(list.end(), 6);
  EXPECT_EQ(list[2].id(), 2);
  EXPECT_FALSE(list.has(1));
  list.drop_before(1);
  list.truncate(5);
  EXPECT_EQ(list.num_held(), 3);
  EXPECT_EQ(manager.num_used(), 3);
  list.drop_before(7);  // past the end: the next block is 7
  EXPECT_EQ(manager.num_used(), 0);
  list.append(take(manager));
  EXPECT_TRUE(list.has(7));
  list.truncate(3);
  EXPECT_EQ(list.first(), 3);
  EXPECT_EQ(list.end(), 3);
  EXPECT_EQ(manager.num_free(), 8);
}

TEST(BlockManager, PrivateAndSpoiledContentIsNotFoundByOldKeys) {
  BlockManager manager(1);
  BlockHandle handle = take(manager);
  handle.set_keep(true);
  const BlockKey before = handle.key();
  handle.make_private();
  EXPECT_FALSE(manager.holds(before));
  handle.set_keep(true);
  const BlockKey after = handle.key();
  manager.spoil(after);
  EXPECT_FALSE(manager.holds(after));
  handle = BlockHandle();
  EXPECT_EQ(manager.num_free(), 1) << "spoiled content is not kept";
  handle = take(manager);
  handle.set_keep(true);
  const BlockKey cached = handle.key();
  handle = BlockHandle();
  EXPECT_EQ(manager.num_cached(), 1);
  manager.spoil(cached);
  manager.spoil(cached);
  EXPECT_EQ(manager.num_free(), 1) << "nor is it where nobody holds it";
}

TEST(BlockManager, RandomTrafficKeepsTheBooks) {
  Rng rng(7);
  BlockManager manager(13);
  std::vector<BlockHandle> held;
  std::vector<BlockKey> seen;
  for (int step = 0; step < 5000; ++step) {
    switch (rng.below(4)) {
      case 0:
        if (auto handle = manager.allocate()) {
          handle->set_keep(rng.below(2) == 0);
          seen.push_back(handle->key());
          held.push_back(std::move(*handle));
        } else {
          EXPECT_EQ(manager.num_available(), 0);
        }
        break;
      case 1:
        if (!held.empty()) held.erase(held.begin() + static_cast<int64_t>(rng.below(held.size())));
        break;
      case 2:
        if (!seen.empty())
          if (auto handle = manager.acquire(seen[rng.below(seen.size())])) held.push_back(std::move(*handle));
        break;
      default:
        if (!seen.empty()) manager.discard(seen[rng.below(seen.size())]);
    }
    manager.check_invariants();
    EXPECT_EQ(manager.num_free() + manager.num_used() + manager.num_cached(), 13);
  }
}

}  // namespace
}  // namespace lmdeploy
