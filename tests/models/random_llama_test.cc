// Random tiny models of awkward shapes: the reference back end judges the others, and a step's cut and
// company do not change a row. Seeds are fixed; run with --gtest_random_seed=N for others (the trace names
// the seed).
#include "random_llama.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "backends.h"
#include "lmdeploy/core/error.h"
#include "lmdeploy/models/step_runner.h"

namespace lmdeploy::testing {
namespace {

const LlamaShape kShapes[] = {
    {.hidden = 240, .inner = 136, .layers = 1, .heads = 3, .kv_heads = 3, .head_dim = 80, .vocab = 263},
    {.hidden = 96,
     .inner = 200,
     .layers = 2,
     .heads = 5,
     .kv_heads = 1,
     .head_dim = 96,
     .vocab = 101,
     .attention_bias = true},
    {.hidden = 112,
     .inner = 64,
     .layers = 3,
     .heads = 7,
     .kv_heads = 7,
     .head_dim = 112,
     .vocab = 59,
     .mlp_bias = true,
     .tied = true,
     .dtype = DType::kBF16},
    {.hidden = 40,
     .inner = 56,
     .layers = 2,
     .heads = 6,
     .kv_heads = 2,
     .head_dim = 12,
     .vocab = 31,
     .attention_bias = true,
     .mlp_bias = true,
     .tied = true,
     .dtype = DType::kF16},
    {.hidden = 33, .inner = 47, .layers = 2, .heads = 4, .kv_heads = 2, .head_dim = 6, .vocab = 17},
    {.hidden = 64,
     .inner = 90,
     .layers = 1,
     .heads = 1,
     .kv_heads = 1,
     .head_dim = 2,
     .vocab = 1,
     .tied = true},
};

// Not UnitTest::random_seed(), which is the time where the flag is not given.
uint64_t first_seed() { return 20 + static_cast<uint64_t>(GTEST_FLAG_GET(random_seed)); }

/// The same of a freshly loaded model.
Tensor all_logits(const Kernels& kernels, const Checkpoint& checkpoint, const std::vector<int>& ids,
                  const std::vector<size_t>& chunk_sizes) {
  const auto model = load_model(checkpoint, kernels, {.max_step_tokens = 64, .max_logit_rows = 64});
  return testing::all_logits(*model, kernels, ids, chunk_sizes);
}

/// What the reference says about one shape, computed once for all back ends.
const Tensor& reference_logits(size_t shape_idx, const Checkpoint& checkpoint, const std::vector<int>& ids) {
  static std::map<size_t, Tensor> computed;
  const auto known = computed.find(shape_idx);
  if (known != computed.end()) return known->second;
  return computed[shape_idx] = all_logits(backend("ref"), checkpoint, ids, {ids.size()});
}

void expect_near(ConstTensorView got, ConstTensorView want, double share) {
  ASSERT_EQ(got.shape(), want.shape());
  double largest = 0;
  for (int64_t r = 0; r < want.rows(); ++r)
    for (int64_t c = 0; c < want.cols(); ++c) largest = std::max(largest, std::abs(want.at(r, c)));
  EXPECT_GT(largest, 1e-3);                     // a model that says nothing would agree with anything
  const double scale = std::max(largest, 1.0);  // a smaller logit is a difference of terms of about 1
  for (int64_t r = 0; r < want.rows(); ++r)
    for (int64_t c = 0; c < want.cols(); ++c)
      ASSERT_NEAR(got.at(r, c), want.at(r, c), share * scale) << "token " << r << ", id " << c;
}

class RandomLlamaTest : public ::testing::TestWithParam<std::string> {};

TEST_P(RandomLlamaTest, AgreesWithTheReference) {
  const Kernels& kernels = backend(GetParam());
  for (size_t i = 0; i < std::size(kShapes); ++i) {
    const LlamaShape& shape = kShapes[i];
    const uint64_t seed = first_seed() + i;
    SCOPED_TRACE(cat(to_string(shape), ", seed ", seed));
    const MemoryCheckpoint checkpoint = make_random_llama(shape, seed);
    const std::vector<int> ids = random_ids(seed, 41, shape.vocab);
    const Tensor& want = reference_logits(i, checkpoint, ids);
    expect_near(all_logits(kernels, checkpoint, ids, {ids.size()}), want, 2e-4);
    expect_near(all_logits(kernels, checkpoint, ids, {5, 1, 17}), want, 2e-4);
  }
}

TEST_P(RandomLlamaTest, CutAndCompanyDoNotChangeARow) {
  const Kernels& kernels = backend(GetParam());
  const LlamaShape& shape = kShapes[1];
  const uint64_t seed = first_seed();
  SCOPED_TRACE(cat(to_string(shape), ", seed ", seed));
  const MemoryCheckpoint checkpoint = make_random_llama(shape, seed);
  const std::vector<int> ids = random_ids(seed, 40, shape.vocab),
                         other = random_ids(seed + 1, 23, shape.vocab);
  const Tensor alone = all_logits(kernels, checkpoint, ids, {ids.size()});
  const Tensor cut = all_logits(kernels, checkpoint, ids, {7, 1, 2, 11});
  EXPECT_TRUE(std::equal(alone.span<std::byte>().begin(), alone.span<std::byte>().end(),
                         cut.span<std::byte>().begin()));

  const auto model = load_model(checkpoint, kernels, {.max_step_tokens = 64, .max_logit_rows = 64});
  StepRunner runner(
      *model, kernels,
      {.kv_dtype = exact_kv_dtype(kernels), .num_sequences = 2, .max_tokens = 48, .block_len = 8});
  const StepRunner::Chunk chunks[] = {{.sequence = 1, .ids = other},
                                      {.sequence = 0, .ids = ids, .num_logits = 40}};
  const ConstTensorView together = runner.step(chunks);
  for (int64_t r = 0; r < 40; ++r)
    for (int64_t c = 0; c < shape.vocab; ++c)
      ASSERT_EQ(together.at(r + 1, c), alone.view().at(r, c)) << "token " << r << ", id " << c;
}

TEST_P(RandomLlamaTest, StepWithoutWantedLogitsFillsTheCache) {
  const Kernels& kernels = backend(GetParam());
  const MemoryCheckpoint checkpoint = make_random_llama(kShapes[3], 5);
  const std::vector<int> ids = random_ids(5, 20, kShapes[3].vocab);
  const Tensor whole = all_logits(kernels, checkpoint, ids, {ids.size()});
  const auto model = load_model(checkpoint, kernels, {.max_step_tokens = 32, .max_logit_rows = 4});
  StepRunner runner(*model, kernels, {.kv_dtype = exact_kv_dtype(kernels), .max_tokens = 32});
  const StepRunner::Chunk silent = {.ids = std::span(ids).first(19), .num_logits = 0};
  EXPECT_EQ(runner.step({&silent, 1}).rows(), 0);
  const StepRunner::Chunk last = {.ids = std::span(ids).last(1)};
  const ConstTensorView logits = runner.step({&last, 1});
  for (int64_t c = 0; c < logits.cols(); ++c) EXPECT_EQ(logits.at(0, c), whole.view().at(19, c));
}

TEST_P(RandomLlamaTest, TiedHeadSharesMemory) {
  const Kernels& kernels = backend(GetParam());
  LlamaShape shape = kShapes[0];
  const size_t untied = load_model(make_random_llama(shape, 1), kernels, {})->weight_bytes();
  shape.tied = true;
  const size_t tied = load_model(make_random_llama(shape, 1), kernels, {})->weight_bytes();
  EXPECT_GE(untied - tied, static_cast<size_t>(shape.vocab * shape.hidden) * sizeof(float));
}

INSTANTIATE_TEST_SUITE_P(Backends, RandomLlamaTest, ::testing::ValuesIn(backend_names()),
                         [](const auto& test) { return test.param; });

TEST(RandomLlama, ThroughAFileAndSharedNames) {
  const TempFolder folder;
  const LlamaShape& shape = kShapes[2];
  MemoryCheckpoint checkpoint = make_random_llama(shape, 9);
  checkpoint.save(folder.path());
  const std::vector<int> ids = random_ids(9, 12, shape.vocab);
  const Kernels& kernels = backend("ref");
  const Tensor want = all_logits(kernels, checkpoint, ids, {12});
  const auto from_file = open_checkpoint(folder.path());
  expect_near(all_logits(kernels, *from_file, ids, {12}), want, 0);
  checkpoint.mutable_config()["architectures"] = JsonArray{"LLaMAForCausalLM"};
  expect_near(all_logits(kernels, checkpoint, ids, {12}), want, 0);
}

TEST(RandomLlama, OldYiNamesItsNormsOtherwise) {
  const MemoryCheckpoint llama = make_random_llama(kShapes[4], 11);
  MemoryCheckpoint yi;
  yi.mutable_config() = llama.config().as_object();
  yi.mutable_config()["architectures"] = JsonArray{"YiForCausalLM"};
  yi.mutable_config()["rope_theta"] = 10000.0;  // Llama's default
  for (size_t i = 0; i < llama.tensors().size(); ++i) {
    std::string name = llama.tensors()[i].name;
    for (const auto& [hub, old] :
         {std::pair("input_layernorm", "ln1"), std::pair("post_attention_layernorm", "ln2")})
      if (const size_t at = name.find(hub); at != std::string::npos)
        name.replace(at, std::string(hub).size(), old);
    const ConstTensorView view = llama.tensor(i);
    Tensor copy(view.dtype(), view.shape());
    std::copy_n(view.data(), copy.bytes(), copy.view().data());
    yi.add(name, std::move(copy));
  }
  const std::vector<int> ids = random_ids(3, 12, kShapes[4].vocab);
  expect_near(all_logits(backend("ref"), yi, ids, {12}), all_logits(backend("ref"), llama, ids, {12}), 0);
}

}  // namespace
}  // namespace lmdeploy::testing
