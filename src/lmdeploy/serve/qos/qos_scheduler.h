// Who is next: strict priority between groups, quotas among the users of one.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lmdeploy/serve/qos/qos_config.h"

namespace lmdeploy {

/// Answers begun in the last minute, to within ten seconds.
class UsageWindow {
 public:
  using Time = std::chrono::steady_clock::time_point;
  void add(Time now, int64_t num_answers);
  int64_t count(Time now) const;

 private:
  static constexpr int64_t kBuckets = 6;
  struct Bucket {
    int64_t period = -1;  // ten seconds, counted from the clock's beginning
    int64_t count = 0;
  };
  std::array<Bucket, kBuckets> buckets_;
};

struct QosLimits {
  int64_t max_running = 0;  // answers at once; a request that begins may go beyond it. 0: no limit
  int64_t max_waiting = 0;  // requests of each group; 0: no limit
};

struct QosGroupCounts {
  std::string name;
  int64_t waiting = 0, running = 0, begun = 0;  // requests; the last: so far
};

/// Holds the waiting requests by number. Not thread-safe; takes the time from its caller.
class QosScheduler {
 public:
  using Time = UsageWindow::Time;

  QosScheduler(QosConfig config, const QosLimits& limits);

  /// A user that no group names belongs to the "default" entry with the largest quota, of equal ones that of
  /// the lowest priority. Throws Error(kInvalidArgument) when there is no such entry. false: too many of the
  /// group wait already.
  bool enqueue(uint64_t request, std::string_view user, int64_t num_answers = 1);
  /// Whether it was still waiting.
  bool cancel(uint64_t request);
  /// The next to run, until release(). nullopt: enough run, or nobody waits.
  /// Of the first group in which somebody waits, the user who got least of what is due: its share of the
  /// group's answers in the last minute over its quota's share. Quota 0: only when nobody else in the group
  /// waits.
  std::optional<uint64_t> next(Time now);
  void release(uint64_t request);

  int64_t num_waiting() const;
  int64_t num_running() const { return static_cast<int64_t>(running_.size()); }
  std::vector<QosGroupCounts> group_counts() const;

 private:
  struct Waiting {
    uint64_t request;
    int64_t num_answers;
  };
  struct Queue {
    std::string user;
    double quota;
    UsageWindow usage;
    std::deque<Waiting> waiting;
  };
  struct Group {
    std::string name;
    std::vector<Queue> queues;
    int64_t running = 0, begun = 0;
    int64_t num_waiting() const;
  };
  struct Running {
    size_t group;
    int64_t num_answers;
  };
  struct Place {
    size_t group, queue;
  };

  std::optional<Place> find(std::string_view user) const;
  std::optional<Place> default_place() const;
  bool is_full() const;
  static Queue* choose(Group& group, Time now);

  const QosLimits limits_;
  int64_t num_answers_ = 0;  // of what runs
  std::vector<Group> groups_;
  std::map<uint64_t, Running> running_;
};

}  // namespace lmdeploy
