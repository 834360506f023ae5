#include "lmdeploy/cli/terminal_mode.h"

namespace lmdeploy {

Utf8TerminalMode::Utf8TerminalMode(int fd) : fd_(fd) {
  if (::tcgetattr(fd_, &previous_) != 0 || (previous_.c_iflag & IUTF8) != 0) return;
  termios mode = previous_;
  mode.c_iflag |= IUTF8;
  changed_ = ::tcsetattr(fd_, TCSANOW, &mode) == 0;
}

Utf8TerminalMode::~Utf8TerminalMode() {
  if (changed_) ::tcsetattr(fd_, TCSANOW, &previous_);
}

}  // namespace lmdeploy
