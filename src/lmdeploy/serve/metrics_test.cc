#include "lmdeploy/serve/metrics.h"

#include <gtest/gtest.h>

#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

using std::chrono::milliseconds;

/// The value of a line; fails the test when there is none.
double value_of(const std::string& page, const std::string& name, const std::string& more_labels = {}) {
  const std::string begin = cat("\nlmdeploy:", name, R"({model_name="m",engine="0")", more_labels, "} ");
  const size_t at = page.find(begin);
  if (at == std::string::npos) {
    ADD_FAILURE() << begin << " is not in the page:\n" << page;
    return -1;
  }
  return std::stod(page.substr(at + begin.size()));
}

/// The bounds of a histogram, as Prometheus reads them.
std::string bounds_of(const std::string& page, const std::string& name) {
  std::string bounds;
  const std::string begin = cat("\nlmdeploy:", name, R"(_bucket{model_name="m",engine="0",le=")");
  for (size_t at = 0; (at = page.find(begin, at)) != std::string::npos;) {
    at += begin.size();
    bounds += page.substr(at, page.find('"', at) - at) + " ";
  }
  return bounds;
}

RequestTimes::Time at(int ms) { return RequestTimes::Time(milliseconds(1'000'000 + ms)); }

/// A request of 10 prompt tokens that came at 0, entered the queue at 100, ran from 600, and gave 5 tokens
/// from 2600 to 4600 ms.
Metrics::Finished request() {
  Metrics::Finished request;
  request.reason = FinishReason::kStop;
  request.prompt_tokens = 10;
  request.cached_tokens = 4;
  request.generated_tokens = 5;
  request.arrival = at(0);
  request.times = {at(100), at(600), at(2600), at(4600)};
  return request;
}

TEST(Metrics, TimesAreThoseOfTheirDefinitions) {
  Metrics metrics("m", 100);
  metrics.finished(request());
  metrics.tokens_came(0.5, 4);
  const std::string page = metrics.page({}, {}, {});
  const std::pair<const char*, double> sums[] = {
      {"request_queue_time_seconds", 0.5},    {"request_prefill_time_seconds", 2},
      {"request_decode_time_seconds", 2},     {"request_inference_time_seconds", 4},
      {"e2e_request_latency_seconds", 4.6},   {"time_to_first_token_seconds", 2.6},
      {"time_per_output_token_seconds", 0.5}, {"iter_token_latency", 2},
      {"request_prompt_tokens", 10},          {"request_generation_tokens", 5},
      {"request_cached_tokens", 4},           {"request_cache_hit_ratio", 0.4}};
  for (const auto& [name, sum] : sums)
    EXPECT_DOUBLE_EQ(value_of(page, std::string(name) + "_sum"), sum) << name;
  EXPECT_EQ(value_of(page, "iter_token_latency_count"), 4);
  EXPECT_EQ(value_of(page, "request_queue_time_seconds_bucket", R"(,le="0.3")"), 0);
  EXPECT_EQ(value_of(page, "request_queue_time_seconds_bucket", R"(,le="0.5")"), 1);
  EXPECT_EQ(value_of(page, "num_requests_succeeded"), 1);
  EXPECT_EQ(value_of(page, "request_success_total", R"(,finished_reason="stop")"), 1);
}

/// One that never ran has no times but its end.
TEST(Metrics, WhatDidNotHappenIsNotTimed) {
  Metrics metrics("m", 100);
  Metrics::Finished refused;
  refused.reason = FinishReason::kError;
  refused.arrival = at(0);
  refused.times = {at(1), {}, {}, at(2)};
  metrics.finished(refused);
  const std::string page = metrics.page({}, {}, {});
  for (const char* name :
       {"request_queue_time_seconds", "request_prefill_time_seconds", "request_decode_time_seconds",
        "request_inference_time_seconds", "time_to_first_token_seconds", "time_per_output_token_seconds"})
    EXPECT_EQ(value_of(page, std::string(name) + "_count"), 0) << name;
  EXPECT_EQ(value_of(page, "e2e_request_latency_seconds_count"), 1);
  EXPECT_EQ(value_of(page, "num_requests_failed"), 1);
}

TEST(Metrics, NamesAndBucketsAreLMDeploys) {
  const Metrics metrics("m", 120);
  EngineStats engine;
  engine.total_blocks = 8;
  engine.used_blocks = 2;
  engine.prefix_queried_tokens = 10;
  engine.prefix_hit_tokens = 5;
  engine.step_tokens.add(9);
  EngineConfig config;
  config.session_len = 120;
  const std::string page = metrics.page(engine, config, {3, 1, 2, 4});
  const std::pair<const char*, double> values[] = {
      {"num_requests_succeeded", 0},   {"num_requests_failed", 0},     {"num_api_requests_routed", 1},
      {"num_api_requests_waiting", 2}, {"num_requests_running", 0},    {"num_requests_waiting", 0},
      {"gpu_cache_usage_perc", 0.25},  {"prefix_cache_hit_rate", 0.5}, {"prompt_tokens_total", 0},
      {"generation_tokens_total", 0},  {"cached_tokens_total", 0},     {"iteration_tokens_total_sum", 9}};
  for (const auto& [name, value] : values) EXPECT_EQ(value_of(page, name), value) << name;
  EXPECT_NE(page.find(R"(lmdeploy:backend_config_info{model_name="m",engine="0",session_len="120",)"),
            std::string::npos);
  const std::string tokens =
      "0.005 0.01 0.025 0.05 0.075 0.1 0.15 0.2 0.3 0.4 0.5 0.75 1 2.5 5 7.5 10 20 40 80 +Inf ";
  const std::string seconds =
      "0.3 0.5 0.8 1 1.5 2 2.5 5 10 15 20 30 40 50 60 120 240 480 960 1920 7680 +Inf ";
  EXPECT_EQ(
      bounds_of(page, "time_to_first_token_seconds"),
      "0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1 2.5 5 7.5 10 20 40 80 160 640 2560 +Inf ");
  for (const char* name : {"time_per_output_token_seconds", "iter_token_latency"})
    EXPECT_EQ(bounds_of(page, name), tokens) << name;
  for (const char* name :
       {"e2e_request_latency_seconds", "request_queue_time_seconds", "request_inference_time_seconds",
        "request_prefill_time_seconds", "request_decode_time_seconds"})
    EXPECT_EQ(bounds_of(page, name), seconds) << name;
  EXPECT_EQ(bounds_of(page, "iteration_tokens_total"),
            "1 8 16 32 64 128 256 512 1024 2048 4096 8192 16384 +Inf ");
  for (const char* name : {"request_prompt_tokens", "request_generation_tokens", "request_cached_tokens"})
    EXPECT_EQ(bounds_of(page, name), "1 2 5 10 20 50 100 +Inf ") << name;
  EXPECT_EQ(bounds_of(page, "request_cache_hit_ratio"), "0 0.1 0.2 0.3 0.4 0.5 0.6 0.7 0.8 0.9 1 +Inf ");
}

TEST(Metrics, TheLogLine) {
  EngineStats before, now;
  before.prompt_tokens = 100;
  now.prompt_tokens = 300;
  now.generated_tokens = 55;
  now.running = 3;
  now.waiting = 4;
  now.total_blocks = 8;
  now.used_blocks = 2;
  EXPECT_EQ(throughput_line(before, now, 10, {5, 6}, {1, 7, 8, 0}),
            "Avg thr (in/out): 20.0 / 5.5 tokens/s, Server (succeeded/failed/routed/waiting): 5 / 6 / 7 / 8, "
            "Engine (running/waiting): 3 / 4, KV cache: 25.0%");
}

}  // namespace
}  // namespace lmdeploy
