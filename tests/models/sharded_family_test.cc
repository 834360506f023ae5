// A model that ranks share says what it says whole: every architecture, on as many ranks as its heads allow.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "family_configs.h"
#include "lmdeploy/core/error.h"
#include "random_family.h"
#include "ranks.h"
#include "route_recorder.h"

namespace lmdeploy::testing {
namespace {

constexpr int64_t kTokens = 27;  // as random_family_test.cc
const LoadOptions kOptions = {.max_step_tokens = kTokens, .max_logit_rows = kTokens};

/// Ranks add up parts of sums that are one sum in the whole model, which is a change of the order of sums, as
/// back ends have other orders than the reference: random_family_test.cc grants those 2e-4 in f32, whose
/// epsilon is 2^29 times that of f64.
double share_of_largest(DType activations) { return 2e-4 * epsilon(activations) / epsilon(DType::kF32); }

void expect_near(ConstTensorView got, ConstTensorView want, int64_t rows, double share) {
  ASSERT_EQ(got.shape(), want.shape());
  double largest = 0;
  for (int64_t r = 0; r < want.rows(); ++r)
    for (int64_t c = 0; c < want.cols(); ++c) largest = std::max(largest, std::abs(want.at(r, c)));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < want.cols(); ++c)
      ASSERT_NEAR(got.at(r, c), want.at(r, c), share * largest) << "token " << r << ", id " << c;
}

/// On every number of ranks that the model can have, up to `most`; how many there are.
int check_ranks(const MemoryCheckpoint& checkpoint, uint64_t seed, const std::vector<std::string>& names,
                int64_t most) {
  const RouteRecorder whole_kernels(std::make_shared<ThreadPool>(1));
  const auto whole = load_model(checkpoint, whole_kernels, kOptions);
  const std::vector<int> ids = random_ids(seed, kTokens, whole->spec().vocab_size);
  const Tensor want = all_logits(*whole, whole_kernels, ids, {ids.size()});
  const int64_t comparable = whole_kernels.first_near_tie(kTokens);
  int checked = 0;
  for (int64_t ranks = 2; ranks <= most; ++ranks) {
    if (!refusal_of_ranks(checkpoint, ranks).empty()) continue;
    ++checked;
    for (const std::string& name : names) {
      SCOPED_TRACE(cat(ranks, " ranks on ", name));
      RankedModel ranked(checkpoint, name, ranks, kOptions);
      EXPECT_EQ(ranked.model().spec().vocab_size, whole->spec().vocab_size);
      const bool is_exact = name == "ref";
      const Tensor got = all_logits(ranked.model(), ranked.kernels(), ids, {5, 1, 9});
      expect_near(got, want, is_exact ? kTokens : comparable,
                  share_of_largest(ranked.kernels().activation_dtype()));
    }
  }
  return checked;
}

class ShardedFamilyTest : public ::testing::TestWithParam<std::string> {};

// The norms of their q and k run over all heads.
bool is_refused(const std::string& architecture) {
  return architecture == "Olmo2ForCausalLM" || architecture == "OlmoeForCausalLM";
}

void check_family(const std::string& architecture, const std::vector<std::string>& names, int64_t most) {
  SCOPED_TRACE(cat("repeat with LMDEPLOY_TEST_SEED=", test_seed()));
  constexpr int kEnough = 3;  // models and ranks
  constexpr uint64_t kDraws = 40;
  int checked = 0;
  for (uint64_t i = 0; checked < kEnough && i < kDraws; ++i) {
    const uint64_t seed = kDraws * test_seed() + i;
    Draw draw(seed);
    const JsonObject config = family_config(architecture, draw);
    SCOPED_TRACE(to_json_text(Json(config)));
    checked += check_ranks(make_random_family(config, seed), seed, names, most);
    if (::testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GE(checked, kEnough);
}

TEST_P(ShardedFamilyTest, SaysWhatItSaysWhole) {
  if (is_refused(GetParam())) {
    Draw draw(1);
    const std::string refusal = refusal_of_ranks(make_random_family(family_config(GetParam(), draw), 1), 2);
    EXPECT_NE(refusal.find("norms of q and k"), std::string::npos) << refusal;
    return;
  }
  check_family(GetParam(), {backend_names().front(), backend_names().back()}, /*most=*/6);
}

INSTANTIATE_TEST_SUITE_P(Architectures, ShardedFamilyTest, ::testing::ValuesIn(supported_architectures()),
                         [](const auto& test) { return test.param; });

class CudaShardedFamilyTest : public ::testing::TestWithParam<std::string> {};

TEST_P(CudaShardedFamilyTest, SaysWhatItSaysWhole) {
  const std::string name = "cuda_f32";
  LMD_REQUIRE_GPU(name);
  if (!is_refused(GetParam())) check_family(GetParam(), {name}, /*most=*/4);
}

INSTANTIATE_TEST_SUITE_P(Architectures, CudaShardedFamilyTest, ::testing::ValuesIn(supported_architectures()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace lmdeploy::testing
