// A rank that fails or does not come back: every step ends, with an error that says which rank and which
// step.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "lmdeploy/core/error.h"
#include "lmdeploy/kernels/ref/ref_kernels.h"
#include "lmdeploy/models/step_runner.h"
#include "random_llama.h"
#include "ranks.h"

namespace lmdeploy::testing {
namespace {

using std::chrono::milliseconds;
constexpr LlamaShape kShape = {.hidden = 32, .inner = 48, .heads = 4, .kv_heads = 4, .head_dim = 8};

/// What goes wrong in the norms of a rank, or while its weights are packed.
enum class Harm { kNone, kFails, kHangs, kPacksNothing };

class HarmedKernels final : public RefKernels {
 public:
  HarmedKernels(std::shared_ptr<ThreadPool> threads, const std::atomic<Harm>& harm)
      : RefKernels(threads), ref_(std::move(threads)), harm_(harm) {}

 private:
  std::unique_ptr<PackedWeight> do_pack_weight(std::span<const ConstTensorView> parts, int64_t,
                                               std::span<const int32_t> column_order) const override {
    if (harm_ == Harm::kPacksNothing) throw Error(ErrorCode::kResourceExhausted, "no memory for the weight");
    return ref_.pack_weight(parts, column_order);
  }
  void do_norm(TensorView out, ConstTensorView x, ConstTensorView weight,
               const NormOptions& options) const override {
    if (harm_ == Harm::kFails) throw Error(ErrorCode::kResourceExhausted, "no memory for the norm");
    while (harm_ == Harm::kHangs) std::this_thread::sleep_for(milliseconds(1));
    ref_.norm(out, x, weight, options);
  }

  RefKernels ref_;
  const std::atomic<Harm>& harm_;
};

/// Two ranks, the second of which can be harmed.
class LostRankTest : public ::testing::TestWithParam<size_t> {
 protected:
  LostRankTest() : checkpoint_(make_random_llama(kShape, 1)) {}
  ~LostRankTest() override { harm_ = Harm::kNone; }  // before the model waits for its threads

  void load(milliseconds timeout, bool all_harmed = false) {
    std::vector<std::unique_ptr<Kernels>> kernels;
    for (size_t rank = 0; rank < 2; ++rank)
      kernels.push_back(std::make_unique<HarmedKernels>(std::make_shared<ThreadPool>(1),
                                                        all_harmed || rank == GetParam() ? harm_ : no_harm_));
    ranked_ = std::make_unique<RankedModel>(checkpoint_, std::move(kernels),
                                            LoadOptions{.max_step_tokens = 8, .max_logit_rows = 8}, timeout);
    runner_ = std::make_unique<StepRunner>(
        ranked_->model(), ranked_->kernels(),
        StepRunner::Options{.kv_dtype = DType::kF64, .max_tokens = 8, .block_len = 4});
  }
  /// One token; what it throws, or "".
  std::string step() {
    runner_->start(0, 1);
    const std::vector<int> ids = {7};
    const StepRunner::Chunk chunk = {.ids = ids};
    try {
      runner_->step({&chunk, 1});
      return "";
    } catch (const Error& error) {
      code_ = error.code();
      return error.what();
    }
  }
  std::string lost() const { return cat("rank ", GetParam()); }
  static void expect_words(const std::string& text, const std::vector<std::string>& words) {
    for (const std::string& word : words)
      EXPECT_NE(text.find(word), std::string::npos) << word << " in " << text;
  }

  const MemoryCheckpoint checkpoint_;
  std::atomic<Harm> harm_ = Harm::kNone, no_harm_ = Harm::kNone;
  std::unique_ptr<RankedModel> ranked_;
  std::unique_ptr<StepRunner> runner_;
  ErrorCode code_ = ErrorCode::kInvalidData;
};

TEST_P(LostRankTest, ARankThatFailsEndsTheStepAndNoOther) {
  load(milliseconds(60'000));
  EXPECT_EQ(step(), "");
  harm_ = Harm::kFails;
  const auto start = std::chrono::steady_clock::now();
  expect_words(step(), {lost(), "step 2", "no memory for the norm"});
  EXPECT_EQ(code_, ErrorCode::kResourceExhausted);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  harm_ = Harm::kNone;
  EXPECT_EQ(step(), "");
}

TEST_P(LostRankTest, ARankThatHangsIsGivenUp) {
  load(milliseconds(200));
  harm_ = Harm::kHangs;
  expect_words(step(), {lost(), "step 1", "200 ms"});
  EXPECT_EQ(code_, ErrorCode::kInternal);
  expect_words(step(), {lost(), "still in step 1"});
  harm_ = Harm::kNone;
  const auto start = std::chrono::steady_clock::now();
  while (!step().empty()) {
    ASSERT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
    std::this_thread::sleep_for(milliseconds(1));
  }
}

// F58: before the first step.
TEST_P(LostRankTest, ARankThatFailsWhileLoadingIsNamed) {
  harm_ = Harm::kPacksNothing;
  try {
    load(milliseconds(60'000));
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
    EXPECT_EQ(error.what(), cat("tensor parallelism: ", lost(),
                                " failed while weights were loaded: no memory for the weight"));
  }
}

// As ranks do that wait for each other on their devices.
TEST_P(LostRankTest, AStepThatNoRankEndsIsGivenUp) {
  load(milliseconds(100), /*all_harmed=*/true);
  harm_ = Harm::kHangs;
  expect_words(step(), {"rank 0, 1 did not end step 1 within 500 ms"});
  EXPECT_EQ(code_, ErrorCode::kInternal);
  harm_ = Harm::kNone;
  const auto start = std::chrono::steady_clock::now();
  while (!step().empty()) {
    ASSERT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
    std::this_thread::sleep_for(milliseconds(1));
  }
}

TEST_P(LostRankTest, AModelEndsAfterAnError) {
  load(milliseconds(60'000));
  harm_ = Harm::kFails;
  EXPECT_NE(step(), "");
  runner_.reset();
  ranked_.reset();
}

TEST_P(LostRankTest, AModelEndsUnused) {
  load(milliseconds(60'000));
  runner_.reset();
  ranked_.reset();
}

INSTANTIATE_TEST_SUITE_P(Ranks, LostRankTest, ::testing::Values(0, 1),
                         [](const auto& test) { return cat("Rank", test.param); });

}  // namespace
}  // namespace lmdeploy::testing
