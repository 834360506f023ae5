// Which of many streams have something to read: filled by the engine thread, which never waits for a reader
// or for Python, and read by one waiting thread or through a file descriptor that an event loop watches.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

namespace lmdeploy::python {

class ReadyQueue {
 public:
  ReadyQueue() = default;
  ~ReadyQueue();
  ReadyQueue(const ReadyQueue&) = delete;
  ReadyQueue& operator=(const ReadyQueue&) = delete;

  /// Marks a stream as worth reading; once is enough until it is popped. Any thread.
  void push(size_t stream_idx);
  std::optional<size_t> pop(std::chrono::milliseconds timeout);
  /// A non-blocking eventfd that is readable while the queue holds something. Made at the first call. Throws
  /// Error(kIo).
  int fileno();

 private:
  void signal_fd() const;
  void clear_fd() const;

  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<size_t> queue_;
  std::vector<bool> queued_;  // by stream
  int fd_ = -1;
};

}  // namespace lmdeploy::python
