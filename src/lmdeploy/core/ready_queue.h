// Which of many streams have something to read: filled by the engine thread, which never waits for a reader
// or for Python, and read by one waiting thread or through a file descriptor that an event loop watches.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <optional>
#include <vector>

namespace lmdeploy {

class ReadyQueue {
 public:
  ReadyQueue() = default;
  ~ReadyQueue();
  ReadyQueue(const ReadyQueue&) = delete;
  ReadyQueue& operator=(const ReadyQueue&) = delete;

  /// Makes room for one more stream; the first has index 0. Any thread.
  size_t add_stream();
  /// Marks a stream as worth reading; once is enough until it is popped. Any thread. Needs no memory.
  void push(size_t stream_idx);
  std::optional<size_t> pop(std::chrono::milliseconds timeout);
  /// A non-blocking eventfd that is readable while the queue holds something. Made at the first call. Throws
  /// Error(kIo).
  int fileno();

 private:
  void signal_fd() const;
  void clear_fd() const;

  static constexpr size_t kNone = static_cast<size_t>(-1);
  static constexpr size_t kNotQueued = static_cast<size_t>(-2);

  std::mutex mutex_;
  std::condition_variable ready_;
  std::vector<size_t> next_;  // by stream: the one queued behind it, kNone for the last, or kNotQueued
  size_t first_ = kNone, last_ = kNone;
  int fd_ = -1;
};

}  // namespace lmdeploy
