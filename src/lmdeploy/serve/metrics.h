// What the server counts and times, in the names of LMDeploy, and Prometheus' text form of it.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lmdeploy/pipeline/pipeline.h"
#include "lmdeploy/serve/qos/qos_scheduler.h"

namespace lmdeploy {

/// Prometheus' histogram: cumulative when printed. Not thread-safe by itself.
class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds);
  /// Counted elsewhere: one count for each bound, and one above the last.
  Histogram(std::vector<double> bounds, std::vector<int64_t> counts, double sum);
  void add(double value, int64_t times = 1);
  /// NAME_bucket{LABELS,le="..."} lines, NAME_sum, NAME_count.
  void print(std::string& out, const std::string& name, const std::string& labels) const;

 private:
  std::vector<double> bounds_;
  std::vector<int64_t> counts_;  // one more than bounds: above the last
  double sum_ = 0;
};

/// Of all requests. Thread-safe.
class Metrics {
 public:
  explicit Metrics(std::string model_name, int64_t session_len);

  struct Finished {
    FinishReason reason = FinishReason::kNone;
    int64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
    RequestTimes::Time arrival = {};
    RequestTimes times = {};
  };
  void finished(const Finished& request);
  /// `count` tokens came, one every `seconds`.
  void tokens_came(double seconds, int64_t count);

  struct ServerSide {
    int64_t connections = 0, api_running = 0, api_waiting = 0, refused = 0;
    std::vector<QosGroupCounts> groups = {};
  };
  /// The whole page.
  std::string page(const EngineStats& engine, const EngineConfig& config, const ServerSide& server) const;

  struct Outcomes {
    int64_t succeeded = 0, failed = 0;
  };
  Outcomes outcomes() const;

 private:
  class Page;
  Outcomes count_outcomes() const;
  void print_server(Page& page, const ServerSide& server) const;
  void print_requests(Page& page) const;

  const std::string labels_;
  mutable std::mutex mutex_;
  int64_t prompt_tokens_ = 0, cached_tokens_ = 0, generated_tokens_ = 0;
  std::map<std::string, int64_t> by_reason_;
  Histogram first_token_s_, token_s_, between_tokens_s_;
  Histogram seconds_, queue_s_, inference_s_, prefill_s_, decode_s_;
  Histogram prompt_, generation_, cached_, hit_ratio_;
};

/// What the log says of the time between two looks at the engine.
std::string throughput_line(const EngineStats& before, const EngineStats& now, double seconds,
                            const Metrics::Outcomes& outcomes, const Metrics::ServerSide& server);

/// Times one answer and reports it once, as aborted when nobody has said otherwise.
class RequestRecord {
 public:
  RequestRecord(std::shared_ptr<Metrics> metrics, RequestTimes::Time arrival);
  RequestRecord(RequestRecord&& other) noexcept = default;
  RequestRecord& operator=(RequestRecord&&) = delete;
  ~RequestRecord();

  /// Totals, as a piece of the answer gives them.
  void progress(const Response& piece);
  void finish(FinishReason reason);

 private:
  std::shared_ptr<Metrics> metrics_;  // nullptr: reported, or moved away
  RequestTimes::Time last_piece_ = {};
  Metrics::Finished request_;
};

}  // namespace lmdeploy
