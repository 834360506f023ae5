// The token budget, admission, and what happens when blocks run out.
#include "lmdeploy/engine/scheduler.h"

#include <algorithm>
#include <utility>

#include "lmdeploy/core/error.h"

namespace lmdeploy {

Scheduler::Scheduler(const SchedulerConfig& config, const BlockStore& store)
    : config_(config), store_(store) {}

void Scheduler::add(Sequence& sequence) { waiting_.insert(sequence); }

void Scheduler::remove(Sequence& sequence) {
  if (!waiting_.remove(sequence)) std::erase(running_, &sequence);
}

const StepPlan& Scheduler::plan() {
  plan_.entries.clear();
  plan_.too_large.clear();
  preempted_ = false;
  budget_left_ = prefill_budget();
  rows_left_ = config_.max_logit_rows;
  plan_decodes();
  plan_prefills();
  start_waiting();
  return plan_;
}

// All prompt tokens known now should be done within max_prefill_iters steps: each of those steps takes its
// share, also when the following steps see a smaller rest. The result never exceeds max_prefill_token_num in
// total.
int64_t Scheduler::prefill_budget() {
  int64_t pending = waiting_.prompt_tokens();
  for (const Sequence* sequence : running_) pending += sequence->num_pending() - 1;
  demands_.push_back((pending + config_.max_prefill_iters - 1) / config_.max_prefill_iters);
  if (static_cast<int64_t>(demands_.size()) > config_.max_prefill_iters) demands_.pop_front();
  const int64_t demand = *std::ranges::max_element(demands_);
  return std::min(std::max(demand, config_.num_tokens_per_iter), config_.max_prefill_token_num);
}

void Scheduler::plan_decodes() {
  for (size_t i = 0; i < running_.size(); ++i) {  // preemption shortens the list from its end
    Sequence& sequence = *running_[i];
    if (sequence.num_pending() == 1 && grow(sequence)) schedule(sequence, 1);
  }
}

void Scheduler::plan_prefills() {
  for (Sequence* sequence : running_) {
    if (sequence->num_pending() == 1) continue;
    const int64_t count = fit_rows(*sequence, std::min(sequence->num_pending(), budget_left_));
    budget_left_ -= count;
    if (count > 0) schedule(*sequence, count);
  }
}

// The head of the line waits for its blocks; nobody overtakes it. After a preemption nobody starts: the
// blocks just won are for those that run.
void Scheduler::start_waiting() {
  while (!waiting_.empty() && !preempted_ && budget_left_ > 0 && rows_left_ > 0 &&
         num_running() < config_.max_batch_size) {
    Sequence& sequence = waiting_.front();
    if (!start(sequence)) {
      if (!running_.empty() || store_.blocks_for(sequence.length()) <= store_.blocks.num_total()) return;
      plan_.too_large.push_back(&sequence);
      waiting_.remove(sequence);
      continue;
    }
    waiting_.remove(sequence);
    running_.push_back(&sequence);
    const int64_t count = fit_rows(sequence, std::min(sequence.num_pending(), budget_left_));
    budget_left_ -= count;
    if (count > 0) schedule(sequence, count);
  }
}

// Takes blocks for all tokens that the sequence has, so that sequences that are being read in never block
// each other half-way.
bool Scheduler::start(Sequence& sequence) {
  take_blocks(sequence, store_);
  const int64_t missing = store_.blocks_for(sequence.length()) - sequence.blocks.size();
  if (missing > store_.blocks.num_available()) {
    rest(sequence, store_);
    return false;
  }
  for (int64_t i = 0; i < missing; ++i) sequence.blocks.append(std::move(*store_.blocks.allocate()));
  if (sequence.num_reused < 0)
    sequence.num_reused = std::max<int64_t>(0, sequence.cache_len - sequence.prompt_begin);
  return true;
}

// Room for one more token; false when the sequence itself had to give way.
bool Scheduler::grow(Sequence& sequence) {
  while (store_.blocks_for(sequence.length()) > sequence.blocks.size()) {
    std::optional<BlockHandle> block = store_.blocks.allocate();
    if (block) {
      sequence.blocks.append(std::move(*block));
      continue;
    }
    const bool itself = running_.back() == &sequence;
    if (itself && num_running() == 1) {
      plan_.too_large.push_back(&sequence);
      running_.clear();
      return false;
    }
    preempt_newest();
    if (itself) return false;
  }
  return true;
}

void Scheduler::preempt_newest() {
  Sequence* newest = running_.back();
  running_.pop_back();
  rest(*newest, store_);
  waiting_.insert(*newest);
  preempted_ = true;
  ++num_preemptions_;
}

void Scheduler::schedule(Sequence& sequence, int64_t count) {
  const int64_t rows = rows_of(sequence, count);
  rows_left_ -= rows;
  LMD_CHECK(rows_left_ >= 0, rows, " logit rows too many");
  plan_.entries.push_back({.sequence = &sequence,
                           .first = sequence.cache_len,
                           .count = count,
                           .num_rows = rows,
                           .completes = count == sequence.num_pending()});
}

int64_t Scheduler::rows_of(const Sequence& sequence, int64_t count) const {
  const int64_t end = sequence.cache_len + count;
  const int64_t wanted = end - std::min(end, std::max(sequence.rows_from, sequence.cache_len));
  return end == sequence.length() ? std::max<int64_t>(wanted, 1) : wanted;
}

// The most tokens, up to `count`, whose logit rows still fit into the step.
int64_t Scheduler::fit_rows(const Sequence& sequence, int64_t count) const {
  const int64_t before_rows = std::max<int64_t>(0, sequence.rows_from - sequence.cache_len);
  if (count > before_rows) count = before_rows + std::min(count - before_rows, rows_left_);
  if (rows_of(sequence, count) > rows_left_) --count;  // the last token's row does not fit
  return count;
}

}  // namespace lmdeploy
