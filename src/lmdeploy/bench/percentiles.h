// Percentiles of latencies.
#pragma once

#include <algorithm>
#include <vector>

namespace lmdeploy {

/// Of sorted samples the one at index share * count, as LMDeploy's scripts choose it; 0 where there are none.
inline double percentile(const std::vector<double>& sorted, double share) {
  if (sorted.empty()) return 0;
  const auto index = static_cast<size_t>(share * static_cast<double>(sorted.size()));
  return sorted[std::min(index, sorted.size() - 1)];
}

struct Percentiles {
  double p50 = 0, p90 = 0, p99 = 0;
};

inline Percentiles percentiles_of(std::vector<double> samples) {
  std::ranges::sort(samples);
  return {percentile(samples, 0.5), percentile(samples, 0.9), percentile(samples, 0.99)};
}

}  // namespace lmdeploy
