#include "lmdeploy/serve/qos/qos_scheduler.h"

#include <algorithm>

#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

constexpr std::string_view kDefault = "default";

int64_t period_of(UsageWindow::Time time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time.time_since_epoch()).count() / 10;
}

}  // namespace

void UsageWindow::add(Time now) {
  const int64_t period = period_of(now);
  Bucket& bucket = buckets_[static_cast<size_t>(period % kBuckets)];
  if (bucket.period != period) bucket = {period, 0};
  ++bucket.count;
}

int64_t UsageWindow::count(Time now) const {
  int64_t sum = 0;
  for (const Bucket& bucket : buckets_)
    if (bucket.period > period_of(now) - kBuckets) sum += bucket.count;
  return sum;
}

QosScheduler::QosScheduler(QosConfig config, int64_t num_slots) : num_slots_(num_slots) {
  if (!config.enabled) config.groups = {{"all", {{std::string(kDefault), 1}}}};
  for (const QosGroup& group : config.groups) {
    Group& queues = groups_.emplace_back();
    for (const QosUser& user : group.users) queues.push_back({user.id, user.quota, {}, {}});
  }
}

QosScheduler::Queue* QosScheduler::find(std::string_view user) {
  if (user.empty() || user == kDefault) return nullptr;
  for (Group& group : groups_)
    for (Queue& queue : group)
      if (queue.user == user) return &queue;
  return nullptr;
}

QosScheduler::Queue* QosScheduler::default_queue() {
  Queue* best = nullptr;
  for (Group& group : groups_)
    for (Queue& queue : group)
      if (queue.user == kDefault && (best == nullptr || queue.quota >= best->quota)) best = &queue;
  return best;
}

void QosScheduler::enqueue(uint64_t request, std::string_view user) {
  Queue* queue = find(user);
  if (queue == nullptr) queue = default_queue();
  if (queue == nullptr)
    throw Error(ErrorCode::kInvalidArgument,
                cat("user_id \"", user, "\" is in no group, and no group has a \"default\" entry"));
  queue->waiting.push_back(request);
}

bool QosScheduler::cancel(uint64_t request) {
  for (Group& group : groups_)
    for (Queue& queue : group)
      if (std::erase(queue.waiting, request) > 0) return true;
  return false;
}

QosScheduler::Queue* QosScheduler::choose(Group& group, Time now) {
  Queue* best = nullptr;
  double best_ratio = 0;
  for (Queue& queue : group) {
    if (queue.waiting.empty()) continue;
    // Group and sum of quotas are the same for all: they do not change the order.
    const auto used = static_cast<double>(queue.usage.count(now));
    const bool has_quota = queue.quota > 0;
    const double ratio = has_quota ? used / queue.quota : used;
    const bool better = best == nullptr || (has_quota && best->quota == 0) ||
                        (has_quota == (best->quota > 0) && ratio < best_ratio);
    if (!better) continue;
    best = &queue;
    best_ratio = ratio;
  }
  return best;
}

std::optional<uint64_t> QosScheduler::next(Time now) {
  if (num_running_ >= num_slots_) return std::nullopt;
  for (Group& group : groups_) {
    Queue* queue = choose(group, now);
    if (queue == nullptr) continue;
    const uint64_t request = queue->waiting.front();
    queue->waiting.pop_front();
    queue->usage.add(now);
    ++num_running_;
    return request;
  }
  return std::nullopt;
}

void QosScheduler::release() {
  LMD_CHECK(num_running_ > 0);
  --num_running_;
}

int64_t QosScheduler::num_waiting() const {
  int64_t count = 0;
  for (const Group& group : groups_)
    for (const Queue& queue : group) count += static_cast<int64_t>(queue.waiting.size());
  return count;
}

}  // namespace lmdeploy
