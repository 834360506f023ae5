// Ctrl-C, and what happens to the terminal, as something to wait for.
#pragma once

#include <array>
#include <csignal>

namespace lmdeploy {

/// While it lives, SIGINT does not end the program but becomes pending here, whichever thread it reaches. So
/// do SIGCONT and SIGWINCH. One at a time.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  /// Readable while a signal is pending, until take(): for poll().
  int fd() const { return pipe_[0]; }
  /// Whether Ctrl-C came since the last call; it is used up.
  bool take();
  /// Likewise: the program was stopped (Ctrl-Z) and runs again.
  bool take_continue();
  /// Likewise: the terminal has another size.
  bool take_resize();

 private:
  static constexpr std::array kSignals = {SIGINT, SIGCONT, SIGWINCH};

  int pipe_[2];
  std::array<struct sigaction, kSignals.size()> previous_{};
};

}  // namespace lmdeploy
