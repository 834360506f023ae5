// Tiny checkpoints through the whole engine on a GPU: prompts of different lengths side by side, cut into
// chunks, give the greedy tokens of the original code (tests/data/models/README.md).
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "backends.h"
#include "core_driver.h"
#include "lmdeploy/engine/channel.h"
#include "lmdeploy/engine/engine.h"
#include "lmdeploy/engine/warm_up.h"
#include "lmdeploy/formats/safetensors.h"

namespace lmdeploy::testing {
namespace {

constexpr int kPrompts = 3;
constexpr int64_t kTokens = 12;  // that the original generated

std::vector<int> ints_of(const SafetensorsFile& file, const std::string& name) {
  const SafetensorsTensor& tensor = *file.find(name);
  const ConstTensorView view(tensor.data, tensor.dtype, tensor.shape);
  std::vector<int> out;
  for (int64_t i = 0; i < view.cols(); ++i) out.push_back(static_cast<int>(view.at(i)));
  return out;
}

class CudaEngineTest : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  // The greedy ids of all prompts at once.
  std::vector<std::vector<int>> generate(const SafetensorsFile& file, const Kernels& kernels) {
    const auto checkpoint = open_checkpoint(find_fixture(std::get<0>(GetParam())));
    const auto model = load_model(*checkpoint, kernels, {.max_step_tokens = 64, .max_logit_rows = 64});
    EngineConfig config;
    config.max_batch_size = kPrompts;
    config.block_len = 8;
    config.num_blocks = 64;
    config.max_prefill_token_num = 10;
    config.max_logit_rows = 64;
    config.enable_prefix_caching = true;
    config.kv_dtype = kernels.activation_dtype();
    Engine engine(*model, kernels, config);
    std::vector<std::unique_ptr<RequestHandle>> handles;
    for (int k = 0; k < kPrompts; ++k) {
      Request request;
      request.input_ids = ints_of(file, cat("ids_", k));
      request.max_new_tokens = kTokens;
      handles.push_back(engine.submit(std::move(request)));
    }
    std::vector<std::vector<int>> ids;
    for (const auto& handle : handles) ids.push_back(read_all(*handle));
    return ids;
  }
};

TEST_P(CudaEngineTest, GreedyTokensOfTheOriginal) {
  const auto& [fixture, name] = GetParam();
  LMD_REQUIRE_GPU(name);
  const std::string folder = find_fixture(fixture);
  if (folder.empty()) GTEST_SKIP() << "the checkpoint " << fixture << " is not part of the repository";
  const SafetensorsFile file(folder + "/expected.safetensors");
  const auto ids = generate(file, backend(name));
  for (int k = 0; k < kPrompts; ++k) {
    const auto prompt = static_cast<size_t>(k);
    if (name == "cuda_f32")
      EXPECT_EQ(ids[prompt], ints_of(file, cat("greedy_", k))) << "prompt " << k;
    else  // near ties fall otherwise in 16 bits: golden_test.cc compares where they do not
      EXPECT_EQ(ids[prompt].size(), static_cast<size_t>(kTokens)) << "prompt " << k;
  }
}

class CudaDeterministicTest : public ::testing::TestWithParam<std::string> {
 protected:
  // All that the first of `count` requests gives; their prompts are cut in another way for each count.
  static RequestOutput first_of(size_t count, Model& model, const Kernels& kernels) {
    EngineConfig config;
    config.max_batch_size = 64;
    config.block_len = 8;
    config.num_blocks = 512;
    config.max_prefill_token_num = static_cast<int64_t>(7 * count);
    config.max_logit_rows = 64;
    config.kv_dtype = kernels.activation_dtype();
    Engine engine(model, kernels, config);
    std::vector<std::unique_ptr<RequestHandle>> handles;
    for (size_t i = 0; i < count; ++i) {
      Request request;
      request.input_ids.assign(15 + i % 9, 11);
      request.input_ids.push_back(static_cast<int>(20 + i));
      request.max_new_tokens = kTokens;
      request.logits = OutputRows::kGeneration;
      handles.push_back(engine.submit(std::move(request)));
    }
    RequestOutput whole;
    while (whole.finish == FinishReason::kNone)
      if (auto output = handles[0]->next(std::chrono::seconds(60))) merge_output(whole, std::move(*output));
    return whole;
  }
};

// To the last bit.
TEST_P(CudaDeterministicTest, ARequestDoesNotDependOnTheOthers) {
  LMD_REQUIRE_GPU(GetParam());
  const auto kernels = make_cuda_kernels(std::make_shared<ThreadPool>(1),
                                         backend(GetParam()).activation_dtype(), {.batch_invariant = true});
  const auto checkpoint = open_checkpoint(find_fixture("llama3"));
  const auto model = load_model(*checkpoint, *kernels, {.max_step_tokens = 512, .max_logit_rows = 64});
  const RequestOutput alone = first_of(1, *model, *kernels);
  EXPECT_EQ(alone.token_ids.size(), static_cast<size_t>(kTokens)) << alone.error_message;
  for (const size_t count : {2u, 9u, 17u, 41u})
    EXPECT_EQ(first_of(count, *model, *kernels).logits, alone.logits) << count << " requests";
}

class CudaMemoryTest : public ::testing::TestWithParam<std::string> {};

// Prompts and batches of all sizes, more often than steps are recorded. Code that is loaded with its first
// use is what the tolerance is for.
TEST_P(CudaMemoryTest, StepsTakeNoMoreThanWasSetAside) {
  LMD_REQUIRE_GPU(GetParam());
  constexpr size_t kCode = size_t{64} << 20;
  const Kernels& kernels = backend(GetParam());
  const auto checkpoint = open_checkpoint(find_fixture("llama3"));
  EngineConfig config;
  config.max_batch_size = 64;
  config.session_len = 2000;
  config.num_blocks = 4096;
  config.max_prefill_token_num = 1000;
  config.kv_dtype = kernels.activation_dtype();
  const auto model = load_model(*checkpoint, kernels, {.max_step_tokens = 1064, .max_logit_rows = 512});
  const size_t set_aside = warm_up(*model, kernels, config);
  Engine engine(*model, kernels, config);
  const size_t before = kernels.available_memory();
  for (size_t count : {64u, 40u, 17u, 5u, 1u}) {
    std::vector<std::unique_ptr<RequestHandle>> handles;
    for (size_t i = 0; i < count; ++i) {
      Request request;
      request.input_ids.assign(i % 7 == 0 ? 1500 : 20 + i, static_cast<int>(20 + i));
      request.max_new_tokens = static_cast<int64_t>(12 + i % 5);
      request.num_prompt_logprobs = i % 7 == 1 ? 0 : -1;
      handles.push_back(engine.submit(std::move(request)));
    }
    for (const auto& handle : handles) EXPECT_FALSE(read_all(*handle).empty());
  }
  const size_t after = kernels.available_memory();
  EXPECT_LE(before - std::min(before, after), set_aside + kCode);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, CudaMemoryTest, ::testing::ValuesIn(cuda_names()),
                         [](const auto& test) { return test.param; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CudaMemoryTest);

INSTANTIATE_TEST_SUITE_P(Dtypes, CudaDeterministicTest, ::testing::ValuesIn(cuda_names()),
                         [](const auto& test) { return test.param; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CudaDeterministicTest);

// Those of the repository: plain, grouped windows, sinks and experts, latent attention, ALiBi, learned
// positions.
INSTANTIATE_TEST_SUITE_P(
    Models, CudaEngineTest,
    ::testing::Combine(::testing::Values("llama3", "gemma2", "gemma3_text", "gpt_oss", "deepseek_v3",
                                         "falcon_rw", "gpt2", "qwen2_moe"),
                       ::testing::ValuesIn(cuda_names())),
    [](const auto& test) { return std::get<0>(test.param) + "_" + std::get<1>(test.param); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CudaEngineTest);  // in a build without CUDA

}  // namespace
}  // namespace lmdeploy::testing
