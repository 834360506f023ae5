// Random tiny checkpoints of every architecture: the reference judges each instruction set of the CPU, and
// how a prompt is cut changes no row. Seeds are fresh in each run; LMDEPLOY_TEST_SEED=N repeats one.
#include "random_family.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends.h"
#include "family_configs.h"
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

class CudaFamilyTest : public ::testing::TestWithParam<std::string> {};

TEST_P(CudaFamilyTest, AgreesWithTheReference) {
  const std::string name = "cuda_f32";
  LMD_REQUIRE_GPU(name);
  SCOPED_TRACE(cat("repeat with LMDEPLOY_TEST_SEED=", test_seed()));
  Draw draw(test_seed());
  check_model(family_config(GetParam(), draw), test_seed(), {name});
}

INSTANTIATE_TEST_SUITE_P(Architectures, CudaFamilyTest, ::testing::ValuesIn(supported_architectures()),
                         [](const auto& test) { return test.param; });

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
