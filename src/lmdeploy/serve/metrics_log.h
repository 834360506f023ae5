// The log line on throughput and load, at intervals.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "lmdeploy/serve/service.h"

namespace lmdeploy {

/// At level INFO, while there is something to say. Has a thread of its own; `service` must outlive it.
class MetricsLog {
 public:
  explicit MetricsLog(Service& service, std::chrono::milliseconds interval = std::chrono::seconds(10));
  ~MetricsLog();
  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;

 private:
  void run();
  /// Whether the server is ready.
  bool look(EngineStats& stats) const;

  Service& service_;
  const std::chrono::milliseconds interval_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace lmdeploy
