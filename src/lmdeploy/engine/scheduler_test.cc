// Decisions alone: no model, no tensors. Sequences "compute" by moving cache_len.
#include "lmdeploy/engine/scheduler.h"

#include <gtest/gtest.h>

#include <memory>

namespace lmdeploy {
namespace {

constexpr int64_t kBlockLen = 4;

class SchedulerTest : public ::testing::Test {
 protected:
  void make(int64_t num_blocks, const SchedulerConfig& config) {
    blocks_ = std::make_unique<BlockManager>(num_blocks);
    scheduler_ = std::make_unique<Scheduler>(config, BlockStore{*blocks_, nullptr, kBlockLen});
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
      EXPECT_GE(s.blocks.size() * kBlockLen, entry.first + entry.count);
      s.cache_len += entry.count;
      if (entry.completes) s.tokens.push_back(1);
      EXPECT_EQ(entry.completes, s.num_pending() == 1 && entry.num_rows > 0);
      done.emplace_back(&s, entry.count);
    }
    blocks_->check_invariants();
    return done;
  }
  using Done = std::vector<std::pair<Sequence*, int64_t>>;

  std::unique_ptr<BlockManager> blocks_;
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
  EXPECT_EQ(b.blocks.size(), 0);
  EXPECT_EQ(scheduler_->num_waiting(), 2);
  EXPECT_EQ(step(), (Done{{&a, 1}})) << "b is at the head and needs 3 blocks; c does not overtake it";
  scheduler_->remove(a);
  a.blocks.truncate(0);
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
  scored.cache_len += 9;
  plain.cache_len += 1;
  plain.tokens.push_back(1);
  scored.rows_from = 9;
  plan = scheduler_->plan();
  ASSERT_EQ(plan.entries.size(), 3u);
  EXPECT_EQ(plan.entries[1].num_rows, 3);
  EXPECT_TRUE(plan.entries[1].completes);
  EXPECT_EQ(plan.entries[2].sequence, &late);
  EXPECT_EQ(plan.entries[2].num_rows, 1);
}

}  // namespace
}  // namespace lmdeploy
