// Being asked to end, by a signal or from within, as something to wait for.
#pragma once

#include <csignal>
#include <optional>

namespace lmdeploy {

/// While it lives, SIGINT and SIGTERM do not end the program but wait to be taken here. Made before other
/// threads are: they inherit that. One at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// Waits for a signal, and gives its number, or for wake(): then 0.
  int wait();
  /// Any thread.
  void wake() const;

 private:
  sigset_t previous_{};
  int signal_fd_ = -1, event_fd_ = -1;
};

}  // namespace lmdeploy
