// Decides what each step computes: which sequences, how many tokens of each, in which blocks. No tensors.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "lmdeploy/engine/sequence.h"
#include "lmdeploy/engine/waiting_line.h"

namespace lmdeploy {

struct SchedulerConfig {
  int64_t max_batch_size = 0;
  int64_t max_prefill_token_num = 0;  // prompt tokens in one step, decode tokens on top
  int64_t num_tokens_per_iter = 0;    // prompt tokens that a step takes at least, while there are any
  int64_t max_prefill_iters = 1;      // steps over which waiting prompt tokens are spread
  int64_t max_logit_rows = 0;         // at least max_batch_size
};

/// Tokens [first, first + count) of one sequence; its blocks have room for them.
struct StepEntry {
  Sequence* sequence = nullptr;
  int64_t first = 0;
  int64_t count = 0;
  int64_t num_rows = 0;               // how many of the last tokens' logits are wanted
  bool completes = false;             // the last token is the sequence's last: its logits give the next one
  std::span<const int> guesses = {};  // computed after it, each with a row: the sequence's
};

struct StepPlan {
  std::vector<StepEntry> entries;    // decode tokens first, then pieces of prompts
  std::vector<Sequence*> too_large;  // need more blocks than the pool has; not scheduled any more
  bool empty() const { return entries.empty() && too_large.empty(); }
};

/// Oldest first: decode tokens of all running sequences, then prompts in order of arrival within the token
/// budget, then guesses from what is left. Each running sequence has room for its next token before a newer
/// one gets any, and a prompt chunk takes no more than what is left then. When blocks run out, the newest
/// sequence gives its blocks back and waits at the head of the line. So the oldest always gets on, however
/// few blocks there are, and nobody waits for a newer one. One thread.
class Scheduler {
 public:
  Scheduler(const SchedulerConfig& config, const BlockStore& store);

  /// Into the line, by order of arrival. The sequence must have a pending token and stay alive until
  /// remove().
  void add(Sequence& sequence);
  /// The sequence is not scheduled any more. It keeps the blocks it has.
  void remove(Sequence& sequence);
  /// A running sequence whose keys and values are to be computed anew, its blocks dropped: it waits as after
  /// preemption, and the others go on.
  void restart(Sequence& sequence);
  /// Valid until the next call.
  const StepPlan& plan();

  int64_t num_running() const { return static_cast<int64_t>(running_.size()); }
  int64_t num_waiting() const { return waiting_.size(); }
  int64_t num_preemptions() const { return num_preemptions_; }

 private:
  int64_t prefill_budget();
  void plan_decodes();
  void plan_prefills();
  void start_waiting();
  bool start(Sequence& sequence);
  bool grow(Sequence& sequence);
  void preempt_newest();
  void add_guesses();
  int64_t fit_guesses(Sequence& sequence, int64_t count);
  void schedule(Sequence& sequence, int64_t count);
  void schedule_chunk(Sequence& sequence);
  int64_t rows_of(const Sequence& sequence, int64_t count) const;
  int64_t fit_rows(const Sequence& sequence, int64_t count) const;
  int64_t fit_blocks(const Sequence& sequence, int64_t count) const;

  SchedulerConfig config_;
  BlockStore store_;
  std::vector<Sequence*> running_;  // in order of arrival
  WaitingLine waiting_;
  std::deque<int64_t> demands_;  // prompt tokens a step, as seen by the last max_prefill_iters steps
  StepPlan plan_;
  int64_t budget_left_ = 0;  // prompt tokens
  int64_t rows_left_ = 0;    // logit rows
  bool preempted_ = false;   // in this step
  int64_t num_preemptions_ = 0;
};

}  // namespace lmdeploy
