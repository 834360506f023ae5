#include "lmdeploy/cli/interrupts.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

std::atomic<int> write_end{-1};  // lock-free, so that the handler may read it

void on_interrupt(int) {
  const int saved_errno = errno;
  const char byte = 0;
  // A full pipe means that interrupts are pending already.
  [[maybe_unused]] const ssize_t written = ::write(write_end.load(), &byte, 1);
  errno = saved_errno;
}

}  // namespace

Interrupts::Interrupts() {
  if (::pipe2(pipe_, O_NONBLOCK | O_CLOEXEC) != 0)
    throw Error(ErrorCode::kIo, cat("cannot make a pipe for Ctrl-C: ", std::strerror(errno)));
  write_end = pipe_[1];
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  ::sigaction(SIGINT, &action, &previous_);
}

Interrupts::~Interrupts() {
  ::sigaction(SIGINT, &previous_, nullptr);
  write_end = -1;
  ::close(pipe_[0]);
  ::close(pipe_[1]);
}

bool Interrupts::take() {
  char bytes[64];
  bool any = false;
  while (::read(pipe_[0], bytes, sizeof(bytes)) > 0) any = true;
  return any;
}

}  // namespace lmdeploy
