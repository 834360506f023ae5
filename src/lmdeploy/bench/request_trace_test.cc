#include "lmdeploy/bench/request_trace.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lmdeploy/bench/percentiles.h"

namespace lmdeploy {
namespace {

constexpr TraceOptions kMany = {.num_requests = 20000};

double mean_of(const std::vector<TraceRequest>& trace, int64_t TraceRequest::*length) {
  double sum = 0;
  for (const TraceRequest& request : trace) sum += static_cast<double>(request.*length);
  return sum / static_cast<double>(trace.size());
}

// Cutting lengths beyond 1024 takes 0.8 and 0.5 % off the means. The mean of n log-normal lengths deviates by
// mean * sqrt(exp(0.7^2) - 1) / sqrt(n), 0.6 % here: four of those and the cut are 3.2 %.
TEST(RequestTrace, LengthsHaveTheMeansAskedFor) {
  const auto trace = make_trace(kMany);
  EXPECT_NEAR(mean_of(trace, &TraceRequest::prompt_tokens), 225, 0.032 * 225);
  EXPECT_NEAR(mean_of(trace, &TraceRequest::output_tokens), 195, 0.032 * 195);
}

// The median of a log-normal distribution is exp(-0.7^2 / 2) of its mean.
TEST(RequestTrace, LengthsAreLogNormal) {
  std::vector<double> prompts;
  for (const TraceRequest& request : make_trace(kMany)) {
    EXPECT_GE(request.prompt_tokens, 4);
    EXPECT_LE(request.prompt_tokens, 1024);
    prompts.push_back(static_cast<double>(request.prompt_tokens));
  }
  const double median = 225 * std::exp(-0.7 * 0.7 / 2);
  const Percentiles found = percentiles_of(prompts);
  EXPECT_NEAR(found.p50, median, 0.04 * median);
  EXPECT_NEAR(found.p90, median * std::exp(0.7 * 1.2816), 0.06 * median * std::exp(0.7 * 1.2816));
}

TEST(RequestTrace, TheSeedDecides) {
  const auto lengths = [](uint64_t seed) {
    std::vector<int64_t> all;
    for (const TraceRequest& request : make_trace({.num_requests = 50, .seed = seed})) {
      EXPECT_EQ(request.arrival_s, 0);
      all.push_back(request.prompt_tokens);
      all.push_back(request.output_tokens);
    }
    return all;
  };
  EXPECT_EQ(lengths(1), lengths(1));
  EXPECT_NE(lengths(1), lengths(2));
}

// Gaps of a Poisson process are exponential: their mean is 1 / rate, and 1 - 1 / e of them are shorter. Of
// 20000 gaps the mean deviates by 0.7 %.
TEST(RequestTrace, ArrivalsAreAPoissonProcess) {
  constexpr double kRate = 8;
  const auto trace = with_arrivals(make_trace(kMany), kRate, 1);
  EXPECT_EQ(trace.front().arrival_s, 0);
  const auto gaps = static_cast<double>(trace.size() - 1);
  double shorter = 0;
  for (size_t i = 1; i < trace.size(); ++i) {
    const double gap = trace[i].arrival_s - trace[i - 1].arrival_s;
    EXPECT_GE(gap, 0);
    if (gap < 1 / kRate) ++shorter;
  }
  EXPECT_NEAR(trace.back().arrival_s / gaps, 1 / kRate, 0.03 / kRate);
  EXPECT_NEAR(shorter / gaps, 1 - std::exp(-1.0), 0.015);
}

TEST(RequestTrace, ArrivalsLeaveTheLengths) {
  const auto before = make_trace({.num_requests = 20});
  const auto after = with_arrivals(before, 3, 7);
  for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(before[i].prompt_tokens, after[i].prompt_tokens);
}

}  // namespace
}  // namespace lmdeploy
