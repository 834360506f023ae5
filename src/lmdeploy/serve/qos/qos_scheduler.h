// Who is next: strict priority between groups, quotas among the users of one.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lmdeploy/serve/qos/qos_config.h"

namespace lmdeploy {

/// Requests begun in the last minute, to within ten seconds.
class UsageWindow {
 public:
  using Time = std::chrono::steady_clock::time_point;
  void add(Time now);
  int64_t count(Time now) const;

 private:
  static constexpr int64_t kBuckets = 6;
  struct Bucket {
    int64_t period = -1;  // ten seconds, counted from the clock's beginning
    int64_t count = 0;
  };
  std::array<Bucket, kBuckets> buckets_;
};

/// Holds the waiting requests by number. Not thread-safe; takes the time from its caller.
class QosScheduler {
 public:
  using Time = UsageWindow::Time;

  /// So many requests run at once.
  QosScheduler(QosConfig config, int64_t num_slots);

  /// A user that no group names belongs to the "default" entry with the largest quota, of equal ones that of
  /// the lowest priority. Throws Error(kInvalidArgument) when there is no such entry.
  void enqueue(uint64_t request, std::string_view user);
  /// Whether it was still waiting.
  bool cancel(uint64_t request);
  /// The next to run, which takes a slot until release(). nullopt: no slot or nobody waits.
  /// Of the first group in which somebody waits, the user who got least of what is due: its share of the
  /// group's requests in the last minute over its quota's share. Quota 0: only when nobody else in the group
  /// waits.
  std::optional<uint64_t> next(Time now);
  void release();

  int64_t num_waiting() const;
  int64_t num_running() const { return num_running_; }

 private:
  struct Queue {
    std::string user;
    double quota;
    UsageWindow usage;
    std::deque<uint64_t> waiting;
  };
  using Group = std::vector<Queue>;

  Queue* find(std::string_view user);
  Queue* default_queue();
  static Queue* choose(Group& group, Time now);

  const int64_t num_slots_;
  int64_t num_running_ = 0;
  std::vector<Group> groups_;
};

}  // namespace lmdeploy
