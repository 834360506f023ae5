#include "lmdeploy/bench/step_limits.h"

#include <algorithm>

namespace lmdeploy {
namespace {

double product_seconds(const StepWork& work, const DeviceRates& rates) {
  return (work.flops - work.attention_flops) / rates.product_flops_per_s;
}

// Sum over the keys that each output token but the first one sees: it comes from the prompt's step.
double keys_read(const TraceRequest& request) {
  const auto steps = static_cast<double>(request.output_tokens - 1);
  return steps * (static_cast<double>(request.prompt_tokens) + (steps + 1) / 2);
}

}  // namespace

double step_limit(const StepWork& work, const DeviceRates& rates) {
  return std::max(work.weight_bytes / rates.read_bytes_per_s, product_seconds(work, rates)) +
         std::max(work.kv_bytes / rates.read_bytes_per_s, work.attention_flops / rates.attention_flops_per_s);
}

double static_limit(const Model& model, DType kv_dtype, const StaticBatch& batch, const DeviceRates& rates) {
  const auto seconds = [&](int64_t tokens, int64_t kv_len) {
    return step_limit(
        model.step_work({.num_sequences = batch.batch, .tokens = tokens, .kv_len = kv_len}, kv_dtype), rates);
  };
  double sum = seconds(batch.prompt_tokens, batch.prompt_tokens);
  for (int64_t t = 1; t < batch.output_tokens; ++t) sum += seconds(1, batch.prompt_tokens + t);
  return sum;
}

double saturated_limit(const Model& model, DType kv_dtype, std::span<const TraceRequest> trace,
                       const DeviceRates& rates) {
  const StepWork token = model.step_work({.kv_len = 1}, kv_dtype);
  double sum = 0;
  for (const TraceRequest& request : trace) {
    const StepWork prompt =
        model.step_work({.tokens = request.prompt_tokens, .kv_len = request.prompt_tokens}, kv_dtype);
    sum += product_seconds(prompt, rates) + prompt.attention_flops / rates.attention_flops_per_s;
    sum += static_cast<double>(request.output_tokens - 1) * product_seconds(token, rates);
    sum += keys_read(request) * token.kv_bytes / rates.read_bytes_per_s;
  }
  return sum;
}

}  // namespace lmdeploy
