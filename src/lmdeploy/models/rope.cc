// Frequencies of each rope kind, in f64. Formulas: docs/models.md; sources are named at each function.
#include "lmdeploy/models/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

using Kind = RopeSpec::Kind;
constexpr double kTwoPi = 2 * std::numbers::pi;

// inv_j = theta^(-2j/r): Su et al. 2021, section 3.2.2.
std::vector<double> plain_frequencies(double theta, int64_t rotary_dim) {
  std::vector<double> inv_freq(static_cast<size_t>(rotary_dim / 2));
  for (size_t j = 0; j < inv_freq.size(); ++j)
    inv_freq[j] = std::pow(theta, -2.0 * static_cast<double>(j) / static_cast<double>(rotary_dim));
  return inv_freq;
}

// The base grows with the length, so that the slowest pair covers it: "dynamic NTK" of the Hugging Face
// library.
double dynamic_ntk_theta(const RopeSpec& spec, int64_t rope_length) {
  if (rope_length <= spec.original_max_positions) return spec.theta;
  const double stretch = static_cast<double>(rope_length) / static_cast<double>(spec.original_max_positions);
  const auto r = static_cast<double>(spec.rotary_dim);
  return spec.theta * std::pow(spec.factor * stretch - (spec.factor - 1), r / (r - 2));
}

// Lengths beyond the trained one, in doublings: the first version of Qwen (modeling_qwen.py, get_ntk_alpha).
double qwen_doublings(const RopeSpec& spec, int64_t rope_length) {
  if (rope_length <= spec.original_max_positions) return 0;
  return std::ceil(
      std::log2(static_cast<double>(rope_length) / static_cast<double>(spec.original_max_positions)));
}

double qwen_ntk_theta(const RopeSpec& spec, int64_t rope_length) {
  if (rope_length <= spec.original_max_positions) return spec.theta;
  const double alpha = std::exp2(qwen_doublings(spec, rope_length) + 1) - 1;
  const auto r = static_cast<double>(spec.rotary_dim);
  return spec.theta * std::pow(alpha, r / (r - 2));
}

double theta_of(const RopeSpec& spec, int64_t rope_length) {
  if (spec.kind == Kind::kDynamicNtk) return dynamic_ntk_theta(spec, rope_length);
  if (spec.kind == Kind::kQwenNtk) return qwen_ntk_theta(spec, rope_length);
  return spec.theta;
}

// Index of the pair that turns `rotations` times within the original length: Peng et al. 2023 (YaRN),
// section 3.2.
double yarn_pair(const RopeSpec& spec, double rotations) {
  const double wavelengths = static_cast<double>(spec.original_max_positions) / (kTwoPi * rotations);
  return static_cast<double>(spec.rotary_dim) * std::log(wavelengths) / (2 * std::log(spec.theta));
}

// Fast pairs keep their frequency, slow ones are divided by the factor, a linear ramp lies between.
void apply_yarn(const RopeSpec& spec, std::vector<double>& inv_freq) {
  double low = yarn_pair(spec, spec.beta_fast);
  double high = yarn_pair(spec, spec.beta_slow);
  if (spec.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(spec.rotary_dim - 1));
  if (low == high) high += 0.001;
  for (size_t j = 0; j < inv_freq.size(); ++j) {
    const double ramp = std::clamp((static_cast<double>(j) - low) / (high - low), 0.0, 1.0);
    inv_freq[j] = inv_freq[j] / spec.factor * ramp + inv_freq[j] * (1 - ramp);
  }
}

// As YaRN in wavelengths instead of indices: the rule that came with Llama 3.1 (its config.json, `rope_type`
// llama3).
void apply_llama3(const RopeSpec& spec, std::vector<double>& inv_freq) {
  const auto original = static_cast<double>(spec.original_max_positions);
  for (double& inv : inv_freq) {
    const double wavelength = kTwoPi / inv;
    if (wavelength < original / spec.high_freq_factor) continue;
    if (wavelength > original / spec.low_freq_factor) {
      inv /= spec.factor;
      continue;
    }
    const double smooth =
        (original / wavelength - spec.low_freq_factor) / (spec.high_freq_factor - spec.low_freq_factor);
    inv = (1 - smooth) * inv / spec.factor + smooth * inv;
  }
}

void divide_by(const std::vector<double>& factors, std::vector<double>& inv_freq) {
  LMD_CHECK(factors.size() == inv_freq.size(), factors.size(), " factors for ", inv_freq.size(), " pairs");
  for (size_t j = 0; j < inv_freq.size(); ++j) inv_freq[j] /= factors[j];
}

}  // namespace

RopeTable make_rope_table(const RopeSpec& spec, int64_t rope_length) {
  RopeTable table;
  table.inv_freq = plain_frequencies(theta_of(spec, rope_length), spec.rotary_dim);
  const bool is_long = rope_length > spec.original_max_positions;
  switch (spec.kind) {
    case Kind::kNone:
    case Kind::kDefault:
    case Kind::kDynamicNtk:
    case Kind::kQwenNtk:
      break;
    case Kind::kLinear:
      for (double& inv : table.inv_freq) inv /= spec.factor;
      break;
    case Kind::kYarn:
      apply_yarn(spec, table.inv_freq);
      table.scale = spec.attention_factor;
      break;
    case Kind::kLlama3:
      apply_llama3(spec, table.inv_freq);
      break;
    case Kind::kLongRope:  // Ding et al. 2024: one searched divisor for each pair
      divide_by(is_long ? spec.long_factor : spec.short_factor, table.inv_freq);
      table.scale = is_long ? spec.long_attention_factor : spec.attention_factor;
      break;
  }
  if (!spec.freq_factors.empty()) divide_by(spec.freq_factors, table.inv_freq);
  return table;
}

int64_t rope_length_at(const RopeSpec& spec, int64_t rope_length, int64_t length) {
  return spec.kind == Kind::kLongRope ? length : rope_length;
}

int64_t rope_table_key(const RopeSpec& spec, int64_t rope_length) {
  if (spec.kind == Kind::kDynamicNtk) return std::max(rope_length, spec.original_max_positions);
  if (spec.kind == Kind::kQwenNtk)
    return spec.original_max_positions << static_cast<int>(qwen_doublings(spec, rope_length));
  if (spec.kind == Kind::kLongRope)
    return spec.original_max_positions + (rope_length > spec.original_max_positions ? 1 : 0);
  return 0;
}

int64_t scaled_max_positions(const RopeSpec& spec, int64_t config_max_positions) {
  double scaled = static_cast<double>(config_max_positions);
  if (spec.kind == Kind::kLinear || spec.kind == Kind::kDynamicNtk) scaled *= spec.factor;
  if (spec.kind == Kind::kYarn) scaled = static_cast<double>(spec.original_max_positions) * spec.factor;
  constexpr double kMostPositions = 2147483647;  // positions are i32
  return std::max<int64_t>(1, static_cast<int64_t>(std::min(scaled, kMostPositions)));
}

}  // namespace lmdeploy
