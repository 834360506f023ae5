#include "bindings/ready_queue.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "lmdeploy/core/error.h"

namespace lmdeploy::python {

ReadyQueue::~ReadyQueue() {
  if (fd_ >= 0) close(fd_);
}

void ReadyQueue::push(size_t stream_idx) {
  const std::lock_guard lock(mutex_);
  if (stream_idx >= queued_.size()) queued_.resize(stream_idx + 1);
  if (queued_[stream_idx]) return;
  queued_[stream_idx] = true;
  queue_.push_back(stream_idx);
  if (queue_.size() == 1) signal_fd();
  ready_.notify_one();
}

std::optional<size_t> ReadyQueue::pop(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  if (!ready_.wait_for(lock, timeout, [&] { return !queue_.empty(); })) return std::nullopt;
  const size_t stream_idx = queue_.front();
  queue_.pop_front();
  queued_[stream_idx] = false;
  if (queue_.empty()) clear_fd();
  return stream_idx;
}

int ReadyQueue::fileno() {
  const std::lock_guard lock(mutex_);
  if (fd_ >= 0) return fd_;
  fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (fd_ < 0) throw Error(ErrorCode::kIo, cat("eventfd for an asynchronous answer: ", std::strerror(errno)));
  if (!queue_.empty()) signal_fd();
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

}  // namespace lmdeploy::python
