// What the terminal is like, and a mode in which it knows that characters may have several bytes.
#pragma once

#include <termios.h>

namespace lmdeploy {

/// Columns of the terminal `fd`, 80 where it does not say; 0 for anything but a terminal.
int terminal_columns(int fd);

/// While it lives, the terminal's own line editing (for what is typed ahead, and where libedit is not used)
/// removes whole UTF-8 characters. Does nothing for files and pipes.
class Utf8TerminalMode {
 public:
  explicit Utf8TerminalMode(int fd);
  ~Utf8TerminalMode();
  Utf8TerminalMode(const Utf8TerminalMode&) = delete;
  Utf8TerminalMode& operator=(const Utf8TerminalMode&) = delete;

 private:
  int fd_;
  bool changed_ = false;
  termios previous_{};
};

}  // namespace lmdeploy
