#include "lmdeploy/cli/terminal_mode.h"

#include <sys/ioctl.h>
#include <unistd.h>

namespace lmdeploy {

int terminal_columns(int fd) {
  if (::isatty(fd) == 0) return 0;
  winsize size{};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

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
