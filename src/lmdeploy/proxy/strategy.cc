#include "lmdeploy/proxy/strategy.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/random.h"

namespace lmdeploy::proxy {
namespace {

using Candidates = std::vector<Candidate>;

double total_speed(const Candidates& candidates) {
  return std::accumulate(candidates.begin(), candidates.end(), 0.0,
                         [](double sum, const Candidate& c) { return sum + c.speed; });
}

size_t by_speed(const Candidates& candidates, uint64_t random) {
  double left = random_uniform(random, 0) * total_speed(candidates);
  for (size_t i = 0; i < candidates.size(); ++i) {
    left -= candidates[i].speed;
    if (left < 0) return i;
  }
  return candidates.size() - 1;
}

/// The candidate with the least cost; a random one of equals.
template <typename Cost>
size_t least(const Candidates& candidates, uint64_t random, Cost cost) {
  size_t best = 0;
  double best_cost = std::numeric_limits<double>::infinity();
  uint64_t best_draw = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const double its_cost = cost(candidates[i]);
    const uint64_t draw = random_bits(random, i);
    if (its_cost > best_cost || (its_cost == best_cost && draw <= best_draw)) continue;
    best = i;
    best_cost = its_cost;
    best_draw = draw;
  }
  return best;
}

double load(const Candidate& c) { return static_cast<double>(c.unfinished) / c.speed; }

size_t by_observed_latency(const Candidates& candidates, uint64_t random) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  int64_t busiest = std::numeric_limits<int64_t>::min();
  for (const Candidate& c : candidates)
    if (c.mean_latency) busiest = std::max(busiest, c.unfinished);
  const bool all_are_new = busiest == std::numeric_limits<int64_t>::min();
  const auto is_new = [&](const Candidate& c) {
    return !c.mean_latency && (all_are_new || c.unfinished <= busiest);
  };
  if (std::any_of(candidates.begin(), candidates.end(), is_new))
    return least(candidates, random, [&](const Candidate& c) { return is_new(c) ? load(c) : kNever; });
  double least_mean = kNever;
  int64_t least_unfinished = std::numeric_limits<int64_t>::max();
  for (const Candidate& c : candidates) {
    least_mean = std::min(least_mean, c.mean_latency.value_or(kNever));
    least_unfinished = std::min(least_unfinished, c.unfinished);
  }
  const auto is_due = [&](const Candidate& c) {
    return c.passed_over >= 3 * candidates.size() && c.unfinished == least_unfinished;
  };
  if (std::any_of(candidates.begin(), candidates.end(), is_due))
    return least(candidates, random, [&](const Candidate& c) { return is_due(c) ? 0 : kNever; });
  return least(candidates, random, [&](const Candidate& c) {
    return c.mean_latency.value_or(kNever) <= 1.1 * least_mean ? static_cast<double>(c.unfinished) : kNever;
  });
}

size_t by_prefix(const Candidates& candidates, uint64_t random, uint64_t prefix) {
  int64_t unfinished = 0;
  for (const Candidate& c : candidates) unfinished += c.unfinished;
  const double share = static_cast<double>(unfinished) / total_speed(candidates);
  const auto is_overloaded = [&](const Candidate& c) {
    return static_cast<double>(c.unfinished) > 1.25 * share * c.speed + 4;
  };
  // Weighted rendezvous hashing: -ln(u) / weight is least for node i with a probability that is its weight's
  // share (Schindelhauer, Schomaker 2005, logarithmic method).
  const auto distance = [&](const Candidate& c) {
    return -std::log(random_uniform(prefix, c.hash) + 0x1p-54) / c.speed;
  };
  return least(candidates, random, [&](const Candidate& c) {
    return is_overloaded(c) ? std::numeric_limits<double>::max() : distance(c);
  });
}

}  // namespace

Strategy strategy_from_string(std::string_view name) {
  std::string names;
  for (size_t i = 0; i < std::size(kStrategyNames); ++i) {
    if (name == kStrategyNames[i]) return static_cast<Strategy>(i);
    names += cat(i > 0 ? ", " : "", kStrategyNames[i]);
  }
  throw Error(ErrorCode::kInvalidArgument, cat("unknown strategy \"", name, "\"; expected one of ", names));
}

size_t choose(Strategy strategy, const Candidates& candidates, uint64_t random, uint64_t prefix) {
  LMD_CHECK(!candidates.empty());
  switch (strategy) {
    case Strategy::kRandom:
      return by_speed(candidates, random);
    case Strategy::kMinObservedLatency:
      return by_observed_latency(candidates, random);
    case Strategy::kPrefixAware:
      return by_prefix(candidates, random, prefix);
    default:
      return least(candidates, random, load);
  }
}

}  // namespace lmdeploy::proxy
