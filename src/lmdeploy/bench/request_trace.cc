#include "lmdeploy/bench/request_trace.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/random.h"

namespace lmdeploy {
namespace {

constexpr double kDeviation = 0.7;  // of the logarithm, as benchmark/request_set.py has it
constexpr int64_t kShortest = 4;    // LMDeploy's scripts leave out shorter ones

// In (0, 1]: its logarithm is finite.
double positive_uniform(Rng& rng) { return 1 - rng.uniform(); }

// By Box and Muller.
double normal(Rng& rng) {
  const double radius = std::sqrt(-2 * std::log(positive_uniform(rng)));
  return radius * std::cos(2 * std::numbers::pi * rng.uniform());
}

int64_t log_normal_length(Rng& rng, double mean, int64_t longest) {
  const double middle = std::log(mean) - kDeviation * kDeviation / 2;
  const auto length = static_cast<int64_t>(std::lround(std::exp(middle + kDeviation * normal(rng))));
  return std::clamp(length, std::min(kShortest, longest), longest);
}

}  // namespace

std::vector<TraceRequest> make_trace(const TraceOptions& options) {
  LMD_CHECK(options.mean_prompt > 0 && options.mean_output > 0 && options.longest > 0,
            "lengths of a trace: ", options.mean_prompt, ", ", options.mean_output, ", ", options.longest);
  Rng rng(options.seed);
  std::vector<TraceRequest> trace(static_cast<size_t>(options.num_requests));
  for (TraceRequest& request : trace) {
    request.prompt_tokens = log_normal_length(rng, options.mean_prompt, options.longest);
    request.output_tokens = log_normal_length(rng, options.mean_output, options.longest);
  }
  return trace;
}

std::vector<TraceRequest> with_arrivals(std::vector<TraceRequest> trace, double requests_per_s,
                                        uint64_t seed) {
  LMD_CHECK(requests_per_s > 0, requests_per_s, " requests a second");
  Rng rng(seed);
  double now = 0;
  for (TraceRequest& request : trace) {
    request.arrival_s = now;
    now -= std::log(positive_uniform(rng)) / requests_per_s;
  }
  return trace;
}

}  // namespace lmdeploy
