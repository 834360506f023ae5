// Seconds of single steps of a model, made by hand.
#pragma once

#include <cstdint>

#include "lmdeploy/bench/bench_model.h"

namespace lmdeploy {

struct DecodeTimes {
  double step_s = 0;    // as the engine makes it: forward pass, tokens drawn, the host has them
  double device_s = 0;  // of the forward pass, steps one after the other: what the device needs
  double draw_s = 0;    // what drawing the tokens adds on the device
};

/// Medians of steps in which each of `batch` sequences gets its `context`-th token; the ones before are
/// random.
DecodeTimes decode_times(const BenchModel& bench, DType kv_dtype, int64_t batch, int64_t context);

/// Median seconds of a step that reads a whole prompt of random tokens; up to BenchModel::kPromptTokens.
double prefill_seconds(const BenchModel& bench, DType kv_dtype, int64_t tokens);

}  // namespace lmdeploy
