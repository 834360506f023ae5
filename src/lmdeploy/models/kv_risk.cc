#include "lmdeploy/models/kv_risk.h"

#include <algorithm>
#include <cmath>

#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

struct MeasuredRise {
  std::string_view architecture;  // begins with it
  DType kv_dtype;
  std::string_view what;
};
// Perplexity of 2,000 tokens (docs/cpu_log.md); reference_test measures it again.
constexpr MeasuredRise kMeasured[] = {{"Gemma3", DType::kU4, "perplexity of Gemma 3 270M rises by 16 %"}};

}  // namespace

void KvRisk::add_key_bias(std::span<const float> bias) {
  for (const float value : bias) largest_bias_ = std::max(largest_bias_, std::abs(value));
}

std::string KvRisk::warning(DType kv_dtype, std::string_view architecture) const {
  constexpr float kMostIn8Bits = 20, kMostIn4Bits = 3;
  const bool in_8_bits = kv_dtype == DType::kU8;
  if (!in_8_bits && kv_dtype != DType::kU4) return "";
  const std::string begin = cat(architecture, " with keys and values in ", in_8_bits ? 8 : 4, " bits: ");
  if (largest_bias_ > (in_8_bits ? kMostIn8Bits : kMostIn4Bits))
    return cat(begin, "biases of its keys, up to ", largest_bias_,
               ", leave few steps for the rest, answers may be worse; use quant_policy ",
               in_8_bits || largest_bias_ > kMostIn8Bits ? "0" : "8 or 0");
  for (const MeasuredRise& rise : kMeasured)
    if (rise.kv_dtype == kv_dtype && architecture.starts_with(rise.architecture))
      return cat(begin, rise.what, "; use quant_policy ", in_8_bits ? "0" : "8 or 0");
  return "";
}

}  // namespace lmdeploy
