#include "lmdeploy/serve/metrics_log.h"

#include "lmdeploy/core/log.h"
#include "lmdeploy/serve/api_error.h"

namespace lmdeploy {

using Clock = std::chrono::steady_clock;

MetricsLog::MetricsLog(Service& service, std::chrono::milliseconds interval)
    : service_(service), interval_(interval), thread_([this] { run(); }) {}

MetricsLog::~MetricsLog() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void MetricsLog::run() {
  EngineStats before;
  look(before);
  Clock::time_point then = Clock::now();
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, interval_, [&] { return stopping_; })) {
    EngineStats now;
    if (!look(now)) continue;
    const Clock::time_point time = Clock::now();
    if (now.steps < before.steps) before = {};  // another engine, after sleep
    if (now.steps != before.steps || now.running + now.waiting > 0)
      LMD_LOG(kInfo, throughput_line(before, now, std::chrono::duration<double>(time - then).count(),
                                     service_.metrics()->outcomes(), service_.load()));
    before = now;
    then = time;
  }
}

bool MetricsLog::look(EngineStats& stats) const {
  try {
    stats = service_.pipeline()->engine().stats();
    return true;
  } catch (const std::exception&) {  // it loads, sleeps or stops
    return false;
  }
}

}  // namespace lmdeploy
