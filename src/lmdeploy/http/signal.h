// Wakes one coroutine from any thread: the bridge from the engine's callbacks to a handler.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "lmdeploy/http/task.h"

namespace lmdeploy::http {

/// Copies share one state, so that a callback can keep one, also longer than the server lives. Set before
/// wait() is as good as set during it; what is set twice before a wait() counts once.
class Signal {
 public:
  Signal();

  /// Any thread; never blocks for long.
  void set() const;
  /// One waiter at a time. false: `timeout` passed first.
  Task<bool> wait(std::optional<std::chrono::milliseconds> timeout = std::nullopt) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace lmdeploy::http
