// One mixture of experts stored in each of the ways that exports use says the same.
#include <gtest/gtest.h>

#include <algorithm>

#include <string>
#include <vector>

#include "backends.h"
#include "lmdeploy/core/error.h"
#include "lmdeploy/models/step_runner.h"
#include "random_llama.h"

namespace lmdeploy::testing {
namespace {

Tensor copy_of(ConstTensorView view) {
  Tensor out(DType::kF32, view.shape());
  for (int64_t r = 0; r < view.rows(); ++r)
    for (int64_t c = 0; c < view.cols(); ++c) out.view().set(r, c, view.at(r, c));
  return out;
}

// [experts, rows, cols] -> [experts, cols, rows]
Tensor turned_over(ConstTensorView view) {
  const int64_t experts = view.dim(0), rows = view.dim(1), cols = view.dim(2);
  Tensor out(DType::kF32, {experts, cols, rows});
  for (int64_t e = 0; e < experts; ++e)
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c) out.view().set(e * cols + c, r, view.at(e * rows + r, c));
  return out;
}

/// The tensors of a fixture; those whose names end so are turned over and named NAME.weight.
MemoryCheckpoint rewritten(const std::string& fixture, const std::vector<std::string>& turned) {
  const auto source = open_checkpoint(find_fixture(fixture));
  MemoryCheckpoint out;
  out.mutable_config() = source->config().as_object();
  for (size_t i = 0; i < source->tensors().size(); ++i) {
    const std::string& name = source->tensors()[i].name;
    const auto ends = [&](const std::string& suffix) { return name.ends_with(suffix); };
    const bool turn = std::any_of(turned.begin(), turned.end(), ends);
    out.add(turn ? name + ".weight" : name,
            turn ? turned_over(source->tensor(i)) : copy_of(source->tensor(i)));
  }
  return out;
}

std::vector<double> logits_of(const Checkpoint& checkpoint) {
  const Kernels& kernels = backend("ref");
  const auto model = load_model(checkpoint, kernels, {.max_step_tokens = 16, .max_logit_rows = 16});
  StepRunner runner(*model, kernels, {.kv_dtype = DType::kF64, .max_tokens = 16});
  const std::vector<int> ids = random_ids(5, 9, model->spec().vocab_size);
  const StepRunner::Chunk chunk = {.ids = ids, .num_logits = 9};
  const ConstTensorView rows = runner.step({&chunk, 1});
  std::vector<double> out;
  for (int64_t r = 0; r < rows.rows(); ++r)
    for (int64_t c = 0; c < rows.cols(); ++c) out.push_back(rows.at(r, c));
  return out;
}

// Unquantised exports store the experts of gpt-oss [in, out], MXFP4 ones [out, in].
TEST(ExpertLayouts, GptOssByRowsAndByColumns) {
  const std::vector<double> by_columns = logits_of(rewritten("gpt_oss", {}));
  const std::vector<double> by_rows =
      logits_of(rewritten("gpt_oss", {"mlp.experts.gate_up_proj", "mlp.experts.down_proj"}));
  EXPECT_EQ(by_rows, by_columns);
}

}  // namespace
}  // namespace lmdeploy::testing
