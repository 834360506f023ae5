#include "lmdeploy/cli/interrupts.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

// Lock-free, so that the handler may use them.
std::atomic<int> write_end{-1};
std::atomic<bool> interrupted{false}, continued{false}, resized{false};

void on_signal(int number) {
  const int saved_errno = errno;
  (number == SIGINT ? interrupted : number == SIGCONT ? continued : resized) = true;
  const char byte = 0;  // wakes poll(); a full pipe does so too
  [[maybe_unused]] const ssize_t written = ::write(write_end.load(), &byte, 1);
  errno = saved_errno;
}

}  // namespace

Interrupts::Interrupts() {
  if (::pipe2(pipe_, O_NONBLOCK | O_CLOEXEC) != 0)
    throw Error(ErrorCode::kIo, cat("cannot make a pipe for Ctrl-C: ", std::strerror(errno)));
  write_end = pipe_[1];
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &action, &previous_[i]);
}

Interrupts::~Interrupts() {
  for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &previous_[i], nullptr);
  write_end = -1;
  ::close(pipe_[0]);
  ::close(pipe_[1]);
}

bool Interrupts::take() {
  // The handler sets its flag before it writes: what comes after this loop keeps the pipe readable.
  char bytes[64];
  while (::read(pipe_[0], bytes, sizeof(bytes)) > 0) {
  }
  return interrupted.exchange(false);
}

bool Interrupts::take_continue() { return continued.exchange(false); }

bool Interrupts::take_resize() { return resized.exchange(false); }

}  // namespace lmdeploy
