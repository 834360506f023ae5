// exp() over whole rows of logits, as vector code.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

namespace lmdeploy {

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

/// weights[i] = exp((row[i] - max) / temperature); `max` is the row's maximum, finite, so that the best one
/// weighs 1 and no sum can overflow.
void weigh(std::span<const float> row, float max, float temperature, std::span<float> weights);
/// The sum of these weights.
double sum_of_weights(std::span<const float> row, float max, float temperature);

}  // namespace lmdeploy
