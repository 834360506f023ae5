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

void Scheduler::restart(Sequence& sequence) {
  LMD_CHECK(sequence.blocks.empty() && sequence.cache_len == 0, "sequence ", sequence.request_id);
  waiting_.insert(sequence);
  std::erase(running_, &sequence);
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
  add_guesses();
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
    if (grow(sequence) && sequence.num_pending() == 1) schedule(sequence, 1);
  }
}

void Scheduler::plan_prefills() {
  for (Sequence* sequence : running_)
    if (sequence->num_pending() > 1) schedule_chunk(*sequence);
}

// The head of the line waits for its blocks; nobody overtakes it. After a preemption nobody starts: the
// blocks just won are for those that run.
void Scheduler::start_waiting() {
  while (!waiting_.empty() && !preempted_ && budget_left_ > 0 && rows_left_ > 0 &&
         num_running() < config_.max_batch_size) {
    Sequence& sequence = waiting_.front();
    const bool fits = store_.groups.least_for(sequence.length()) <= store_.blocks.num_total();
    if (fits && !start(sequence)) return;
    waiting_.remove(sequence);
    if (!fits) {
      plan_.too_large.push_back(&sequence);
      continue;
    }
    running_.insert(std::ranges::upper_bound(running_, sequence.request_id, {}, &Sequence::request_id),
                    &sequence);
    schedule_chunk(sequence);
  }
}

// Takes the full groups' blocks for all tokens that the sequence has, so that sequences that are being read
// in do not take them from each other half-way.
bool Scheduler::start(Sequence& sequence) {
  take_blocks(sequence, store_);
  if (!take_room(sequence, 1, store_)) {
    rest(sequence, store_);
    return false;
  }
  if (sequence.num_reused < 0)
    sequence.num_reused = std::max<int64_t>(0, sequence.cache_len - sequence.prompt_begin);
  return true;
}

// Room for one more token; false when the sequence itself had to give way.
bool Scheduler::grow(Sequence& sequence) {
  while (!take_room(sequence, 1, store_)) {
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

// Nobody has less for them.
void Scheduler::add_guesses() {
  int64_t tokens_left = config_.max_prefill_token_num + config_.max_batch_size;
  for (const StepEntry& entry : plan_.entries) tokens_left -= entry.count;
  for (StepEntry& entry : plan_.entries) {
    const std::span<const int> guesses = entry.sequence->guesses;
    if (guesses.empty() || !entry.completes || entry.count != 1) continue;
    const int64_t wanted = std::min({static_cast<int64_t>(guesses.size()), tokens_left, rows_left_});
    const int64_t count = fit_guesses(*entry.sequence, wanted);
    entry.guesses = guesses.first(static_cast<size_t>(count));
    tokens_left -= count;
    rows_left_ -= count;
  }
}

// Where no new blocks can be had, those that fit into the ones that are there.
int64_t Scheduler::fit_guesses(Sequence& sequence, int64_t count) {
  if (take_room(sequence, 1 + count, store_)) return count;
  for (const BlockList& list : sequence.blocks)
    count = std::min(count, list.end() * store_.groups.block_len() - sequence.length());
  return count;
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

void Scheduler::schedule_chunk(Sequence& sequence) {
  const int64_t wanted = std::min(sequence.num_pending(), budget_left_);
  const int64_t count = fit_blocks(sequence, fit_rows(sequence, wanted));
  if (count == 0) return;
  LMD_CHECK(take_room(sequence, count, store_), count, " tokens of request ", sequence.request_id);
  budget_left_ -= count;
  schedule(sequence, count);
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

// The most tokens, up to `count`, that the window groups can have blocks for; there is room for one.
int64_t Scheduler::fit_blocks(const Sequence& sequence, int64_t count) const {
  if (store_.groups.num_windows() == 0) return count;
  const int64_t blocks = store_.groups.blocks_for(sequence.cache_len + 1) +
                         store_.blocks.num_available() / store_.groups.num_windows();
  return std::min(count, blocks * store_.groups.block_len() - sequence.cache_len);
}

}  // namespace lmdeploy
