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

void UsageWindow::add(Time now, int64_t num_answers) {
  const int64_t period = period_of(now);
  Bucket& bucket = buckets_[static_cast<size_t>(period % kBuckets)];
  if (bucket.period != period) bucket = {period, 0};
  bucket.count += num_answers;
}

int64_t UsageWindow::count(Time now) const {
  int64_t sum = 0;
  for (const Bucket& bucket : buckets_)
    if (bucket.period > period_of(now) - kBuckets) sum += bucket.count;
  return sum;
}

QosScheduler::QosScheduler(QosConfig config, const QosLimits& limits) : limits_(limits) {
  if (!config.enabled) config.groups = {{"all", {{std::string(kDefault), 1}}}};
  for (const QosGroup& group : config.groups) {
    Group& own = groups_.emplace_back();
    own.name = group.name;
    for (const QosUser& user : group.users) own.queues.push_back({user.id, user.quota, {}, {}});
  }
}

std::optional<QosScheduler::Place> QosScheduler::find(std::string_view user) const {
  if (user.empty() || user == kDefault) return std::nullopt;
  for (size_t g = 0; g < groups_.size(); ++g)
    for (size_t q = 0; q < groups_[g].queues.size(); ++q)
      if (groups_[g].queues[q].user == user) return Place{g, q};
  return std::nullopt;
}

std::optional<QosScheduler::Place> QosScheduler::default_place() const {
  std::optional<Place> best;
  double best_quota = 0;
  for (size_t g = 0; g < groups_.size(); ++g)
    for (size_t q = 0; q < groups_[g].queues.size(); ++q) {
      const Queue& queue = groups_[g].queues[q];
      if (queue.user != kDefault || queue.quota < best_quota) continue;
      best = Place{g, q};
      best_quota = queue.quota;
    }
  return best;
}

bool QosScheduler::enqueue(uint64_t request, std::string_view user, int64_t num_answers) {
  std::optional<Place> place = find(user);
  if (!place) place = default_place();
  if (!place)
    throw Error(ErrorCode::kInvalidArgument,
                user.empty()
                    ? "user_id is missing, and no group has a \"default\" entry"
                    : cat("user_id \"", user, "\" is in no group, and no group has a \"default\" entry"));
  Group& group = groups_[place->group];
  if (limits_.max_waiting > 0 && is_full() && group.num_waiting() >= limits_.max_waiting) return false;
  group.queues[place->queue].waiting.push_back({request, num_answers});
  return true;
}

bool QosScheduler::cancel(uint64_t request) {
  for (Group& group : groups_)
    for (Queue& queue : group.queues)
      if (std::erase_if(queue.waiting, [&](const Waiting& w) { return w.request == request; }) > 0)
        return true;
  return false;
}

QosScheduler::Queue* QosScheduler::choose(Group& group, Time now) {
  Queue* best = nullptr;
  double best_ratio = 0;
  for (Queue& queue : group.queues) {
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

bool QosScheduler::is_full() const { return limits_.max_running > 0 && num_answers_ >= limits_.max_running; }

std::optional<uint64_t> QosScheduler::next(Time now) {
  if (is_full()) return std::nullopt;
  for (size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    Queue* queue = choose(group, now);
    if (queue == nullptr) continue;
    const Waiting chosen = queue->waiting.front();
    queue->waiting.pop_front();
    queue->usage.add(now, chosen.num_answers);
    running_[chosen.request] = {g, chosen.num_answers};
    num_answers_ += chosen.num_answers;
    ++group.running;
    ++group.begun;
    return chosen.request;
  }
  return std::nullopt;
}

void QosScheduler::release(uint64_t request) {
  const auto found = running_.find(request);
  LMD_CHECK(found != running_.end(), request);
  num_answers_ -= found->second.num_answers;
  --groups_[found->second.group].running;
  running_.erase(found);
}

int64_t QosScheduler::Group::num_waiting() const {
  int64_t count = 0;
  for (const Queue& queue : queues) count += static_cast<int64_t>(queue.waiting.size());
  return count;
}

int64_t QosScheduler::num_waiting() const {
  int64_t count = 0;
  for (const Group& group : groups_) count += group.num_waiting();
  return count;
}

std::vector<QosGroupCounts> QosScheduler::group_counts() const {
  std::vector<QosGroupCounts> counts;
  for (const Group& group : groups_)
    counts.push_back({group.name, group.num_waiting(), group.running, group.begun});
  return counts;
}

}  // namespace lmdeploy
