// What is read from one row of logits: its maximum, its log-sum-exp, its best tokens.
#pragma once

#include <bit>
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

/// exp(x) for x <= 0, relative error below 2^-22; 0 below -87. Plain arithmetic, so that loops over it become
/// vector code. Polynomial: Cephes library, expf.c (Moshier 1992).
inline float exp_nonpositive(float x) {
  constexpr float kLowest = -87, kLog2E = 1.44269504f;
  constexpr float kRound = 12582912;  // 1.5 * 2^23: what is added to it is rounded to an integer
  constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  const float clamped = x < kLowest ? kLowest : x;
  const float rounded = clamped * kLog2E + kRound;
  const float n = rounded - kRound;
  const float r = clamped - n * kLn2High - n * kLn2Low;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1;
  const int32_t exponent = std::bit_cast<int32_t>(rounded) - std::bit_cast<int32_t>(kRound) + 127;
  return x < kLowest ? 0 : p * std::bit_cast<float>(exponent << 23);
}

/// NaN when any logit is NaN.
float max_logit(std::span<const float> row);
/// sum_i exp((row[i] - max) / temperature); `max` is the row's maximum, finite.
double sum_exp(std::span<const float> row, float max, float temperature);
/// log(sum_i exp(row[i]))
double log_sum_exp(std::span<const float> row, float max);
/// The `count` best tokens (fewer when the row has fewer above -inf), best first.
void select_top(std::span<const float> row, int64_t count, std::vector<Candidate>& top);
/// -log p(target) under softmax(row).
double negative_log_likelihood(std::span<const float> row, int target);

}  // namespace lmdeploy
