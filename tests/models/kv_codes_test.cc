// F46: keys and values in 8 bits lose next to nothing, in 4 bits little, where keys have outliers too: biases
// of keys (Qwen 2) put them in a few elements of every key.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends.h"
#include "lmdeploy/core/error.h"
#include "lmdeploy/models/kv_risk.h"
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

// Where they cost more there is a warning.
TEST_P(KvCodesTest, OutliersOfKeysCostLittleOrAreWarnedOf) {
  LMD_REQUIRE_GPU(GetParam());
  const Kernels& kernels = backend(GetParam());
  const std::vector<int> ids = random_ids(3, 400, 97);
  for (const float largest : {0.1f, 3.0f, 20.0f, 100.0f}) {
    const MemoryCheckpoint checkpoint = make_outliers(largest);
    const auto model = load_model(checkpoint, kernels, {.max_step_tokens = 512, .max_logit_rows = 512});
    const Tensor exact = all_logits(*model, kernels, ids, {ids.size()});
    KvRisk risk;
    risk.add_key_bias(std::vector{0.1f, -largest});
    for (const auto& [dtype, bound] : {std::pair(DType::kU8, 0.005), {DType::kU4, 0.05}}) {
      SCOPED_TRACE(cat(dtype, ", outliers of ", largest));
      const double found = rise(exact, all_logits(*model, kernels, ids, {ids.size()}, dtype));
      RecordProperty(cat("rise_", dtype, "_", largest), cat(found));
      EXPECT_EQ(found > bound, !risk.warning(dtype, "Some").empty()) << found;
    }
  }
}

TEST(KvCodes, LoadingWarns) {
  const MemoryCheckpoint checkpoint = make_outliers(25);
  const auto log_of = [&](std::optional<DType> kv_dtype) {
    ::testing::internal::CaptureStderr();
    load_model(checkpoint, backend("ref"), {.kv_dtype = kv_dtype});
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(log_of(std::nullopt) + log_of(DType::kF16), "");
  for (const auto& [dtype, bits] : {std::pair(DType::kU8, 8), {DType::kU4, 4}}) {
    const std::string log = log_of(dtype);
    EXPECT_NE(log.find(cat("LlamaForCausalLM with keys and values in ", bits, " bits")), std::string::npos)
        << log;
    EXPECT_NE(log.find("biases of its keys, up to 25,"), std::string::npos) << log;
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
