// Requests that go through the whole engine together, timed.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "lmdeploy/bench/measure.h"
#include "lmdeploy/pipeline/loaded_model.h"
#include "lmdeploy/pipeline/streams.h"

namespace lmdeploy {

/// One thread reads them all.
class EngineRun {
 public:
  /// Starts `batch` requests of one prompt; ends are not honoured. `loaded` must outlive the run.
  EngineRun(const LoadedModel& loaded, int64_t batch, std::span<const int> prompt, int64_t new_tokens);

  /// Throws Error when a request fails.
  void read_to_end();
  /// Generated so far.
  int64_t tokens() const { return generated() - generated_before_; }
  /// Tokens a second from the moment when all requests had one, to the end. Where the engine was done before
  /// that could be noted, from the beginning.
  double decode_rate() const;

 private:
  int64_t generated() const { return engine_.stats().generated_tokens; }
  /// On the engine's thread, between two steps: the reader may be late.
  void note_first_token();

  Engine& engine_;
  std::mutex mutex_;
  int64_t num_waiting_;
  const int64_t generated_before_;
  int64_t generated_at_start_ = 0;
  const Clock::time_point submitted_ = Clock::now();
  Clock::time_point all_started_, end_;
  std::vector<std::unique_ptr<EngineStream>> streams_;  // last: they call back
};

}  // namespace lmdeploy
