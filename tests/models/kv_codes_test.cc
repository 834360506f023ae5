// F46: keys and values in 8 bits lose next to nothing, in 4 bits little, where keys have outliers too: biases
// of keys (Qwen 2) put them in a few elements of every key.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "backends.h"
#include "lmdeploy/core/error.h"
#include "random_llama.h"

namespace lmdeploy::testing {
namespace {

/// Llama's shape with biases, as Qwen 2 has them; element 5 of each head's keys is `factor` times as large.
MemoryCheckpoint make_outliers(float factor) {
  const LlamaShape shape = {.hidden = 256,
                            .inner = 320,
                            .layers = 4,
                            .heads = 4,
                            .kv_heads = 2,
                            .head_dim = 64,
                            .vocab = 97,
                            .attention_bias = true};
  MemoryCheckpoint checkpoint = make_random_llama(shape, 11);
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    const std::string name = cat("model.layers.", layer, ".self_attn.k_proj.bias");
    Tensor bias(DType::kF32, {shape.kv_heads * shape.head_dim});
    for (size_t i = 0; i < bias.span<float>().size(); ++i)
      bias.span<float>()[i] = i % static_cast<size_t>(shape.head_dim) == 5 ? factor : 0.1f;
    checkpoint.remove(name);
    checkpoint.add(name, std::move(bias));
  }
  return checkpoint;
}

/// log(softmax) of a row.
std::vector<double> log_chances(ConstTensorView logits, int64_t row) {
  std::vector<double> of(static_cast<size_t>(logits.cols()));
  double sum = 0;
  for (int64_t i = 0; i < logits.cols(); ++i) sum += std::exp(logits.at(row, i));
  for (int64_t i = 0; i < logits.cols(); ++i) of[static_cast<size_t>(i)] = logits.at(row, i) - std::log(sum);
  return of;
}

/// How much the perplexity of what the model itself would write rises: exp of the mean divergence.
double rise(ConstTensorView exact, ConstTensorView rounded) {
  double divergence = 0;
  for (int64_t row = 0; row < exact.rows(); ++row) {
    const std::vector<double> p = log_chances(exact, row), q = log_chances(rounded, row);
    for (size_t i = 0; i < p.size(); ++i) divergence += std::exp(p[i]) * (p[i] - q[i]);
  }
  return std::exp(divergence / static_cast<double>(exact.rows())) - 1;
}

class KvCodesTest : public ::testing::TestWithParam<std::string> {};

std::string log_of_loading(const Checkpoint& checkpoint, const Kernels& kernels, DType kv_dtype) {
  ::testing::internal::CaptureStderr();
  load_model(checkpoint, kernels, {.kv_dtype = kv_dtype});
  return ::testing::internal::GetCapturedStderr();
}

// Where they cost more, loading says so.
TEST_P(KvCodesTest, OutliersOfKeysCostLittleOrAreWarnedOf) {
  LMD_REQUIRE_GPU(GetParam());
  const Kernels& kernels = backend(GetParam());
  const std::vector<int> ids = random_ids(3, 400, 97);
  for (const float largest : {0.1f, 3.0f, 20.0f, 100.0f}) {
    const MemoryCheckpoint checkpoint = make_outliers(largest);
    const auto model = load_model(checkpoint, kernels, {.max_step_tokens = 512, .max_logit_rows = 512});
    const Tensor exact = all_logits(*model, kernels, ids, {ids.size()});
    for (const auto& [dtype, bound] : {std::pair(DType::kU8, 0.005), {DType::kU4, 0.05}}) {
      SCOPED_TRACE(cat(dtype, ", outliers of ", largest));
      const double found = rise(exact, all_logits(*model, kernels, ids, {ids.size()}, dtype));
      RecordProperty(cat("rise_", dtype, "_", largest), cat(found));
      const std::string log = log_of_loading(checkpoint, kernels, dtype);
      const bool is_little = largest <= (dtype == DType::kU8 ? 20 : 3);
      EXPECT_EQ(found <= bound, is_little) << found;
      EXPECT_EQ(log.empty(), is_little) << log;
      if (!is_little) {
        EXPECT_NE(log.find("LlamaForCausalLM with keys and values in"), std::string::npos) << log;
        EXPECT_NE(log.find(cat("biases of its keys, up to ", largest)), std::string::npos) << log;
      }
    }
    EXPECT_EQ(log_of_loading(checkpoint, kernels, DType::kF16), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, KvCodesTest, ::testing::ValuesIn([] {
                           std::vector<std::string> names = {backend_names().back()};
                           for (const std::string& name : cuda_names()) names.push_back(name);
                           return names;
                         }()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace lmdeploy::testing
