// Something done again and again on a thread of its own.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace lmdeploy {

/// Calls `action` after each `interval`, until it is destroyed.
class Every {
 public:
  Every(std::chrono::milliseconds interval, std::function<void()> action)
      : thread_([this, interval, action = std::move(action)] {
          std::unique_lock lock(mutex_);
          while (!wake_.wait_for(lock, interval, [&] { return stopping_; })) {
            lock.unlock();
            action();
            lock.lock();
          }
        }) {}
  ~Every() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }
  Every(const Every&) = delete;
  Every& operator=(const Every&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;  // last: runs on all of the above
};

}  // namespace lmdeploy
