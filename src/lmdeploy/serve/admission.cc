#include "lmdeploy/serve/admission.h"

#include <algorithm>

#include "lmdeploy/serve/api_error.h"

namespace lmdeploy {

http::Task<Admission::Place> Admission::enter(http::Exchange& exchange) {
  const std::shared_ptr<Waiter> waiter = enter_or_queue();
  if (waiter == nullptr) co_return Place(*this);
  const auto timeout = limits_.timeout.count() > 0 ? std::optional(limits_.timeout) : std::nullopt;
  bool gone = false;
  try {
    co_await exchange.wait(waiter->signal, timeout);
  } catch (const http::ClientGone&) {
    gone = true;
  }
  const bool admitted = leave_queue(waiter);
  if (admitted && !gone) co_return Place(*this);
  if (admitted) leave();
  if (gone) throw http::ClientGone();
  throw ApiError(
      {503,
       cat("the request waited ", limits_.timeout.count(), " ms for its turn, the most this server allows"),
       {},
       "queue_timeout",
       1});
}

std::shared_ptr<Admission::Waiter> Admission::enter_or_queue() {
  const std::lock_guard lock(mutex_);
  if (limits_.max_running <= 0 || counts_.running < limits_.max_running) {
    ++counts_.running;
    return nullptr;
  }
  if (limits_.max_waiting > 0 && static_cast<int64_t>(queue_.size()) >= limits_.max_waiting) {
    ++counts_.refused;
    throw ApiError(
        {503,
         cat("the server is busy: ", counts_.running, " requests run and ", queue_.size(), " wait"),
         {},
         "queue_full",
         1});
  }
  queue_.push_back(std::make_shared<Waiter>(Waiter{}));
  return queue_.back();
}

bool Admission::leave_queue(const std::shared_ptr<Waiter>& waiter) {
  const std::lock_guard lock(mutex_);
  if (!waiter->admitted) {
    std::erase(queue_, waiter);
    ++counts_.given_up;
  }
  return waiter->admitted;
}

void Admission::leave() {
  const std::lock_guard lock(mutex_);
  if (queue_.empty()) {
    --counts_.running;
    return;
  }
  queue_.front()->admitted = true;  // the place passes on
  queue_.front()->signal.set();
  queue_.pop_front();
}

Admission::Counts Admission::counts() const {
  const std::lock_guard lock(mutex_);
  Counts counts = counts_;
  counts.waiting = static_cast<int64_t>(queue_.size());
  return counts;
}

}  // namespace lmdeploy
