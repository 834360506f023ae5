// How many requests run at once, how many wait and for how long, and who is next.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lmdeploy/http/exchange.h"
#include "lmdeploy/serve/qos/qos_scheduler.h"

namespace lmdeploy {

struct AdmissionLimits {
  int64_t max_running = 0;               // 0: no limit
  int64_t max_waiting = 0;               // 0: no limit; with quotas: of each group
  std::chrono::milliseconds timeout{0};  // of waiting; 0: none
};

/// Requests pass in the order they came, or in that of the users' quotas. Thread-safe.
class Admission {
 public:
  explicit Admission(const AdmissionLimits& limits, const std::optional<QosConfig>& quotas = std::nullopt);

  /// A place; it is given back with the object.
  class Place {
   public:
    Place(Admission& admission, uint64_t request) : admission_(&admission), request_(request) {}
    Place(Place&& other) noexcept
        : admission_(std::exchange(other.admission_, nullptr)), request_(other.request_) {}
    Place& operator=(Place&&) = delete;
    ~Place() {
      if (admission_ != nullptr) admission_->leave(request_);
    }

   private:
    Admission* admission_;
    uint64_t request_;
  };

  /// `user` and how many answers the request gives count where there are quotas. Throws ApiError 503 when too
  /// many wait already or the time is up, 400 for a user of no group, http::ClientGone when the client leaves
  /// the queue, http::ServerEnds.
  http::Task<Place> enter(http::Exchange& exchange, std::string user = {}, int64_t num_answers = 1);

  bool has_quotas() const { return has_quotas_; }

  struct Counts {
    int64_t running = 0, waiting = 0, refused = 0, given_up = 0;  // the last two: so far
  };
  Counts counts() const;
  /// Of each group that has quotas.
  std::vector<QosGroupCounts> group_counts() const;

 private:
  struct Waiter {
    http::Signal signal;
    bool admitted = false;
  };
  using Waiters = std::map<uint64_t, std::shared_ptr<Waiter>>;

  std::pair<uint64_t, std::shared_ptr<Waiter>> enqueue(const std::string& user, int64_t num_answers);
  /// Whether the request was admitted after all.
  bool leave_queue(uint64_t request);
  void leave(uint64_t request);
  /// Hands out free places. Under the lock.
  void admit();

  const bool has_quotas_;
  const std::chrono::milliseconds timeout_;
  mutable std::mutex mutex_;
  QosScheduler scheduler_;
  Waiters waiting_;
  uint64_t last_request_ = 0;
  int64_t num_refused_ = 0, num_given_up_ = 0;
};

}  // namespace lmdeploy
