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

#include "lmdeploy/engine/engine.h"

namespace lmdeploy {

/// Prometheus' histogram: cumulative when printed. Not thread-safe by itself.
class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds);
  void add(double value);
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
    double seconds = 0;
    double first_token_s = -1;  // < 0: there was none
    double decode_s = 0;        // from the first token to the end
  };
  void started();
  void finished(const Finished& request);

  struct ServerSide {
    int64_t connections = 0, api_running = 0, api_waiting = 0, refused = 0;
  };
  /// The whole page.
  std::string page(const EngineStats& engine, const ServerSide& server) const;

 private:
  const std::string labels_;
  mutable std::mutex mutex_;
  int64_t running_ = 0, received_ = 0;
  int64_t prompt_tokens_ = 0, cached_tokens_ = 0, generated_tokens_ = 0;
  std::map<std::string, int64_t> by_reason_;
  Histogram first_token_s_, token_s_, seconds_, decode_s_, prompt_, generation_, cached_, hit_ratio_;
};

/// Times one answer and reports it once, as aborted when nobody has said otherwise.
class RequestRecord {
 public:
  explicit RequestRecord(std::shared_ptr<Metrics> metrics);
  RequestRecord(RequestRecord&& other) noexcept = default;
  RequestRecord& operator=(RequestRecord&&) = delete;
  ~RequestRecord();

  void progress(int64_t prompt_tokens, int64_t cached_tokens, int64_t generated_tokens);
  void finish(FinishReason reason);

 private:
  std::shared_ptr<Metrics> metrics_;  // nullptr: reported, or moved away
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point first_token_{};
  Metrics::Finished request_;
};

}  // namespace lmdeploy
