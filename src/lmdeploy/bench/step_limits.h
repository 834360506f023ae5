// What steps and whole traces take at the least on a device whose rates are known.
#pragma once

#include <cstdint>
#include <span>

#include "lmdeploy/bench/request_trace.h"
#include "lmdeploy/models/model.h"

namespace lmdeploy {

/// A device's ceilings, measured in the same run as what is compared with them.
struct DeviceRates {
  double read_bytes_per_s = 0;
  double product_flops_per_s = 0;    // of matrix products in the numbers that the weights have
  double attention_flops_per_s = 0;  // of products in the numbers that activations have
};

/// Sequences of one length that are read in and then decoded together.
struct StaticBatch {
  int64_t batch = 1, prompt_tokens = 1, output_tokens = 1;
};

/// max(weights by reading, products) + max(keys and values by reading, attention), in seconds: for a decode
/// step max(W / BW, 2 P B / F) + B S kv / BW, for a prompt (2 P S) / F + attention.
double step_limit(const StepWork& work, const DeviceRates& rates);

/// All prompts in one step, then a step for each further token.
double static_limit(const Model& model, DType kv_dtype, const StaticBatch& batch, const DeviceRates& rates);

/// Of requests that are always many enough to hide the reading of weights (saturated serving): products of
/// all tokens, attention of the prompts, and keys and values read for each output token.
double saturated_limit(const Model& model, DType kv_dtype, std::span<const TraceRequest> trace,
                       const DeviceRates& rates);

}  // namespace lmdeploy
