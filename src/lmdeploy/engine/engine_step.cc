// One step: planned, given to the model, its tokens drawn and given to their requests.
#include <algorithm>
#include <chrono>
#include <span>

#include "lmdeploy/core/log.h"
#include "lmdeploy/engine/engine_core.h"
#include "lmdeploy/models/rope.h"

namespace lmdeploy {

bool EngineCore::step(Commands& commands, const std::function<void()>& meanwhile) {
  outputs_.reserve(outputs_.size() + active_.size() + commands.size());  // a step gives each at most one
  carry_out(commands);
  const auto begin = std::chrono::steady_clock::now();
  if (!next_.wanted()) start_next();
  if (!next_.planned) std::rethrow_exception(next_.error);
  std::swap(step_, next_);
  next_.clear();
  fail_too_large();
  if (step_.entries.empty()) return false;
  const bool called = run(meanwhile);
  learn_time(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  if (next_.error != nullptr && !next_.planned) std::rethrow_exception(next_.error);
  return called;
}

void EngineCore::fail_too_large() {
  for (size_t i = 0; i < step_.too_large.size(); ++i) {
    ActiveRequest* active = step_.too_large[i];
    if (active == nullptr) continue;
    const int64_t length = active->sequence->length();
    fail(*active, ErrorCode::kResourceExhausted,
         cat("a sequence of ", length, " tokens needs ", groups_.least_for(length), " blocks of ",
             config_.block_len, " tokens, the KV cache has ", config_.num_blocks));
  }
}

// Of those that decode in this step, if nothing comes between. What goes wrong leaves them without guesses.
void EngineCore::guess() {
  targets_.clear();
  for (const auto& [id, active] : active_) {
    Sequence& sequence = *active->sequence;
    sequence.guesses.clear();
    if (!speculator_.guesses() && active->request.grammar == nullptr) continue;
    if (active->num_generated == 0 || sequence.blocks.empty() || sequence.num_pending() != 1) continue;
    targets_.push_back(active->guess_target());
    int64_t& most = targets_.back().most;
    most = most_guesses(sequence, std::min(most, SpeculativeConfig::kMostTokens));
  }
  try {
    speculator_.guess(targets_);
  } catch (const std::exception& error) {
    LMD_LOG(kError, "guessing tokens of ", targets_.size(), " requests failed: ", describe(error));
    for (const GuessTarget& target : targets_) target.sequence->guesses.clear();
  }
}

// None where they would lead to another rope table.
int64_t EngineCore::most_guesses(const Sequence& sequence, int64_t wanted) const {
  return keeps_rope(sequence, wanted) ? wanted : 0;
}

// Whether the sequence reads the same rope table with so many tokens more.
bool EngineCore::keeps_rope(const Sequence& sequence, int64_t num_tokens) const {
  const RopeSpec& rope = model_.spec().rope;
  const int64_t length = rope_length_at(rope, sequence.rope_length, sequence.length() + num_tokens);
  return static_cast<uint64_t>(rope_table_key(rope, length)) == sequence.prefix_salt;
}

void EngineCore::learn_time(double seconds) {
  int64_t num_guesses = 0, num_accepted = 0;
  for (const StepDraw& draw : step_.draws) {
    if (draw.entry->count != 1 || !draw.entry->completes) return;  // reads a prompt
    num_guesses += static_cast<int64_t>(draw.entry->guesses.size());
    num_accepted += draw.num_accepted;
  }
  if (step_.draws.empty()) return;  // the step has failed
  speculator_.learn_time(static_cast<int64_t>(step_.entries.size()), num_guesses, num_accepted, seconds);
}

// Plans the next step and gives it to the model. What goes wrong is kept until it is its turn: the requests
// of the step before have nothing to do with it.
void EngineCore::start_next() {
  next_.clear();
  try {
    guess();
    plan_next();
    next_.planned = true;
    if (next_.entries.empty()) return;
    const StepInput input = buffers_.fill(next_.entries, groups_.size(), pool_.other_caches());
    const TensorView logits = model_.forward(input, pool_.view());
    logits_.set(logits, model_.hidden_states());
  } catch (const std::exception&) {
    next_.error = std::current_exception();
  }
}

void EngineCore::plan_next() {
  const auto now = std::chrono::steady_clock::now();
  const StepPlan& plan = scheduler_.plan();
  for (const Sequence* sequence : plan.too_large)
    next_.too_large.push_back(active_.at(sequence->request_id).get());
  int64_t num_tokens = 0;
  next_.entries = plan.entries;
  for (const StepEntry& entry : plan.entries) {
    ActiveRequest& active = *active_.at(entry.sequence->request_id);
    next_.requests.push_back(&active);
    num_tokens += entry.count;
    if (active.times.scheduled == RequestTimes::Time()) active.times.scheduled = now;
  }
  if (num_tokens > 0) counters_.step_tokens.add(num_tokens);
}

bool EngineCore::run(const std::function<void()>& meanwhile) {
  bool called = false;
  try {
    if (step_.error != nullptr) std::rethrow_exception(step_.error);
    if (meanwhile && kernels_.has_own_memory()) {
      meanwhile();
      called = true;
    }
    commit();
    ++counters_.steps;
    counters_.failed_steps_in_a_row = 0;
  } catch (const std::exception& error) {
    LMD_LOG(kError, "a step of ", step_.requests.size(), " requests failed: ", describe(error));
    if (code_of(error) != ErrorCode::kResourceExhausted) ++counters_.failed_steps_in_a_row;
    for (size_t i = 0; i < step_.requests.size(); ++i)
      if (ActiveRequest* active = step_.requests[i]) fail(*active, code_of(error), describe(error));
  }
  return called;
}

void EngineCore::commit() {
  int64_t row = 0;
  for (size_t i = 0; i < step_.entries.size(); ++i) {
    const StepEntry& entry = step_.entries[i];
    const int64_t first_row = row;
    row += entry.num_rows + static_cast<int64_t>(entry.guesses.size());
    ActiveRequest* active = step_.requests[i];
    if (active == nullptr) continue;
    count_first_step(*active);
    active->read_prompt_rows(entry, logits_, first_row);
    step_.draws.push_back({.active = active, .entry = &entry, .row = first_row + entry.num_rows - 1});
  }
  draw();
  for (const StepDraw& draw : step_.draws) settle(draw);
}

// One token of each entry, then the next one of those whose token was guessed, and so on: what is drawn, and
// from what, is the same as without guesses.
void EngineCore::draw() {
  open_.clear();
  for (StepDraw& draw : step_.draws)
    if (draw.entry->completes && draw.active->generates() && draw.active->failure.empty())
      open_.push_back(&draw);
  while (!open_.empty()) {
    samples_.clear();
    for (const StepDraw* draw : open_)
      samples_.push_back(draw->active->sample_input(draw->row + draw->count, logits_));
    sampler_.start(logits_, samples_);
    const bool ahead = may_go_ahead();
    if (ahead) go_ahead();
    const std::span<const SampleResult> results = sampler_.finish(ahead ? nullptr : &logits_);
    take_places_back();
    size_t next = 0;
    std::erase_if(open_, [&](StepDraw* draw) {
      const size_t i = next++;
      return !accept(*draw, results[i], samples_[i].row);
    });
  }
}

// Not where the host reads the logits or the outcome first, or where it may have to.
bool EngineCore::may_go_ahead() const {
  if (!model_.takes_drawn_tokens() || speculator_.guesses() || !sampler_.all_on_device()) return false;
  return std::ranges::all_of(step_.draws, [this](const StepDraw& draw) {
    const ActiveRequest& active = *draw.active;
    if (!draw.entry->completes) return active.failure.empty();
    return active.generates() && active.may_go_ahead() && keeps_rope(*active.sequence, 1);
  });
}

// The sequences as they will be if no request ends but for its length: a token that is not known yet has its
// place.
void EngineCore::go_ahead() {
  for (StepDraw& draw : step_.draws) {
    advance(*draw.entry->sequence, draw.entry->count, store_);
    draw.advanced = true;
  }
  for (size_t i = 0; i < open_.size(); ++i) {
    Sequence& sequence = *open_[i]->entry->sequence;
    if (sequence.length() + 1 >= open_[i]->active->max_length) {  // its blocks are free for the others
      scheduler_.remove(sequence);
      rest(sequence, store_);
      continue;
    }
    sequence.tokens.push_back(0);
    sequence.last_draw = static_cast<int32_t>(i);
    choose_rope(sequence);
  }
  start_next();
}

void EngineCore::take_places_back() {
  for (const StepDraw* draw : open_) {
    Sequence& sequence = *draw->entry->sequence;
    if (sequence.last_draw == Sequence::kKnown) continue;
    sequence.last_draw = Sequence::kKnown;
    sequence.tokens.pop_back();
  }
}

// Whether the token after this one can be drawn in this step too.
bool EngineCore::accept(StepDraw& draw, const SampleResult& result, int64_t row) {
  ActiveRequest& active = *draw.active;
  draw.again = result.again;
  if (draw.again) return false;
  if (active.failure.empty() && !result.error.empty()) {
    active.failure = result.error;
    active.failure_code = result.error_code;
  }
  if (!active.failure.empty()) return false;
  draw.reason = active.accept(result, logits_, row);
  const std::span<const int> guesses = draw.entry->guesses;
  const auto i = static_cast<size_t>(draw.count++);
  const bool guessed = i < guesses.size() && guesses[i] == result.token;
  if (guessed) ++draw.num_accepted;
  return guessed && active.failure.empty() && draw.reason == FinishReason::kNone;
}

void EngineCore::settle(const StepDraw& draw) {
  ActiveRequest& active = *draw.active;
  const StepEntry& entry = *draw.entry;
  if (draw.again) return compute_again(active);
  if (!active.failure.empty()) {
    if (draw.num_accepted > 0) finish(active, FinishReason::kNone);  // what came before
    fail(active, active.failure_code, std::move(active.failure));
    return;
  }
  // The keys of the last token drawn are computed in the next step, whether it was guessed or not.
  if (!draw.advanced) advance(*entry.sequence, entry.count + std::max<int64_t>(0, draw.count - 1), store_);
  if (!entry.guesses.empty()) {
    give_back_room(*entry.sequence, store_);
    speculator_.learn(active.guesses, entry.guesses, draw.count, draw.num_accepted);
  }
  FinishReason reason = draw.reason;
  if (entry.completes && !active.generates()) reason = FinishReason::kLength;
  if (reason == FinishReason::kNone && choose_rope(*entry.sequence)) scheduler_.restart(*entry.sequence);
  finish(active, reason);
}

// Its last row, as after a preemption, and the host draws from it.
void EngineCore::compute_again(ActiveRequest& active) {
  Sequence& sequence = *active.sequence;
  active.host_draws = true;
  next_.forget(active);
  scheduler_.remove(sequence);
  if (!sequence.blocks.empty()) rest(sequence, store_);
  scheduler_.add(sequence);
}

}  // namespace lmdeploy
