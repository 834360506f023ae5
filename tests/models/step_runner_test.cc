// Sequences that are taken back.
#include "lmdeploy/models/step_runner.h"

#include <gtest/gtest.h>

#include "backends.h"
#include "random_llama.h"

namespace lmdeploy::testing {
namespace {

TEST(StepRunner, ARewoundSequenceGoesOnAsBefore) {
  const Kernels& kernels = backend("ref");
  const auto model = load_model(make_random_llama({}, 1), kernels, {});
  StepRunner runner(*model, kernels, {.kv_dtype = DType::kF64, .max_tokens = 16});
  const std::vector<int> prompt = {1, 5, 2}, next = {7}, other = {9};
  const auto step = [&](const std::vector<int>& ids) {
    const StepRunner::Chunk chunk = {.ids = ids};
    const ConstTensorView row = runner.step({&chunk, 1});
    std::vector<double> out;
    for (int64_t c = 0; c < row.cols(); ++c) out.push_back(row.at(0, c));
    return out;
  };
  step(prompt);
  const std::vector<double> want = step(next);
  EXPECT_NE(step(other), want);
  runner.rewind(0, 3);
  EXPECT_EQ(step(next), want);
}

}  // namespace
}  // namespace lmdeploy::testing
