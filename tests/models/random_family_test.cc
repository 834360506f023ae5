// Random tiny checkpoints of every architecture: the reference judges each instruction set of the CPU, and
// how a prompt is cut changes no row. Seeds are fresh in each run; LMDEPLOY_TEST_SEED=N repeats one.
#include "random_family.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "backends.h"
#include "family_configs.h"
#include "half_judge.h"
#include "lmdeploy/core/error.h"
#include "lmdeploy/models/step_runner.h"
#include "route_recorder.h"

namespace lmdeploy::testing {
namespace {

constexpr int64_t kTokens = 27;  // past every window and every trained length of family_configs.cc
constexpr double kShareOfLargest = 2e-4;
constexpr int kModels = 4;  // of each architecture

std::unique_ptr<Model> load(const Checkpoint& checkpoint, const Kernels& kernels) {
  return load_model(checkpoint, kernels, {.max_step_tokens = kTokens, .max_logit_rows = kTokens});
}

/// What the reference says, and the rows before the first near tie of a router: after it another expert may
/// be right too, and later tokens see its work.
struct Judged {
  Tensor logits;
  int64_t comparable = 0;
};

Judged judge(const Checkpoint& checkpoint, const std::vector<int>& ids) {
  const RouteRecorder kernels(std::make_shared<ThreadPool>(1));
  const auto model = load(checkpoint, kernels);
  Judged judged;
  judged.logits = all_logits(*model, kernels, ids, {ids.size()});
  judged.comparable = kernels.first_near_tie(kTokens);
  return judged;
}

void expect_near(ConstTensorView got, ConstTensorView want, int64_t rows) {
  ASSERT_EQ(got.shape(), want.shape());
  double largest = 0;
  for (int64_t r = 0; r < want.rows(); ++r)
    for (int64_t c = 0; c < want.cols(); ++c) largest = std::max(largest, std::abs(want.at(r, c)));
  EXPECT_GT(largest, 1e-3);  // a model that says nothing would agree with anything
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < want.cols(); ++c)
      ASSERT_NEAR(got.at(r, c), want.at(r, c), kShareOfLargest * largest) << "token " << r << ", id " << c;
}

bool same_bytes(const Tensor& a, const Tensor& b) {
  return std::ranges::equal(a.span<std::byte>(), b.span<std::byte>());
}

/// All checks of one model.
void check_model(const JsonObject& config, uint64_t seed, const std::vector<std::string>& names) {
  SCOPED_TRACE(to_json_text(Json(config)));
  const MemoryCheckpoint checkpoint = make_random_family(config, seed);
  const int64_t vocab = load(checkpoint, backend("ref"))->spec().vocab_size;
  // A near tie at the beginning leaves little to compare: of several prompts the one that leaves most.
  constexpr uint64_t kPrompts = 16;
  std::vector<int> ids;
  Judged judged;
  for (uint64_t attempt = 0; judged.comparable < kTokens / 2 && attempt < kPrompts; ++attempt) {
    const std::vector<int> prompt = random_ids(seed + attempt, kTokens, vocab);
    Judged next = judge(checkpoint, prompt);
    if (next.comparable <= judged.comparable) continue;
    ids = prompt;
    judged = std::move(next);
  }
  ASSERT_GT(judged.comparable, 0) << "every prompt begins with a near tie";
  for (const std::string& name : names) {
    if (name == "ref") continue;
    SCOPED_TRACE(name);
    const Kernels& kernels = backend(name);
    const auto model = load(checkpoint, kernels);
    const Tensor whole = all_logits(*model, kernels, ids, {ids.size()});
    expect_near(whole, judged.logits, judged.comparable);
    if (name.starts_with("cuda")) {  // a library's sums depend on the number of tokens
      expect_near(all_logits(*model, kernels, ids, {5, 1, 9}), judged.logits, judged.comparable);
      continue;
    }
    EXPECT_TRUE(same_bytes(all_logits(*model, kernels, ids, {5, 1, 9}), whole)) << "in uneven pieces";
    EXPECT_TRUE(same_bytes(all_logits(*model, kernels, ids, {1}), whole)) << "token by token";
  }
}

class RandomFamilyTest : public ::testing::TestWithParam<std::string> {};

TEST_P(RandomFamilyTest, AgreesWithTheReference) {
  SCOPED_TRACE(cat("repeat with LMDEPLOY_TEST_SEED=", test_seed()));
  for (int i = 0; i < kModels; ++i) {
    const uint64_t seed = kModels * test_seed() + static_cast<uint64_t>(i);
    Draw draw(seed);
    check_model(family_config(GetParam(), draw), seed, backend_names());
  }
}

INSTANTIATE_TEST_SUITE_P(Architectures, RandomFamilyTest, ::testing::ValuesIn(supported_architectures()),
                         [](const auto& test) { return test.param; });

class CudaFamilyTest : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {};

/// `kernels` in 16 bits, whose weights and activations have `dtype`.
void check_half_model(const JsonObject& config, uint64_t seed, const Kernels& kernels, DType dtype) {
  SCOPED_TRACE(to_json_text(Json(config)));
  const MemoryCheckpoint checkpoint = make_random_family(config, seed);
  HalfJudge judge(checkpoint, dtype, {.max_step_tokens = kTokens, .max_logit_rows = kTokens});
  const int64_t vocab = judge.spec().vocab_size;
  const auto judged =
      judge.judge_prompts({random_ids(seed, kTokens, vocab), random_ids(seed + 1, kTokens, vocab)});
  const auto model = load(checkpoint, kernels);
  HalfComparison seen = expect_half_logits(judged, *model, kernels);
  seen.worst = std::max(seen.worst, expect_half_logits(judged, *model, kernels, {5, 1, 9}).worst);
  ::testing::Test::RecordProperty("compared", cat(seen.compared, " of ", seen.rows));
  ::testing::Test::RecordProperty("error_over_bound", cat(seen.worst));
  if (seen.compared == 0) GTEST_SKIP() << "the routers' choice is a near tie for every token";
}

TEST_P(CudaFamilyTest, AgreesWithTheReference) {
  const auto& [architecture, name] = GetParam();
  LMD_REQUIRE_GPU(name);
  SCOPED_TRACE(cat("repeat with LMDEPLOY_TEST_SEED=", test_seed()));
  Draw draw(test_seed());
  const JsonObject config = family_config(architecture, draw);
  if (!half_dtype_of(name)) return check_model(config, test_seed(), {name});
  check_half_model(config, test_seed(), backend(name), *half_dtype_of(name));
}

INSTANTIATE_TEST_SUITE_P(Architectures, CudaFamilyTest,
                         ::testing::Combine(::testing::ValuesIn(supported_architectures()),
                                            ::testing::ValuesIn(cuda_names())),
                         [](const auto& test) {
                           return std::get<0>(test.param) + "_" + std::get<1>(test.param);
                         });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CudaFamilyTest);

class HalfJudgeTest : public ::testing::TestWithParam<std::tuple<std::string, DType>> {};

// The bounds that judge a device hold for the reference, each of whose ops rounds to nearest.
TEST_P(HalfJudgeTest, RoundingToNearestIsWithinItsBounds) {
  const auto& [architecture, dtype] = GetParam();
  SCOPED_TRACE(cat("repeat with LMDEPLOY_TEST_SEED=", test_seed()));
  Draw draw(test_seed());
  const JsonObject config = family_config(architecture, draw);
  check_half_model(config, test_seed(), backend_or_nearest(cat("nearest_", dtype)), dtype);
}

INSTANTIATE_TEST_SUITE_P(Architectures, HalfJudgeTest,
                         ::testing::Combine(::testing::ValuesIn(supported_architectures()),
                                            ::testing::Values(DType::kF16, DType::kBF16)),
                         [](const auto& test) {
                           return cat(std::get<0>(test.param), "_", std::get<1>(test.param));
                         });

TEST(RandomFamily, EveryArchitectureOfTheRegistryIsDrawn) {
  EXPECT_EQ(drawn_architectures(), supported_architectures());
}

TEST(RandomFamily, SixtyOneLayersOfTwoKinds) {
  SCOPED_TRACE(cat("repeat with LMDEPLOY_TEST_SEED=", test_seed()));
  Draw draw(test_seed());
  check_model(family_config("Gemma3ForCausalLM", draw, /*layers=*/61), test_seed(), backend_names());
}

}  // namespace
}  // namespace lmdeploy::testing
