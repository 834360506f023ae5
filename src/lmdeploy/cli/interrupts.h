// Ctrl-C as something to wait for.
#pragma once

#include <csignal>

namespace lmdeploy {

/// While it lives, SIGINT does not end the program but becomes pending here, whichever thread it reaches. One
/// at a time.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  /// Readable while an interrupt is pending: for poll().
  int fd() const { return pipe_[0]; }
  /// Whether one came since the last call; it is used up.
  bool take();

 private:
  int pipe_[2];
  struct sigaction previous_ {};
};

}  // namespace lmdeploy
