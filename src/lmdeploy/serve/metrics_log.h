// The log line on throughput and load, at intervals.
#pragma once

#include <chrono>

#include "lmdeploy/serve/every.h"
#include "lmdeploy/serve/service.h"

namespace lmdeploy {

/// At level INFO, while there is something to say. `service` must outlive it.
class MetricsLog {
 public:
  explicit MetricsLog(Service& service, std::chrono::milliseconds interval = std::chrono::seconds(10));

 private:
  void look();

  Service& service_;
  EngineStats before_;
  std::chrono::steady_clock::time_point then_;
  Every every_;  // last: runs on all of the above
};

}  // namespace lmdeploy
