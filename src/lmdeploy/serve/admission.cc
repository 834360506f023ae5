#include "lmdeploy/serve/admission.h"

#include "lmdeploy/serve/api_error.h"

namespace lmdeploy {
namespace {

/// Without quotas all are one user.
QosConfig policy(const std::optional<QosConfig>& quotas) { return quotas ? *quotas : QosConfig{false, {}}; }

}  // namespace

Admission::Admission(const AdmissionLimits& limits, const std::optional<QosConfig>& quotas)
    : has_quotas_(quotas && quotas->enabled),
      timeout_(limits.timeout),
      scheduler_(policy(quotas), {limits.max_running, limits.max_waiting}) {}

http::Task<Admission::Place> Admission::enter(http::Exchange& exchange, std::string user,
                                              int64_t num_answers) {
  const auto [request, waiter] = enqueue(user, num_answers);
  const auto timeout = timeout_.count() > 0 ? std::optional(timeout_) : std::nullopt;
  std::exception_ptr gone;
  try {
    co_await exchange.wait(waiter->signal, timeout);
  } catch (...) {
    gone = std::current_exception();
  }
  const bool admitted = leave_queue(request);
  if (admitted && !gone) co_return Place(*this, request);
  if (admitted) leave(request);
  if (gone) std::rethrow_exception(gone);
  throw ApiError(
      {503,
       cat("the request waited ", timeout_.count(), " ms for its turn, the most this server allows"),
       {},
       "queue_timeout",
       1});
}

std::pair<uint64_t, std::shared_ptr<Admission::Waiter>> Admission::enqueue(const std::string& user,
                                                                           int64_t num_answers) {
  const std::lock_guard lock(mutex_);
  const uint64_t request = ++last_request_;
  bool has_room = false;
  try {
    has_room = scheduler_.enqueue(request, user, has_quotas_ ? num_answers : 1);
  } catch (const Error& error) {
    refuse_field("user_id", error.what());
  }
  if (!has_room) {
    ++num_refused_;
    throw ApiError({503,
                    cat("the server is busy: ", scheduler_.num_running(), " requests run and ",
                        scheduler_.num_waiting(), " wait"),
                    {},
                    "queue_full",
                    1});
  }
  const auto waiter = std::make_shared<Waiter>();
  waiting_[request] = waiter;
  admit();
  return {request, waiter};
}

void Admission::admit() {
  while (const std::optional<uint64_t> request = scheduler_.next(QosScheduler::Time::clock::now())) {
    Waiter& waiter = *waiting_.at(*request);
    waiter.admitted = true;
    waiter.signal.set();
  }
}

bool Admission::leave_queue(uint64_t request) {
  const std::lock_guard lock(mutex_);
  const auto found = waiting_.find(request);
  const bool admitted = found->second->admitted;
  waiting_.erase(found);
  if (admitted) return true;
  scheduler_.cancel(request);
  ++num_given_up_;
  return false;
}

void Admission::leave(uint64_t request) {
  const std::lock_guard lock(mutex_);
  scheduler_.release(request);
  admit();
}

Admission::Counts Admission::counts() const {
  const std::lock_guard lock(mutex_);
  return {scheduler_.num_running(), scheduler_.num_waiting(), num_refused_, num_given_up_};
}

std::vector<QosGroupCounts> Admission::group_counts() const {
  const std::lock_guard lock(mutex_);
  return has_quotas_ ? scheduler_.group_counts() : std::vector<QosGroupCounts>();
}

}  // namespace lmdeploy
