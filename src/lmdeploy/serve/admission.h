// How many requests run at once, how many wait, and for how long.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

#include "lmdeploy/http/exchange.h"

namespace lmdeploy {

struct AdmissionLimits {
  int64_t max_running = 0;               // 0: no limit
  int64_t max_waiting = 0;               // 0: no limit
  std::chrono::milliseconds timeout{0};  // of waiting; 0: none
};

/// Requests pass in the order they came. Thread-safe.
class Admission {
 public:
  explicit Admission(AdmissionLimits limits) : limits_(limits) {}

  /// A place; it is given back with the object.
  class Place {
   public:
    explicit Place(Admission& admission) : admission_(&admission) {}
    Place(Place&& other) noexcept : admission_(std::exchange(other.admission_, nullptr)) {}
    Place& operator=(Place&&) = delete;
    ~Place() {
      if (admission_ != nullptr) admission_->leave();
    }

   private:
    Admission* admission_;
  };

  /// Throws ApiError 503 when too many wait already or the time is up, http::ClientGone when the client
  /// leaves the queue.
  http::Task<Place> enter(http::Exchange& exchange);

  struct Counts {
    int64_t running = 0, waiting = 0, refused = 0, given_up = 0;  // the last two: so far
  };
  Counts counts() const;

 private:
  struct Waiter {
    http::Signal signal;
    bool admitted = false;
  };

  /// nullptr: there was a place.
  std::shared_ptr<Waiter> enter_or_queue();
  /// Whether the waiter was admitted after all.
  bool leave_queue(const std::shared_ptr<Waiter>& waiter);
  void leave();

  const AdmissionLimits limits_;
  mutable std::mutex mutex_;
  std::deque<std::shared_ptr<Waiter>> queue_;
  Counts counts_;
};

}  // namespace lmdeploy
