// Being asked to end, by a signal or from within, as something to wait for.
#pragma once

#include <csignal>
#include <optional>

namespace lmdeploy {

/// While it lives, SIGINT and SIGTERM do not end the program but wait to be taken here. Made before other
/// threads are: they inherit that. One at a time.
class StopSignals {
 public:
  /// `tied_file`: of a pipe or socket; once nobody can write to it any more, that is a SIGTERM, unless a
  /// signal has come before. -1: none.
  explicit StopSignals(int tied_file = -1);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// Waits for a signal, and gives its number, or for wake(): then 0.
  int wait();
  /// Any thread.
  void wake() const;

 private:
  sigset_t previous_{};
  int signal_fd_ = -1, event_fd_ = -1, tied_fd_;
};

}  // namespace lmdeploy
