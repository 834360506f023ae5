// Which of several nodes gets a request: functions of numbers, without state.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace lmdeploy::proxy {

enum class Strategy { kRandom, kMinExpectedLatency, kMinObservedLatency, kPrefixAware };
inline constexpr const char* kStrategyNames[] = {"random", "min_expected_latency", "min_observed_latency",
                                                 "prefix_aware"};
/// Throws Error(kInvalidArgument) that lists the names.
Strategy strategy_from_string(std::string_view name);

struct Candidate {
  double speed = 1;                    // in any unit, the same for all
  int64_t unfinished = 0;              // requests that it works on
  std::optional<double> mean_latency;  // seconds; of requests that it has answered
  uint64_t passed_over = 0;            // requests that others got since its last one
  uint64_t hash = 0;                   // of its name
};

/// The index of the chosen one; `candidates` is not empty. `random`: 64 random bits; `prefix`: a hash of the
/// prompt's beginning.
/// - random: by speed.
/// - min_expected_latency: the least unfinished / speed; a random one of equals.
/// - min_observed_latency: one without history, unless it has more to do than all others already; else one
/// that was passed over three times per node and has
///   least to do, so that an old bad mean does not last; else of those whose mean is within 10 % of the
///   least, the one with the fewest unfinished.
/// - prefix_aware: the same node for the same prefix (rendezvous hashing, weighted by speed), unless it has a
///   quarter more to do than its share, and four requests besides: then the next one for this prefix.
size_t choose(Strategy strategy, const std::vector<Candidate>& candidates, uint64_t random, uint64_t prefix);

}  // namespace lmdeploy::proxy
