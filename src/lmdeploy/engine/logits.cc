// Reductions over a row of logits. Single pass, no sort of the whole vocabulary.
#include "lmdeploy/engine/logits.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lmdeploy/engine/softmax.h"

namespace lmdeploy {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

void keep_best(std::vector<Candidate>& top, size_t count) {
  if (top.size() <= count) return;
  std::nth_element(top.begin(), top.begin() + static_cast<int64_t>(count) - 1, top.end(), ranks_before);
  top.resize(count);
}

}  // namespace

std::span<const float> logits_row(ConstTensorView logits, int64_t row, std::vector<float>& buffer) {
  const auto cols = static_cast<size_t>(logits.cols());
  if (logits.dtype() == DType::kF32) return {logits.row<float>(row), cols};
  buffer.resize(cols);
  for (size_t i = 0; i < cols; ++i) buffer[i] = static_cast<float>(logits.at(row, static_cast<int64_t>(i)));
  return buffer;
}

float max_logit(std::span<const float> row) {
  float max = -kInf;
  bool has_nan = false;
  for (const float logit : row) {
    max = logit > max ? logit : max;
    has_nan |= logit != logit;
  }
  return has_nan ? std::numeric_limits<float>::quiet_NaN() : max;
}

double log_sum_exp(std::span<const float> row, float max) {
  return static_cast<double>(max) + std::log(sum_of_weights(row, max, /*temperature=*/1));
}

// Collects what beats the worst token kept so far, and cuts back to `count` whenever twice as many are held.
void select_top(std::span<const float> row, int64_t count, std::vector<Candidate>& top) {
  top.clear();
  if (count <= 0) return;
  const auto kept = static_cast<size_t>(std::min<int64_t>(count, static_cast<int64_t>(row.size())));
  const size_t limit = std::max<size_t>(2 * kept, 512);
  float threshold = -kInf;  // equal ones have a higher id than all that are kept: never better
  for (size_t id = 0; id < row.size(); ++id) {
    if (!(row[id] > threshold)) continue;
    top.push_back({row[id], static_cast<int>(id)});
    if (top.size() < limit) continue;
    keep_best(top, kept);
    threshold = top[kept - 1].logit;
  }
  keep_best(top, kept);
  std::sort(top.begin(), top.end(), ranks_before);
}

double negative_log_likelihood(std::span<const float> row, int target) {
  const float max = max_logit(row);
  if (!std::isfinite(max)) return std::numeric_limits<double>::quiet_NaN();
  return log_sum_exp(row, max) - static_cast<double>(row[static_cast<size_t>(target)]);
}

}  // namespace lmdeploy
