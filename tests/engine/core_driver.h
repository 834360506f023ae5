// Drives an EngineCore step by step, without a thread, and checks its books after each one.
#pragma once

#include <memory>
#include <vector>

#include "lmdeploy/engine/engine.h"
#include "lmdeploy/engine/engine_core.h"

namespace lmdeploy::testing {

/// One request and what has come of it so far.
struct Client {
  uint64_t id = 0;
  std::shared_ptr<Channel> channel = std::make_shared<Channel>();
  RequestOutput output;  // all outputs, merged
  bool done() const { return output.finish != FinishReason::kNone; }
};

class CoreDriver {
 public:
  CoreDriver(Model& model, const EngineConfig& config, Model* draft_model = nullptr);
  /// With a back end of the caller's, which outlives the driver.
  CoreDriver(Model& model, const EngineConfig& config, const Kernels& kernels);

  std::shared_ptr<Client> submit(Request request);
  void cancel(const Client& client) { commands_.emplace_back(CancelCommand{client.id}); }
  void end_session(uint64_t session_id) { commands_.emplace_back(EndSessionCommand{session_id}); }
  /// One step; outputs go to their clients.
  void step();
  /// Until all clients are done; fails the test after `max_steps`.
  void run(int64_t max_steps = 100000);
  /// submit() and run(); the merged output.
  RequestOutput complete(Request request);

  EngineStats stats() const { return core_.stats(); }
  const EngineConfig& config() const { return config_; }
  bool has_work() const { return core_.has_work() || !commands_.empty(); }

 private:
  std::unique_ptr<Kernels> kernels_;  // nullptr: the caller's
  EngineConfig config_;
  EngineCore core_;
  Commands commands_;
  std::vector<std::shared_ptr<Client>> clients_;  // not done
  uint64_t last_id_ = 0;
};

/// A config with small numbers: blocks of 4 tokens, 64 of them for each group of layers, 8 sequences of 256
/// tokens.
EngineConfig small_config(int64_t num_groups = 1);
/// The same with so many guesses in each step, whatever they cost; of a draft model where the driver gets
/// one.
EngineConfig guessing(EngineConfig config, int64_t num_tokens,
                      SpeculativeMethod method = SpeculativeMethod::kPromptLookup);
/// A greedy request of its own.
Request request_of(std::vector<int> input_ids, int64_t max_new_tokens);
/// As request_of(), in a session that is kept.
Request turn_of(uint64_t session_id, std::vector<int> input_ids, int64_t max_new_tokens, bool start);
/// `count` ids below 60 that depend on `seed`.
std::vector<int> random_ids(uint64_t seed, int64_t count);
/// All ids that the request gives; its error, if it ends with one, fails the test.
std::vector<int> read_all(RequestHandle& handle);
std::vector<int> concat(std::vector<int> a, const std::vector<int>& b);

}  // namespace lmdeploy::testing
