// Draws on a device are the host sampler's.
//
// Weights are equal to the bit, sums of n <= 2^18 of them differ by at most n * 2^-53 of the whole. A draw
// falls between two such borders of one token with probability n * 2^-52, beside one of n borders with n^2 *
// 2^-52: below 2^-16 a draw where all tokens count, far less where a few hundred do. So equal tokens are
// expected everywhere; only a few dozen draws here are from that many tokens.
#include "lmdeploy/engine/step_sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>

#include "lmdeploy/core/random.h"

namespace lmdeploy {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(AppendEdits, DoWhatProcessLogitsDoes) {
  constexpr size_t kVocab = 50;
  Rng rng(1);
  const std::vector<int> tokens = {3, 9, 3, 7, 7, 7, 20, 3};
  const std::vector<int> banned = {5, 7, -1, 50};
  std::vector<int32_t> counts(kVocab), places(kVocab);
  for (int round = 0; round < 64; ++round) {
    SamplingParams params;
    if (round & 1) params.repetition_penalty = 1.3f;
    if (round & 2) params.presence_penalty = 0.7f;
    if (round & 4) params.frequency_penalty = -0.3f;
    if (round & 8) params.logit_bias = {{7, 1.5f}, {11, -3}};
    if (round & 16) params.bad_words = {{20, 3}, {4}, {20, 20, 9}};
    SampleInput input;
    input.params = &params;
    input.tokens = tokens;
    input.generated_begin = 4;
    if (round & 32) input.banned_ids = banned;
    std::vector<float> want(kVocab);
    for (float& logit : want) logit = static_cast<float>(8 * rng.uniform() - 4);
    std::vector<float> got = want;
    process_logits(want, input, counts);
    std::vector<LogitEdit> edits = {{.id = 1}};  // another row's
    ASSERT_TRUE(append_edits(input, places, edits));
    for (size_t i = 1; i < edits.size(); ++i) {
      float& logit = got[static_cast<size_t>(edits[i].id)];
      logit = logit < 0 ? logit * edits[i].repetition : logit / edits[i].repetition;
      logit -= edits[i].penalty;
      logit += edits[i].bias;
    }
    EXPECT_EQ(got, want) << "round " << round;
    EXPECT_EQ(places, std::vector<int32_t>(kVocab)) << "round " << round;
  }
}

TEST(AppendEdits, TwoBiasesOfOneIdAreForTheHost) {
  SamplingParams params;
  params.repetition_penalty = 2;
  params.logit_bias = {{1, 1}, {2, 1}, {1, 1}};
  const std::vector<int> tokens = {3};
  SampleInput input;
  input.params = &params;
  input.tokens = tokens;
  std::vector<int32_t> places(5);
  std::vector<LogitEdit> edits = {{.id = 4}};
  EXPECT_FALSE(append_edits(input, places, edits));
  EXPECT_EQ(edits.size(), 1u);
  EXPECT_EQ(places, std::vector<int32_t>(5));
}

/// Rows on the GPU, and on the host for the judge.
class CudaStepSampler : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const CudaStatus status = cuda_status(); status.devices.empty()) GTEST_SKIP() << status.problem;
    kernels_ = make_cuda_kernels(std::make_shared<ThreadPool>(2), DType::kF32);
  }

  // Both samplers' results of `inputs` agree; returns the device's.
  std::vector<SampleResult> compare(const Tensor& rows, const std::vector<SampleInput>& inputs) {
    const Tensor copy(DType::kF32, rows.shape(), kernels_->allocator());
    kernels_->copy_from_host(copy, rows);
    StepLogits logits(*kernels_);
    logits.set(copy);
    StepSampler sampler(*kernels_);
    Sampler judge(kernels_->threads());
    const auto got = sampler.sample(logits, inputs);
    const auto want = judge.sample(rows, inputs);
    for (size_t i = 0; i < inputs.size(); ++i) {
      const SamplingParams& p = *inputs[i].params;
      EXPECT_EQ(got[i].token, want[i].token)
          << "input " << i << " of " << rows.dim(1) << " tokens: temperature " << p.temperature << ", top_k "
          << p.top_k << ", top_p " << p.top_p << ", min_p " << p.min_p << ", draw " << inputs[i].draw;
      EXPECT_EQ(got[i].error, want[i].error) << "input " << i;
    }
    return {got.begin(), got.end()};
  }

  std::unique_ptr<Kernels> kernels_;
};

std::vector<SamplingParams> sampling_params() {
  std::vector<SamplingParams> all;
  for (const float temperature : {0.0f, 0.05f, 0.7f, 1.0f, 3.0f, 1e-30f, 1e30f})
    for (const int top_k : {0, 1, 2, 40, 1000})
      for (const float top_p : {1.0f, 0.9f, 0.999999f, 1e-6f})
        for (const float min_p : {0.0f, 0.1f, 1.0f}) {
          SamplingParams p;
          p.temperature = temperature, p.top_k = top_k, p.top_p = top_p, p.min_p = min_p;
          p.seed = all.size();
          all.push_back(p);
        }
  return all;
}

enum class RowKind { kUniform, kPeaked, kEqual, kTies, kHoles };

float random_logit(Rng& rng, RowKind shape) {
  const double u = rng.uniform();
  switch (shape) {
    case RowKind::kPeaked:
      return static_cast<float>(4 * (u - 0.5) + (u > 0.999 ? 12 * rng.uniform() : 0));
    case RowKind::kEqual:
      return -2.5f;
    case RowKind::kTies:
      return static_cast<float>(std::floor(6 * u) - 3);
    case RowKind::kHoles:
      return u < 0.5 ? -kInf : static_cast<float>(20 * (u - 0.9));
    case RowKind::kUniform:
      break;
  }
  return static_cast<float>(12 * (u - 0.5));
}

TEST_F(CudaStepSampler, DrawsWhatTheHostDraws) {
  const std::vector<SamplingParams> params = sampling_params();
  Rng rng(11);
  for (const int64_t vocab_size : {1, 2, 37, 1000, 4096, 32000, 151937})
    for (const RowKind shape :
         {RowKind::kUniform, RowKind::kPeaked, RowKind::kEqual, RowKind::kTies, RowKind::kHoles}) {
      const auto count = static_cast<int64_t>(vocab_size > 5000 ? 60 : params.size());
      const Tensor rows(DType::kF32, {count, vocab_size});
      for (float& logit : rows.span<float>()) logit = random_logit(rng, shape);
      std::vector<SampleInput> inputs(static_cast<size_t>(count));
      for (size_t i = 0; i < inputs.size(); ++i) {
        rows.view().row<float>(static_cast<int64_t>(i))[vocab_size - 1] = 1;  // one is finite
        inputs[i].row = static_cast<int64_t>(inputs.size() - 1 - i);
        inputs[i].params = &params[vocab_size > 5000 ? rng.below(params.size()) : i];
        inputs[i].draw = rng.below(1000);
      }
      SCOPED_TRACE(cat("shape ", static_cast<int>(shape)));
      compare(rows, inputs);
    }
}

TEST_F(CudaStepSampler, PenaltiesBiasesAndBans) {
  constexpr int64_t kVocab = 1003;
  Rng rng(3);
  std::vector<int> tokens(700);
  for (int& token : tokens) token = static_cast<int>(rng.below(300));
  const std::vector<int> banned = {5, 7, 1002, -1, 1003};
  std::vector<SamplingParams> params(64);
  std::vector<SampleInput> inputs(params.size());
  const Tensor rows(DType::kF32, {static_cast<int64_t>(params.size()), kVocab});
  for (float& logit : rows.span<float>()) logit = random_logit(rng, RowKind::kUniform);
  for (size_t i = 0; i < params.size(); ++i) {
    SamplingParams& p = params[i];
    p.temperature = i % 2 == 0 ? 0 : 0.8f;
    p.seed = i;
    if (i & 2) p.repetition_penalty = 1.2f;
    if (i & 4) p.presence_penalty = 0.4f, p.frequency_penalty = 0.01f;
    if (i & 8) p.logit_bias = {{400, 9}, {401, 9}};
    if (i == 9) p.logit_bias.push_back({400, 1});  // for the host
    if (i & 16) p.bad_words = {{400}, {401, 402}};
    if (i & 1) p.top_k = 50;
    inputs[i].row = static_cast<int64_t>(i);
    inputs[i].params = &p;
    inputs[i].tokens = std::span(tokens).first(10 * i);
    inputs[i].generated_begin = static_cast<int64_t>(5 * i);
    if (i & 32) inputs[i].banned_ids = banned;
    inputs[i].num_logprobs = i == 12 ? 3 : -1;
  }
  const std::vector<SampleResult> results = compare(rows, inputs);
  EXPECT_EQ(results[12].logprobs.top.size(), 3u);
}

TEST_F(CudaStepSampler, BrokenRowsEndAlone) {
  constexpr int64_t kVocab = 5000;
  const Tensor rows(DType::kF32, {6, kVocab});
  Rng rng(4);
  for (float& logit : rows.span<float>()) logit = random_logit(rng, RowKind::kUniform);
  const auto row = [&](int64_t i) { return rows.view().row<float>(i); };
  row(0)[4999] = std::nanf("");
  row(1)[17] = kInf;
  std::fill_n(row(2), kVocab, -kInf);
  std::fill_n(row(3), kVocab, -kInf);
  row(3)[7] = 1;
  SamplingParams params;
  params.temperature = 1;
  const std::vector<int> banned = {7};
  std::vector<SampleInput> inputs(6);
  for (size_t i = 0; i < inputs.size(); ++i) {
    inputs[i].row = static_cast<int64_t>(i);
    inputs[i].params = &params;
  }
  inputs[3].banned_ids = banned;
  const std::vector<SampleResult> results = compare(rows, inputs);
  for (size_t i = 0; i < results.size(); ++i) EXPECT_EQ(results[i].error.empty(), i >= 4) << i;
}

// A row that is kept stays as it was; the device's edits stay in the others.
TEST_F(CudaStepSampler, KeptRowsAreNotChanged) {
  const Tensor rows(DType::kF32, {2, 8});
  for (float& logit : rows.span<float>()) logit = 1;
  SamplingParams params;
  params.logit_bias = {{3, 5}};
  std::vector<SampleInput> inputs(2);
  for (size_t i = 0; i < 2; ++i) {
    inputs[i].row = static_cast<int64_t>(i);
    inputs[i].params = &params;
  }
  inputs[1].keeps_row = true;
  const Tensor copy(DType::kF32, rows.shape(), kernels_->allocator());
  kernels_->copy_from_host(copy, rows);
  StepLogits logits(*kernels_);
  logits.set(copy);
  StepSampler sampler(*kernels_);
  for (const SampleResult& result : sampler.sample(logits, inputs)) EXPECT_EQ(result.token, 3);
  EXPECT_EQ(logits.host().at(0, 3), 1);  // copied before
  EXPECT_EQ(logits.host_row(0).at(0, 3), 6);
  EXPECT_EQ(logits.host_row(1).at(0, 3), 1);
}

}  // namespace
}  // namespace lmdeploy
