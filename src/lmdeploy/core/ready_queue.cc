#include "lmdeploy/core/ready_queue.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "lmdeploy/core/error.h"

namespace lmdeploy {

ReadyQueue::~ReadyQueue() {
  if (fd_ >= 0) close(fd_);
}

size_t ReadyQueue::add_stream() {
  const std::lock_guard lock(mutex_);
  next_.push_back(kNotQueued);
  return next_.size() - 1;
}

void ReadyQueue::push(size_t stream_idx) {
  const std::lock_guard lock(mutex_);
  if (next_[stream_idx] != kNotQueued) return;
  next_[stream_idx] = kNone;
  if (first_ == kNone) {
    first_ = stream_idx;
    signal_fd();
  } else {
    next_[last_] = stream_idx;
  }
  last_ = stream_idx;
  ready_.notify_one();
}

std::optional<size_t> ReadyQueue::pop(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  if (!ready_.wait_for(lock, timeout, [&] { return first_ != kNone; })) return std::nullopt;
  const size_t stream_idx = first_;
  first_ = std::exchange(next_[stream_idx], kNotQueued);
  if (first_ == kNone) clear_fd();
  return stream_idx;
}

int ReadyQueue::fileno() {
  const std::lock_guard lock(mutex_);
  if (fd_ >= 0) return fd_;
  fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (fd_ < 0) throw Error(ErrorCode::kIo, cat("eventfd for an asynchronous answer: ", std::strerror(errno)));
  if (first_ != kNone) signal_fd();
  return fd_;
}

// The counter is only ever 0 or 1, so neither call can fail or block for a reason that matters.
void ReadyQueue::signal_fd() const {
  if (fd_ >= 0) static_cast<void>(eventfd_write(fd_, 1));
}

void ReadyQueue::clear_fd() const {
  eventfd_t count = 0;
  if (fd_ >= 0) static_cast<void>(eventfd_read(fd_, &count));
}

}  // namespace lmdeploy
