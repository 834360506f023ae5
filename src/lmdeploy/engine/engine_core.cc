// What happens to requests between steps.
#include "lmdeploy/engine/engine_core.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <span>

#include "lmdeploy/core/log.h"
#include "lmdeploy/models/rope.h"

namespace lmdeploy {
namespace {

bool only_reads(const Request& request) { return request.max_new_tokens == 0; }

// Sequence length at which the request ends.
int64_t max_length_of(const Request& request, int64_t prompt_end, int64_t session_len) {
  if (only_reads(request)) return prompt_end;
  const int64_t space = session_len - prompt_end;
  if (request.max_new_tokens < 0) return session_len;
  if (request.max_new_tokens > space)
    LMD_LOG(kWarning, "max_new_tokens ", request.max_new_tokens, " is clamped to ", space,
            ", what is left of session_len ", session_len);
  return prompt_end + std::min(request.max_new_tokens, space);
}

int64_t rows_from_of(const Request& request, int64_t prompt_begin) {
  const bool all = request.score_prompt || request.num_prompt_logprobs >= 0 ||
                   request.logits == OutputRows::kAll || request.hidden_states == OutputRows::kAll;
  return all ? prompt_begin : Sequence::kNoRows;
}

SchedulerConfig scheduler_config(const EngineConfig& config) {
  return {.max_batch_size = config.max_batch_size,
          .max_prefill_token_num = config.max_prefill_token_num,
          .num_tokens_per_iter = config.num_tokens_per_iter,
          .max_prefill_iters = config.max_prefill_iters,
          .max_logit_rows = config.max_logit_rows};
}

// Besides those that have blocks, of which the pool has num_blocks, the links of chains that lead to them: in
// window groups a chain is longer than the blocks that are kept of it.
int64_t max_index_nodes(const EngineConfig& config, const BlockGroups& groups) {
  constexpr int64_t kChains = 32;  // of session_len
  const bool has_full = groups.num_windows() < static_cast<int64_t>(groups.size());
  return 2 * config.num_blocks + (has_full ? 0 : kChains * groups.blocks_for(config.session_len));
}

}  // namespace

void check_length(const Request& request, int64_t history, int64_t session_len) {
  const auto prompt = static_cast<int64_t>(request.input_ids.size());
  const int64_t room = only_reads(request) ? session_len : session_len - 1;
  if (history + prompt <= room) return;
  throw Error(ErrorCode::kInvalidArgument,
              cat("prompt has ", prompt, " tokens",
                  history > 0 ? cat(" and the session ", history, " before it") : "", ", session holds ",
                  session_len, only_reads(request) ? "" : " and needs room for at least one new token",
                  ": shorten the prompt or raise session_len"));
}

EngineCore::EngineCore(Model& model, const Kernels& kernels, const EngineConfig& config, Model* draft_model)
    : model_(model),
      kernels_(kernels),
      config_(config),
      groups_(config.block_len, model.kv_groups()),
      pool_(model, model.kv_layout(config.kv_dtype, config.block_len), config.num_blocks, kernels),
      blocks_(config.num_blocks),
      index_(config.enable_prefix_caching
                 ? std::make_unique<PrefixIndex>(blocks_, groups_, max_index_nodes(config, groups_))
                 : nullptr),
      store_{blocks_, index_.get(), groups_},
      sessions_(config.max_sessions, store_),
      scheduler_(scheduler_config(config), store_),
      sampler_(kernels),
      logits_(kernels),
      speculator_(config, draft_model, kernels) {
  outputs_.reserve(64);
}

void EngineCore::count_first_step(ActiveRequest& active) {
  if (active.first_step_done) return;
  active.first_step_done = true;
  const auto prompt = static_cast<int64_t>(active.request.input_ids.size());
  counters_.prompt_tokens += prompt;
  if (index_ == nullptr) return;
  counters_.prefix_queried_tokens += prompt;
  counters_.prefix_hit_tokens += active.sequence->num_reused;
}

void EngineCore::carry_out(Commands& commands) {
  for (; !commands.empty(); commands.pop_front())
    std::visit([&](auto& command) { carry_out(command); }, commands.front());
}

void EngineCore::carry_out(SubmitCommand& command) {
  try {
    admit(command);
  } catch (const std::exception& error) {
    refuse(command, code_of(error), describe(error));
  }
}

void EngineCore::refuse(SubmitCommand& command, ErrorCode code, std::string message) {
  RequestOutput output;
  output.prompt_tokens = static_cast<int64_t>(command.request.input_ids.size());
  output.finish = FinishReason::kError;
  output.error_code = code;
  output.error_message = std::move(message);
  ++counters_.failed;
  give_out(std::move(command.channel), std::move(output));
}

void EngineCore::admit(SubmitCommand& command) {
  std::unique_ptr<ActiveRequest>& place = active_[command.id];
  try {
    place = std::make_unique<ActiveRequest>();
    place->id = command.id;
    place->times.enqueued = command.enqueued;
    place->sequence = open_sequence(command);
    append_prompt(*place->sequence, command.request);
    place->sequence->request_id = command.id;
    place->prompt_end = place->sequence->length();
    place->max_length = max_length_of(command.request, place->prompt_end, config_.session_len);
    scheduler_.add(*place->sequence);
  } catch (...) {
    if (place != nullptr && place->sequence != nullptr) {  // it is in the middle of something: gone
      drop_blocks(*place->sequence, store_);
      sessions_.erase(command.request.session_id);
    }
    active_.erase(command.id);
    throw;
  }
  place->request = std::move(command.request);
  place->channel = std::move(command.channel);
}

std::unique_ptr<Sequence> EngineCore::open_sequence(const SubmitCommand& command) {
  const Request& request = command.request;
  const uint64_t id = request.session_id;
  if (id == 0) {
    check_length(request, 0, config_.session_len);
    return std::make_unique<Sequence>();
  }
  if (sessions_.state(id) == SessionTable::State::kBusy)
    throw Error(ErrorCode::kBusy,
                cat("session ", id, " has a request that has not ended: wait for it or cancel it"));
  if (!request.sequence_start) return continue_session(command);
  check_length(request, 0, config_.session_len);
  auto sequence = std::make_unique<Sequence>();
  sequence->session_id = id;
  sessions_.erase(id);
  sessions_.open(id, command.id);
  return sequence;
}

// Nothing is changed when the request is refused.
std::unique_ptr<Sequence> EngineCore::continue_session(const SubmitCommand& command) {
  const Request& request = command.request;
  const uint64_t id = request.session_id;
  if (sessions_.state(id) == SessionTable::State::kUnknown)
    throw Error(ErrorCode::kNotFound,
                cat("session ", id,
                    " is not known: it was never started, has ended, or was forgotten because more"
                    " than ",
                    config_.max_sessions, " others have been used since; set sequence_start"));
  const int64_t held = sessions_.resting(id).length();
  if (request.step > held)
    LMD_LOG(kWarning, "session ", id, ": step ", request.step, " is ignored, it holds ", held, " tokens");
  const int64_t history = request.step < 0 ? held : std::min(request.step, held);
  check_length(request, history, config_.session_len);
  if (history == 0 && request.input_ids.empty())
    throw Error(ErrorCode::kInvalidArgument,
                cat("session ", id, ": input_ids is empty and so is the history"));
  std::unique_ptr<Sequence> sequence = sessions_.take(id, command.id);
  truncate(*sequence, history);
  return sequence;
}

void EngineCore::append_prompt(Sequence& sequence, const Request& request) {
  sequence.prompt_begin = sequence.length();
  sequence.rows_from = rows_from_of(request, sequence.prompt_begin);
  sequence.num_reused = -1;
  if (sequence.prompt_begin == 0) sequence.rope_length = static_cast<int32_t>(request.input_ids.size());
  sequence.tokens.insert(sequence.tokens.end(), request.input_ids.begin(), request.input_ids.end());
  sequence.prompt_end = sequence.length();
  choose_rope(sequence);
}

// Whether the sequence has come to a length that asks for another rope table: what was computed with the
// former one is dropped then.
bool EngineCore::choose_rope(Sequence& sequence) {
  const RopeSpec& rope = model_.spec().rope;
  const int64_t length = rope_length_at(rope, sequence.rope_length, sequence.length());
  const auto salt = static_cast<uint64_t>(rope_table_key(rope, length));
  sequence.rope_length = static_cast<int32_t>(length);
  if (salt == sequence.prefix_salt) return false;
  drop_blocks(sequence, store_);
  sequence.prefix_salt = salt;
  return true;
}

void EngineCore::carry_out(CancelCommand& command) {
  const auto found = active_.find(command.id);
  if (found != active_.end()) finish(*found->second, FinishReason::kAbort);
}

void EngineCore::carry_out(EndSessionCommand& command) {
  const auto running = active_.find(sessions_.request_of(command.session_id));
  if (running != active_.end()) {
    running->second->request.sequence_end = true;
    finish(*running->second, FinishReason::kAbort);
  } else {
    sessions_.erase(command.session_id);
  }
}

void EngineCore::finish(ActiveRequest& active, FinishReason reason) {
  const RequestOutput& said = active.output;
  const bool says_something = !said.token_ids.empty() || !said.prompt_logprobs.empty() ||
                              !said.logits.empty() || !said.hidden_states.empty();
  if (reason == FinishReason::kNone && !says_something) return;
  counters_.generated_tokens += static_cast<int64_t>(active.output.token_ids.size());
  RequestOutput output = active.take_output(reason);
  if (reason == FinishReason::kNone) {
    give_out(active.channel, std::move(output));
    return;
  }
  ++(reason == FinishReason::kAbort ? counters_.aborted : counters_.finished);
  retire(active, !active.request.sequence_end, std::move(output));
}

// The session is left as it was before the request, unless that was to be its last.
void EngineCore::fail(ActiveRequest& active, ErrorCode code, std::string message) {
  ++counters_.failed;
  Sequence& sequence = *active.sequence;
  spoil_blocks(sequence, store_);
  truncate(sequence, sequence.prompt_begin);
  active.output = {};
  RequestOutput output = active.take_output(FinishReason::kError);
  output.error_code = code;
  output.error_message = std::move(message);
  retire(active, !active.request.sequence_end && sequence.prompt_begin > 0, std::move(output));
}

void EngineCore::retire(ActiveRequest& active, bool keep_session, RequestOutput output) {
  Sequence& sequence = *active.sequence;
  sequence.guesses.clear();
  sequence.last_draw = Sequence::kKnown;
  scheduler_.remove(sequence);
  step_.forget(active);
  next_.forget(active);
  give_out(std::move(active.channel), std::move(output));
  if (keep_session) {
    try {
      rest(sequence, store_);
    } catch (const std::bad_alloc&) {
      drop_blocks(sequence, store_);  // the next turn computes them again
    }
    sessions_.put_back(std::move(active.sequence));
  } else {
    drop_blocks(sequence, store_);
    sessions_.erase(sequence.session_id);
  }
  active_.erase(active.id);
}

// Within the capacity that step() has seen to; without it, what there is goes out first.
void EngineCore::give_out(std::shared_ptr<Channel> channel, RequestOutput output) {
  if (outputs_.size() == outputs_.capacity()) deliver();
  if (output.finish != FinishReason::kNone) ++num_ended_;
  outputs_.emplace_back(std::move(channel), std::move(output));
}

void EngineCore::abort_all(Commands& commands) {
  carry_out(commands);
  while (!active_.empty()) finish(*active_.begin()->second, FinishReason::kAbort);
}

void EngineCore::fail_all(const std::exception& error, Commands& commands) {
  while (!active_.empty()) fail(*active_.begin()->second, code_of(error), describe(error));
  for (; !commands.empty(); commands.pop_front()) {
    auto* submit = std::get_if<SubmitCommand>(&commands.front());
    if (submit != nullptr && submit->channel != nullptr) refuse(*submit, code_of(error), describe(error));
    if (auto* end = std::get_if<EndSessionCommand>(&commands.front())) carry_out(*end);
  }
}

void EngineCore::deliver() {
  for (auto& [channel, output] : outputs_) channel->push(std::move(output));
  outputs_.clear();
}

EngineStats EngineCore::stats() const {
  EngineStats stats = counters_;
  stats.total_blocks = blocks_.num_total();
  stats.free_blocks = blocks_.num_free();
  stats.used_blocks = blocks_.num_used();
  stats.cached_blocks = blocks_.num_cached();
  stats.running = scheduler_.num_running();
  stats.waiting = scheduler_.num_waiting();
  stats.sessions = sessions_.size();
  stats.preemptions = scheduler_.num_preemptions();
  stats.speculative = speculator_.stats();
  return stats;
}

void EngineCore::check_invariants() const {
  blocks_.check_invariants();
  speculator_.check_invariants();
  std::vector<int32_t> owners(static_cast<size_t>(blocks_.num_total()), 0);
  for (const auto& [id, active] : active_) check_blocks(*active, owners);
  for (int32_t id = 0; id < blocks_.num_total(); ++id)
    LMD_CHECK(owners[static_cast<size_t>(id)] == blocks_.use_count(id), "block ", id);
}

void EngineCore::check_blocks(const ActiveRequest& active, std::vector<int32_t>& owners) const {
  const Sequence& sequence = *active.sequence;
  const int64_t chunk = next_.tokens_of(active);
  for (size_t group = 0; group < sequence.blocks.size(); ++group) {
    const BlockList& list = sequence.blocks[group];
    const int64_t most = groups_.most_held(group, sequence.length(), std::max<int64_t>(1, chunk));
    LMD_CHECK(list.first() == groups_.first_read(group, sequence.cache_len) &&
                  list.end() >= groups_.blocks_for(sequence.cache_len) && list.num_held() <= most,
              "request ", sequence.request_id, " holds blocks ", list.first(), " to ", list.end(),
              " of group ", group, " at token ", sequence.cache_len);
    for (int64_t i = list.first(); i < list.end(); ++i) {
      const BlockHandle& block = list[i];
      ++owners[static_cast<size_t>(block.id())];
      if ((i + 1) * config_.block_len <= sequence.cache_len) continue;
      LMD_CHECK(blocks_.use_count(block.id()) == 1 && !(index_ && index_->contains(block.key())), "block ",
                block.id(), " is to be written by request ", sequence.request_id, " but others can read it");
    }
  }
}

void EngineCore::scrub_free_blocks() {
  const KvCacheView cache = pool_.view();
  const int64_t bytes = cache.layout.block_bytes();
  const Tensor ones(DType::kU8, {bytes});
  std::memset(ones.view().data(), 0xff, ones.bytes());
  for (int32_t id = 0; id < cache.num_blocks; ++id)
    if (blocks_.is_free(id)) kernels_.copy_from_host({cache.data + id * bytes, DType::kU8, {bytes}}, ones);
}

}  // namespace lmdeploy
