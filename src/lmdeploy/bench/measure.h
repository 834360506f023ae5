// Times and what is made of several of them.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

namespace lmdeploy {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

template <typename Action>
double seconds_of(const Action& action) {
  const Clock::time_point start = Clock::now();
  action();
  return seconds_since(start);
}

struct Spread {
  double median = 0, min = 0, max = 0;
};

/// At least one sample. Of an even number the upper one of the two in the middle.
inline Spread spread_of(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return {samples[samples.size() / 2], samples.front(), samples.back()};
}

/// `count` results of `sample`.
template <typename Sample>
Spread spread_of(int count, const Sample& sample) {
  std::vector<double> samples;
  for (int i = 0; i < count; ++i) samples.push_back(sample());
  return spread_of(std::move(samples));
}

}  // namespace lmdeploy
