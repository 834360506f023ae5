// Commands on their way to the engine thread.
#pragma once

#include <condition_variable>
#include <mutex>

#include "lmdeploy/engine/engine_core.h"

namespace lmdeploy {

/// Any number of writers, one reader that sleeps while there is nothing to do. Thread-safe.
class Inbox {
 public:
  enum class Submitted { kAccepted, kFull, kClosed };

  /// `max_unfinished`: 0 for no limit.
  explicit Inbox(int64_t max_unfinished) : max_unfinished_(max_unfinished) {}

  /// Takes the SubmitCommand that is alone in `command`, and numbers it: the number is its request's id.
  Submitted submit(Commands& command, uint64_t& id);
  /// Takes all of `commands`; they are dropped once the inbox is closed. Needs no memory.
  void push(Commands& commands);
  /// `count` requests have ended.
  void ended(int64_t count);
  void close();
  bool closed();
  /// All commands since the last call, in order; waits for one unless `busy` or closed.
  Commands drain(bool busy);

 private:
  const int64_t max_unfinished_;
  std::mutex mutex_;
  std::condition_variable wake_;
  Commands commands_;
  uint64_t last_id_ = 0;
  int64_t unfinished_ = 0;  // requests submitted that have not ended
  bool closed_ = false;
};

}  // namespace lmdeploy
