// The engine without its thread: commands in, one step, outputs out. Owns all sequences, sessions and blocks.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "lmdeploy/engine/active_request.h"
#include "lmdeploy/engine/engine.h"
#include "lmdeploy/engine/engine_step.h"
#include "lmdeploy/engine/kv_pool.h"
#include "lmdeploy/engine/scheduler.h"
#include "lmdeploy/engine/session_table.h"
#include "lmdeploy/engine/speculator.h"
#include "lmdeploy/engine/step_buffers.h"
#include "lmdeploy/engine/step_logits.h"
#include "lmdeploy/engine/step_sampler.h"

namespace lmdeploy {

struct SubmitCommand {
  uint64_t id = 0;  // rises from command to command
  Request request;  // has passed check_request()
  std::shared_ptr<Channel> channel;
  RequestTimes::Time enqueued = {};
};
struct CancelCommand {
  uint64_t id = 0;  // unknown or ended: ignored
};
struct EndSessionCommand {
  uint64_t session_id = 0;
};
using Command = std::variant<SubmitCommand, CancelCommand, EndSessionCommand>;
/// A list, so that passing commands on needs no memory.
using Commands = std::list<Command>;

/// `history` tokens of the session and `prompt` more must fit into it, with one to spare for a request that
/// generates. Throws Error(kInvalidArgument) with both numbers.
void check_length(const Request& request, int64_t history, int64_t session_len);

/// One thread.
///
/// Where a device computes and draws, it is given the next step before the tokens of this one are known: the
/// sequences are planned as if all went on, and the step takes their tokens from the draws. What it computes
/// of a request that ends with this step's token is not looked at. All that a device does is done in order,
/// so that blocks can be given back while it still works on them.
class EngineCore {
 public:
  /// `config` as resolve_config() gives it. Models and kernels must outlive the core.
  EngineCore(Model& model, const Kernels& kernels, const EngineConfig& config, Model* draft_model = nullptr);

  /// Takes the commands out of the list and carries them out in order, then computes one step. Does not throw
  /// for anything that a request, the model or the sampler does: the requests concerned end with kError. What
  /// it throws (memory ran out between requests, say) is for fail_all(). Where a device computes,
  /// `meanwhile` is called while it does; returns whether it was.
  bool step(Commands& commands, const std::function<void()>& meanwhile = {});
  bool has_work() const { return !active_.empty(); }
  /// Ends everything that runs or waits or comes with `commands`.
  void abort_all(Commands& commands);
  /// The same after `error`, without asking for memory.
  void fail_all(const std::exception& error, Commands& commands);
  /// Hands the outputs since the last call to their channels.
  void deliver();
  /// How many requests have ended since the last call.
  int64_t take_num_ended() { return std::exchange(num_ended_, 0); }
  EngineStats stats() const;
  /// Aborts unless all blocks are accounted for and no block that will be written to has a second owner.
  void check_invariants() const;
  /// For tests: fills all free blocks with ones. Nobody may notice.
  void scrub_free_blocks();

 private:
  void carry_out(Commands& commands);
  void carry_out(SubmitCommand& command);
  void carry_out(CancelCommand& command);
  void carry_out(EndSessionCommand& command);
  void admit(SubmitCommand& command);
  std::unique_ptr<Sequence> open_sequence(const SubmitCommand& command);
  std::unique_ptr<Sequence> continue_session(const SubmitCommand& command);
  void append_prompt(Sequence& sequence, const Request& request);
  bool choose_rope(Sequence& sequence);

  // engine_step.cc
  void guess();
  int64_t most_guesses(const Sequence& sequence, int64_t wanted) const;
  bool keeps_rope(const Sequence& sequence, int64_t num_tokens) const;
  void start_next();
  void plan_next();
  void fail_too_large();
  bool run(const std::function<void()>& meanwhile);
  void commit();
  void draw();
  bool may_go_ahead() const;
  void go_ahead();
  void take_places_back();
  bool accept(StepDraw& draw, const SampleResult& result, int64_t row);
  void settle(const StepDraw& draw);
  void compute_again(ActiveRequest& active);
  void learn_time(double seconds);
  void count_first_step(ActiveRequest& active);
  void finish(ActiveRequest& active, FinishReason reason);
  void fail(ActiveRequest& active, ErrorCode code, std::string message);
  void refuse(SubmitCommand& command, ErrorCode code, std::string message);
  void retire(ActiveRequest& active, bool keep_session, RequestOutput output);
  void check_blocks(const ActiveRequest& active, std::vector<int32_t>& owners) const;
  void give_out(std::shared_ptr<Channel> channel, RequestOutput output);

  Model& model_;
  const Kernels& kernels_;
  EngineConfig config_;
  BlockGroups groups_;
  KvPool pool_;
  BlockManager blocks_;
  std::unique_ptr<PrefixIndex> index_;  // nullptr: prefix caching is off
  BlockStore store_;
  SessionTable sessions_;
  Scheduler scheduler_;
  StepSampler sampler_;
  StepBuffers buffers_;
  StepLogits logits_;  // of this step
  Speculator speculator_;
  std::map<uint64_t, std::unique_ptr<ActiveRequest>> active_;  // by id
  std::vector<GuessTarget> targets_;                           // of the step that is being planned
  EngineStep step_, next_;            // whose tokens are being drawn; which is on its way
  std::vector<StepDraw*> open_;       // of step_, whose next token is to be drawn
  std::vector<SampleInput> samples_;  // of open_
  std::vector<std::pair<std::shared_ptr<Channel>, RequestOutput>> outputs_;  // not delivered yet
  int64_t num_ended_ = 0;
  EngineStats counters_;  // totals only; gauges are read when asked for
};

}  // namespace lmdeploy
