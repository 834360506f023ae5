#include "lmdeploy/serve/metrics_log.h"

#include "lmdeploy/core/log.h"

namespace lmdeploy {
namespace {

/// nullopt: it loads, sleeps or stops.
std::optional<EngineStats> stats_of(const Service& service) {
  try {
    return service.pipeline()->engine().stats();
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

}  // namespace

MetricsLog::MetricsLog(Service& service, std::chrono::milliseconds interval)
    : service_(service),
      before_(stats_of(service).value_or(EngineStats())),
      then_(std::chrono::steady_clock::now()),
      every_(interval, [this] { look(); }) {}

void MetricsLog::look() {
  const std::optional<EngineStats> now = stats_of(service_);
  if (!now) return;
  const auto time = std::chrono::steady_clock::now();
  if (now->steps < before_.steps) before_ = {};  // another engine, after sleep
  if (now->steps != before_.steps || now->running + now->waiting > 0)
    LMD_LOG(kInfo, throughput_line(before_, *now, std::chrono::duration<double>(time - then_).count(),
                                   service_.metrics()->outcomes(), service_.load()));
  before_ = *now;
  then_ = time;
}

}  // namespace lmdeploy
