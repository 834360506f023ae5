#include "lmdeploy/bench/step_limits.h"

#include <gtest/gtest.h>

#include "lmdeploy/bench/random_checkpoint.h"

namespace lmdeploy {
namespace {

constexpr DeviceRates kRates = {
    .read_bytes_per_s = 100, .product_flops_per_s = 1000, .attention_flops_per_s = 500};

TEST(StepLimits, TheSlowerOfReadingAndComputingCounts) {
  // Weights 2 s to read, 1 s to multiply; keys 0.5 s to read, 0.2 s of attention.
  EXPECT_DOUBLE_EQ(
      step_limit({.weight_bytes = 200, .kv_bytes = 50, .flops = 1100, .attention_flops = 100}, kRates), 2.5);
  // Products 4 s, attention 3 s.
  EXPECT_DOUBLE_EQ(
      step_limit({.weight_bytes = 200, .kv_bytes = 50, .flops = 5500, .attention_flops = 1500}, kRates), 7);
}

/// Sums of a tiny model's steps, one by one.
class LimitsOfAModel : public ::testing::Test {
 protected:
  double products(const StepWork& work) const {
    return (work.flops - work.attention_flops) / kFast.product_flops_per_s;
  }
  StepWork step(int64_t batch, int64_t tokens, int64_t kv_len) const {
    return model_->step_work({.num_sequences = batch, .tokens = tokens, .kv_len = kv_len}, DType::kF16);
  }

  const DeviceRates kFast = {
      .read_bytes_per_s = 1e9, .product_flops_per_s = 1e12, .attention_flops_per_s = 5e11};
  const std::unique_ptr<Kernels> kernels_ = make_cpu_kernels(std::make_shared<ThreadPool>(1));
  const std::unique_ptr<Model> model_ =
      load_model(*make_random_checkpoint("tiny", DType::kF16, 1), *kernels_, {.max_step_tokens = 16});
};

TEST_F(LimitsOfAModel, AStaticBatchIsItsSteps) {
  const double want = step_limit(step(3, 10, 10), kFast) + step_limit(step(3, 1, 11), kFast) +
                      step_limit(step(3, 1, 12), kFast);
  EXPECT_DOUBLE_EQ(static_limit(*model_, DType::kF16, {3, 10, 3}, kFast), want);
}

TEST_F(LimitsOfAModel, ASaturatedTraceReadsKeysAndComputes) {
  const std::vector<TraceRequest> trace = {{.prompt_tokens = 10, .output_tokens = 4},
                                           {.prompt_tokens = 7, .output_tokens = 1}};
  double want = 0;
  for (const TraceRequest& request : trace) {
    const StepWork prompt = step(1, request.prompt_tokens, request.prompt_tokens);
    want += products(prompt) + prompt.attention_flops / kFast.attention_flops_per_s;
    for (int64_t t = 1; t < request.output_tokens; ++t) {
      const StepWork token = step(1, 1, request.prompt_tokens + t);
      want += products(token) + token.kv_bytes / kFast.read_bytes_per_s;
    }
  }
  EXPECT_NEAR(saturated_limit(*model_, DType::kF16, trace, kFast), want, 1e-12 * want);
}

}  // namespace
}  // namespace lmdeploy
