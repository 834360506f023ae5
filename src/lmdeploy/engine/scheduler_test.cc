// Decisions alone: no model, no tensors. Sequences "compute" by moving cache_len.
#include "lmdeploy/engine/scheduler.h"

#include <gtest/gtest.h>

#include <memory>

namespace lmdeploy {
namespace {

constexpr int64_t kBlockLen = 4;

class SchedulerTest : public ::testing::Test {
 protected:
  void make(int64_t num_blocks, const SchedulerConfig& config, const std::vector<KvGroup>& groups = {{}}) {
    blocks_ = std::make_unique<BlockManager>(num_blocks);
    groups_ = std::make_unique<BlockGroups>(kBlockLen, groups);
    store_ = std::make_unique<BlockStore>(BlockStore{*blocks_, nullptr, *groups_});
    scheduler_ = std::make_unique<Scheduler>(config, *store_);
  }
  Sequence& add(int64_t num_tokens) {
    sequences_.push_back(std::make_unique<Sequence>());
    sequences_.back()->request_id = sequences_.size();
    sequences_.back()->tokens.assign(static_cast<size_t>(num_tokens), 1);
    scheduler_->add(*sequences_.back());
    return *sequences_.back();
  }
  /// Plans a step and carries it out: a sequence that completes gets one more token. Returns the counts by
  /// sequence, in the order of the plan.
  std::vector<std::pair<Sequence*, int64_t>> step() {
    std::vector<std::pair<Sequence*, int64_t>> done;
    for (const StepEntry& entry : scheduler_->plan().entries) {
      Sequence& s = *entry.sequence;
      EXPECT_EQ(entry.first, s.cache_len);
      for (const BlockList& list : s.blocks) EXPECT_GE(list.end() * kBlockLen, entry.first + entry.count);
      advance(s, entry.count, *store_);
      if (entry.completes) s.tokens.push_back(1);
      EXPECT_EQ(entry.completes, s.num_pending() == 1 && entry.num_rows > 0);
      done.emplace_back(&s, entry.count);
    }
    blocks_->check_invariants();
    return done;
  }
  using Done = std::vector<std::pair<Sequence*, int64_t>>;

  std::unique_ptr<BlockManager> blocks_;
  std::unique_ptr<BlockGroups> groups_;
  std::unique_ptr<BlockStore> store_;
  std::vector<std::unique_ptr<Sequence>> sequences_;  // let go of their blocks before the manager goes
  std::unique_ptr<Scheduler> scheduler_;
};

TEST_F(SchedulerTest, DecodesFirstThenPromptsInOrderOfArrivalWithinTheBudget) {
  make(100,
       {.max_batch_size = 8, .max_prefill_token_num = 10, .num_tokens_per_iter = 10, .max_logit_rows = 8});
  Sequence& a = add(3);
  EXPECT_EQ(step(), (Done{{&a, 3}}));
  Sequence& b = add(14);
  Sequence& c = add(5);
  EXPECT_EQ(step(), (Done{{&a, 1}, {&b, 10}}));
  EXPECT_EQ(step(), (Done{{&a, 1}, {&b, 4}, {&c, 5}}));
  EXPECT_EQ(step(), (Done{{&a, 1}, {&b, 1}, {&c, 1}}));
}

TEST_F(SchedulerTest, F81_SeveralPartialPromptsShareOneBudget) {
  make(1000,
       {.max_batch_size = 8, .max_prefill_token_num = 10, .num_tokens_per_iter = 10, .max_logit_rows = 8});
  Sequence& stream = add(1);
  step();
  for (int i = 0; i < 3; ++i) add(320);
  int64_t steps = 0;
  while (sequences_.back()->cache_len < 320) {
    int64_t prompt_tokens = 0;
    bool stream_ran = false;
    for (const auto& [sequence, count] : step()) {
      if (sequence == &stream) stream_ran = true;
      if (count > 1) prompt_tokens += count;
    }
    EXPECT_LE(prompt_tokens, 10);
    EXPECT_TRUE(stream_ran);
    ASSERT_LT(++steps, 200);
  }
  EXPECT_EQ(steps, 96) << "no budget is wasted, nobody starves";
}

TEST_F(SchedulerTest, SpreadsPromptsOverMaxPrefillIters) {
  make(1000, {.max_batch_size = 8,
              .max_prefill_token_num = 100,
              .num_tokens_per_iter = 8,
              .max_prefill_iters = 4,
              .max_logit_rows = 8});
  Sequence& a = add(201);  // 200 tokens before the last: 50 a step for 4 steps
  for (const int64_t want : {50, 50, 50, 50}) EXPECT_EQ(step(), (Done{{&a, want}}));
  EXPECT_EQ(step(), (Done{{&a, 1}}));
  scheduler_->remove(a);
  Sequence& b = add(6);
  Sequence& c = add(6);
  EXPECT_EQ(step(), (Done{{&b, 6}, {&c, 6}})) << "the demand of the last 4 steps is still honoured";
  scheduler_->remove(b);
  scheduler_->remove(c);
  for (int i = 0; i < 4; ++i) step();
  Sequence& d = add(9);
  EXPECT_EQ(step(), (Done{{&d, 8}})) << "num_tokens_per_iter is the least";
}

TEST_F(SchedulerTest, NeverMoreThanMaxBatchSize) {
  make(100,
       {.max_batch_size = 2, .max_prefill_token_num = 100, .num_tokens_per_iter = 100, .max_logit_rows = 8});
  Sequence& a = add(3);
  Sequence& b = add(3);
  Sequence& c = add(3);
  EXPECT_EQ(step(), (Done{{&a, 3}, {&b, 3}}));
  EXPECT_EQ(scheduler_->num_waiting(), 1);
  scheduler_->remove(a);
  EXPECT_EQ(step(), (Done{{&b, 1}, {&c, 3}}));
}

TEST_F(SchedulerTest, PreemptsTheNewestAndRequeuesItAtTheHead) {
  make(4,
       {.max_batch_size = 8, .max_prefill_token_num = 100, .num_tokens_per_iter = 100, .max_logit_rows = 8});
  Sequence& a = add(7);
  Sequence& b = add(7);
  Sequence& c = add(2);
  EXPECT_EQ(step(), (Done{{&a, 7}, {&b, 7}})) << "two blocks each";
  EXPECT_EQ(step(), (Done{{&a, 1}, {&b, 1}}));
  EXPECT_EQ(step(), (Done{{&a, 1}})) << "a needs a third block: b gives way, and nobody starts";
  EXPECT_EQ(scheduler_->num_preemptions(), 1);
  EXPECT_TRUE(b.blocks.empty());
  EXPECT_EQ(scheduler_->num_waiting(), 2);
  EXPECT_EQ(step(), (Done{{&a, 1}})) << "b is at the head and needs 3 blocks; c does not overtake it";
  scheduler_->remove(a);
  a.blocks.clear();
  EXPECT_EQ(step(), (Done{{&b, 5}, {&c, 2}})) << "the first of b's blocks survived, the second was taken";
}

TEST_F(SchedulerTest, ASequenceThatNeedsABlockWhenItIsTheNewestGivesWayItself) {
  make(3,
       {.max_batch_size = 8, .max_prefill_token_num = 100, .num_tokens_per_iter = 100, .max_logit_rows = 8});
  Sequence& a = add(5);
  Sequence& b = add(4);
  EXPECT_EQ(step(), (Done{{&a, 5}, {&b, 4}}));
  EXPECT_EQ(step(), (Done{{&a, 1}}));
  EXPECT_EQ(scheduler_->num_waiting(), 1);
}

TEST_F(SchedulerTest, NamesASequenceThatIsLargerThanThePool) {
  make(2,
       {.max_batch_size = 8, .max_prefill_token_num = 100, .num_tokens_per_iter = 100, .max_logit_rows = 8});
  Sequence& large = add(9);
  Sequence& small = add(8);
  const StepPlan& plan = scheduler_->plan();
  EXPECT_EQ(plan.too_large, std::vector<Sequence*>{&large});
  ASSERT_EQ(plan.entries.size(), 1u);
  EXPECT_EQ(plan.entries[0].sequence, &small);
  EXPECT_EQ(step().size(), 1u);
  EXPECT_EQ(scheduler_->plan().too_large, std::vector<Sequence*>{&small}) << "it has grown past the pool";
  EXPECT_EQ(scheduler_->num_running(), 0);
}

TEST_F(SchedulerTest, ChunksAreCutToTheLogitRowsOfAStep) {
  make(100,
       {.max_batch_size = 4, .max_prefill_token_num = 100, .num_tokens_per_iter = 100, .max_logit_rows = 6});
  Sequence& plain = add(3);
  step();
  Sequence& scored = add(12);
  scored.rows_from = 4;
  Sequence& late = add(2);
  StepPlan plan = scheduler_->plan();
  ASSERT_EQ(plan.entries.size(), 2u);
  EXPECT_EQ(plan.entries[0].sequence, &plain);
  EXPECT_EQ(plan.entries[1].count, 9) << "4 without rows, 5 with";
  EXPECT_EQ(plan.entries[1].num_rows, 5);
  EXPECT_FALSE(plan.entries[1].completes);
  advance(scored, 9, *store_);
  advance(plain, 1, *store_);
  plain.tokens.push_back(1);
  scored.rows_from = 9;
  plan = scheduler_->plan();
  ASSERT_EQ(plan.entries.size(), 3u);
  EXPECT_EQ(plan.entries[1].num_rows, 3);
  EXPECT_TRUE(plan.entries[1].completes);
  EXPECT_EQ(plan.entries[2].sequence, &late);
  EXPECT_EQ(plan.entries[2].num_rows, 1);
}

TEST_F(SchedulerTest, AWindowGroupTakesItsBlocksChunkByChunk) {
  for (const int64_t chunk : {1, 3, 4, 7, 64}) {
    make(1000,
         {.max_batch_size = 8,
          .max_prefill_token_num = chunk,
          .num_tokens_per_iter = chunk,
          .max_logit_rows = 8},
         {{.window = 16}, {}});
    Sequence& s = add(500);
    while (s.cache_len < 500) {
      scheduler_->plan();
      EXPECT_EQ(s.blocks[1].num_held(), 125) << "a full group's come at once";
      EXPECT_LE(s.blocks[0].num_held(), (16 + chunk + 3) / 4 + 1);
      advance(s, std::min(chunk, 500 - s.cache_len), *store_);
      EXPECT_LE(s.blocks[0].num_held(), 5);
    }
    sequences_.clear();
    EXPECT_EQ(blocks_->num_free(), 1000);
  }
}

TEST_F(SchedulerTest, AChunkIsCutToTheBlocksThatAreThere) {
  make(6,
       {.max_batch_size = 8, .max_prefill_token_num = 100, .num_tokens_per_iter = 100, .max_logit_rows = 8},
       {{.window = 8}});
  Sequence& a = add(60);
  for (const int64_t want : {24, 16, 16, 4}) EXPECT_EQ(step(), (Done{{&a, want}}));
}

TEST_F(SchedulerTest, PromptsDoNotBlockEachOtherHalfWay) {
  make(7, {.max_batch_size = 8, .max_prefill_token_num = 9, .num_tokens_per_iter = 9, .max_logit_rows = 8},
       {{.window = 12}, {.window = 3}});
  for (int i = 0; i < 5; ++i) add(100);
  for (int i = 0; i < 5000 && scheduler_->num_running() + scheduler_->num_waiting() > 0; ++i) {
    ASSERT_FALSE(step().empty()) << "somebody gets on";
    for (const auto& sequence : sequences_) {
      if (sequence->length() < 110 || sequence->blocks.empty()) continue;
      scheduler_->remove(*sequence);
      drop_blocks(*sequence, *store_);
    }
  }
  for (const auto& sequence : sequences_) EXPECT_EQ(sequence->length(), 110);
  EXPECT_EQ(blocks_->num_free(), 7);
}

TEST_F(SchedulerTest, OnlyWhatAWindowHoldsCountsForTooLarge) {
  const SchedulerConfig config = {
      .max_batch_size = 8, .max_prefill_token_num = 100, .num_tokens_per_iter = 100, .max_logit_rows = 8};
  make(5, config, {{.window = 16}});
  add(1000);
  EXPECT_TRUE(scheduler_->plan().too_large.empty());
  sequences_.clear();
  make(4, config, {{.window = 16}});
  Sequence& large = add(17);
  EXPECT_EQ(scheduler_->plan().too_large, std::vector<Sequence*>{&large});
}

TEST_F(SchedulerTest, ARestartedSequenceKeepsItsPlaceInTheOrderOfArrival) {
  make(100,
       {.max_batch_size = 8, .max_prefill_token_num = 10, .num_tokens_per_iter = 10, .max_logit_rows = 8});
  Sequence& a = add(3);
  Sequence& b = add(3);
  EXPECT_EQ(step(), (Done{{&a, 3}, {&b, 3}}));
  drop_blocks(a, *store_);
  scheduler_->restart(a);
  EXPECT_EQ(step(), (Done{{&b, 1}, {&a, 4}}));
  EXPECT_EQ(step(), (Done{{&a, 1}, {&b, 1}}));
  EXPECT_EQ(scheduler_->num_preemptions(), 0);
}

}  // namespace
}  // namespace lmdeploy
