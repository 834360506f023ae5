#include "lmdeploy/cli/stop_signals.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "lmdeploy/core/error.h"

namespace lmdeploy {

StopSignals::StopSignals(int tied_file) : tied_fd_(tied_file) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, &previous_);
  signal_fd_ = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  event_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (signal_fd_ < 0 || event_fd_ < 0)
    throw Error(ErrorCode::kIo, "no file handle is left to wait for signals");
}

StopSignals::~StopSignals() {
  close(signal_fd_);
  close(event_fd_);
  pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
}

int StopSignals::wait() {
  pollfd files[3] = {{signal_fd_, POLLIN, 0}, {event_fd_, POLLIN, 0}, {tied_fd_, 0, 0}};  // fd -1: ignored
  while (::poll(files, 3, -1) < 0 && errno == EINTR) {
  }
  signalfd_siginfo info{};
  const bool has_signal = ::read(signal_fd_, &info, sizeof(info)) == sizeof(info);
  if (has_signal || files[2].revents != 0) {
    tied_fd_ = -1;  // who sends a signal and then ends has not sent two
    return has_signal ? static_cast<int>(info.ssi_signo) : SIGTERM;
  }
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t size = ::read(event_fd_, &count, sizeof(count));
  return 0;
}

void StopSignals::wake() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t size = ::write(event_fd_, &one, sizeof(one));
}

}  // namespace lmdeploy
