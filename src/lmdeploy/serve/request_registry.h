// Which requests run, by the session id that clients know them by: ids are used once at a time, and can be
// aborted.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "lmdeploy/http/signal.h"

namespace lmdeploy {

/// Asks a request to stop, from any thread.
class AbortSwitch {
 public:
  explicit AbortSwitch(http::Signal signal) : signal_(std::move(signal)) {}
  void set() {
    is_set_ = true;
    signal_.set();
  }
  bool is_set() const { return is_set_; }

 private:
  http::Signal signal_;  // wakes the request's handler
  std::atomic<bool> is_set_ = false;
};

/// Thread-safe.
class RequestRegistry {
 public:
  /// While it lives the id is taken.
  class Entry {
   public:
    Entry(RequestRegistry& registry, int64_t id, std::shared_ptr<AbortSwitch> abort)
        : registry_(&registry), id_(id), abort_(std::move(abort)) {}
    Entry(Entry&& other) noexcept
        : registry_(std::exchange(other.registry_, nullptr)),
          id_(other.id_),
          abort_(std::move(other.abort_)) {}
    Entry& operator=(Entry&&) = delete;
    ~Entry() {
      if (registry_ != nullptr) registry_->remove(id_);
    }
    int64_t id() const { return id_; }
    const std::shared_ptr<AbortSwitch>& abort_switch() const { return abort_; }

   private:
    RequestRegistry* registry_;
    int64_t id_;
    std::shared_ptr<AbortSwitch> abort_;
  };

  /// `session_id` -1: the next free one. `signal` is set when the request is aborted. Throws ApiError 400 for
  /// an id in use.
  Entry add(int64_t session_id, const http::Signal& signal);
  /// Whether there was one.
  bool abort(int64_t session_id);
  void abort_all();

 private:
  void remove(int64_t id);

  std::mutex mutex_;
  int64_t next_id_ = int64_t{1} << 41;  // above those of clients and of kept conversations
  std::map<int64_t, std::shared_ptr<AbortSwitch>> running_;
};

}  // namespace lmdeploy
