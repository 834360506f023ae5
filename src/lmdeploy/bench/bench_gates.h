// What the engine must reach on a GPU, as shares of the limits of step_limits.h.
#pragma once

#include <cstdint>
#include <optional>

#include "lmdeploy/core/dtype.h"

namespace lmdeploy {

/// Of decode steps; nothing where no gate is set.
inline std::optional<double> decode_gate(DType weights, DType kv_dtype, int64_t batch) {
  const bool in_4_bits = weights == DType::kU4G128;
  if (batch == 1 && in_4_bits) return 0.69;
  if (batch == 1 && weights == DType::kBF16) return 0.88;
  if (batch >= 16 && batch <= 256) return in_4_bits || kv_dtype == DType::kU4 ? 0.70 : 0.85;
  return std::nullopt;
}

/// Of a prompt.
inline std::optional<double> prefill_gate(int64_t tokens) {
  return tokens == 2048 ? std::optional(0.83) : std::nullopt;
}

/// Throughput of a trace with keys and values of that kind, as a multiple of that with 16 bits.
inline std::optional<double> kv_gain_gate(DType kv_dtype) {
  if (kv_dtype == DType::kU8) return 1.27;
  if (kv_dtype == DType::kU4) return 1.39;
  return std::nullopt;
}

constexpr double kIdleGateSeconds = 20e-6;  // of the device, between decode steps

}  // namespace lmdeploy
