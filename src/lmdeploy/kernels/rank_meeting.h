// Where the threads of ranks wait for each other.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace lmdeploy {

/// Meetings of all ranks, one after the other, in steps. Whoever waits longer than the timeout, or for a rank
/// that has left, ends the step: all calls of it throw MissingRank.
class RankMeeting {
 public:
  /// `what_to_try`: ends the message about a rank that does not come in time.
  RankMeeting(int64_t num_ranks, std::chrono::milliseconds timeout, std::string what_to_try = "")
      : timeout_(timeout), what_to_try_(std::move(what_to_try)), calls_(static_cast<size_t>(num_ranks)) {}

  int64_t num_ranks() const { return static_cast<int64_t>(calls_.size()); }
  std::chrono::milliseconds timeout() const { return timeout_; }
  const std::string& what_to_try() const { return what_to_try_; }
  /// While no rank meets.
  void begin_step(int64_t step);
  /// `rank` will not come, because of `why`.
  void leave(int64_t rank, const std::string& why);
  /// Returns when all ranks have called it as often in this step as this one. `op`: for what, for messages.
  void meet(int64_t rank, const char* op);

 private:
  bool all_here(int64_t calls) const;
  void wait(int64_t calls, int64_t rank, const char* op);
  std::string missing(int64_t calls) const;
  void end_step(std::string why);  // with mutex_

  const std::chrono::milliseconds timeout_;
  const std::string what_to_try_;
  std::vector<std::atomic<int64_t>> calls_;  // of meet(), by rank, in this step
  int64_t step_ = 0;
  std::atomic<bool> ended_ = false;  // the step, because of why_
  std::string why_;
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace lmdeploy
