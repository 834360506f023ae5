// What is read from one row of logits: its maximum, its log-sum-exp, its best tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lmdeploy/core/tensor.h"

namespace lmdeploy {

struct Candidate {
  float logit = 0;
  int id = 0;
};
/// Higher logit first; of equal ones the lower id.
inline bool ranks_before(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

/// Row `row` of `logits` (any float type) as f32; `buffer` holds the copy where one is needed. Valid as long
/// as both.
std::span<const float> logits_row(ConstTensorView logits, int64_t row, std::vector<float>& buffer);

/// NaN when any logit is NaN.
float max_logit(std::span<const float> row);
/// log(sum_i exp(row[i])); `max` is the row's maximum, finite.
double log_sum_exp(std::span<const float> row, float max);
/// The `count` best tokens (fewer when the row has fewer above -inf), best first.
void select_top(std::span<const float> row, int64_t count, std::vector<Candidate>& top);
/// -log p(target) under softmax(row).
double negative_log_likelihood(std::span<const float> row, int target);

}  // namespace lmdeploy
