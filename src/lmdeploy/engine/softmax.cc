// Compiled with -fno-trapping-math: else a choice between floats keeps a loop scalar. (For max_logit() that
// option loses: 130 instead of 31 us for 49152 logits.)
#include "lmdeploy/engine/softmax.h"

#include <array>
#include <cstddef>
#include <numeric>

namespace lmdeploy {

void weigh(std::span<const float> row, float max, float temperature, std::span<float> weights) {
  for (size_t i = 0; i < row.size(); ++i) weights[i] = exp_nonpositive((row[i] - max) / temperature);
}

// Independent sums, so that the loop becomes vector code.
double sum_of_weights(std::span<const float> row, float max, float temperature) {
  constexpr size_t kLanes = 16;
  std::array<double, kLanes> sums{};
  const auto weight = [&](size_t i) {
    return static_cast<double>(exp_nonpositive((row[i] - max) / temperature));
  };
  const size_t whole = row.size() / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += weight(i + lane);
  for (size_t i = whole; i < row.size(); ++i) sums[i - whole] += weight(i);
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

}  // namespace lmdeploy
