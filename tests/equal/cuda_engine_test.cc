// Tiny checkpoints through the whole engine with its thread, on a GPU too: prompts of different lengths side
// by side, cut into chunks, from the prefix cache, preempted and guessed, give the greedy tokens of the
// original code (tests/data/models/README.md).
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "backends.h"
#include "core_driver.h"
#include "half_judge.h"
#include "lmdeploy/engine/block_groups.h"
#include "lmdeploy/engine/channel.h"
#include "lmdeploy/engine/engine.h"
#include "lmdeploy/engine/warm_up.h"
#include "lmdeploy/formats/safetensors.h"
#include "lmdeploy/models/step_runner.h"
#include "random_llama.h"

namespace lmdeploy::testing {
namespace {

constexpr int kPrompts = 3;
constexpr int64_t kTokens = 12;  // that the original generated
constexpr int64_t kBlockLen = 8;
const LoadOptions kLoadOptions = {.max_step_tokens = 64, .max_logit_rows = 64};

std::vector<int> ints_of(const SafetensorsFile& file, const std::string& name) {
  const SafetensorsTensor& tensor = *file.find(name);
  const ConstTensorView view(tensor.data, tensor.dtype, tensor.shape);
  std::vector<int> out;
  for (int64_t i = 0; i < view.cols(); ++i) out.push_back(static_cast<int>(view.at(i)));
  return out;
}

/// How requests meet in the engine, three at once unless it says otherwise.
struct EngineCase {
  const char* name;
  std::optional<DType> kv_dtype = {};  // nullopt: what loses nothing
  int64_t chunk = 10;                  // prompt tokens in a step
  int64_t rounds = 1;                  // > 1: from the prefix cache again
  bool alone = false;                  // one after the other
  bool tight = false;                  // the pool just holds the longest
  int64_t guesses = 0;
};
void PrintTo(const EngineCase& c, std::ostream* out) { *out << c.name; }

constexpr EngineCase kEngineCases[] = {{.name = "chunks"},
                                       {.name = "prefix_hits", .rounds = 2},
                                       {.name = "preempted", .tight = true},
                                       {.name = "guesses", .guesses = 3},
                                       {.name = "whole_prompts", .chunk = 64}};
constexpr EngineCase kCodeCases[] = {
    {.name = "int8", .kv_dtype = DType::kU8},
    {.name = "int4", .kv_dtype = DType::kU4},
    {.name = "int8_preempted", .kv_dtype = DType::kU8, .rounds = 2, .tight = true},
    {.name = "int4_guesses", .kv_dtype = DType::kU4, .chunk = 7, .rounds = 2, .guesses = 3}};

/// What the requests of a case have given, round by round, and the engine has seen.
struct Traffic {
  std::vector<RequestOutput> outputs;
  EngineStats stats;
};

EngineConfig config_of(const EngineCase& c, const Model& model, const Kernels& kernels, int64_t longest) {
  EngineConfig config;
  config.max_batch_size = kPrompts + 1;
  config.block_len = kBlockLen;
  config.num_blocks = 128;
  config.max_prefill_token_num = c.chunk;
  config.max_logit_rows = kLoadOptions.max_logit_rows;
  config.enable_prefix_caching = true;
  config.kv_dtype = c.kv_dtype.value_or(exact_kv_dtype(kernels));
  if (c.guesses > 0) config = guessing(config, c.guesses, SpeculativeMethod::kDraft);
  if (!c.tight) return config;
  const BlockGroups groups(kBlockLen, model.kv_groups());
  config.num_blocks = groups.least_for(longest) + 4 * groups.num_windows();
  return config;
}

RequestOutput read_whole(RequestHandle& handle) {
  RequestOutput whole;
  while (whole.finish == FinishReason::kNone) {
    auto output = handle.next(std::chrono::seconds(60));
    if (!output) {
      ADD_FAILURE() << "no last output";
      break;
    }
    merge_output(whole, std::move(*output));
  }
  EXPECT_EQ(whole.finish, FinishReason::kLength) << whole.error_message;
  return whole;
}

/// `draft`: the same model once more, for guesses.
Traffic run_case(const EngineCase& c, Model& model, Model* draft, const Kernels& kernels,
                 const std::vector<std::vector<int>>& prompts, OutputRows logits = OutputRows::kNone) {
  size_t longest = 0;
  for (const std::vector<int>& prompt : prompts) longest = std::max(longest, prompt.size());
  const auto length = static_cast<int64_t>(longest) + kTokens;
  Engine engine(model, kernels, config_of(c, model, kernels, length), c.guesses > 0 ? draft : nullptr);
  Traffic traffic;
  for (int64_t round = 0; round < c.rounds; ++round) {
    // One request holds the engine until all others are there.
    std::promise<void> submitted;
    Request gate = request_of({0}, 1);
    gate.logits_processors = {[there = submitted.get_future().share()](
                                  std::span<const int>, std::vector<float>&) { there.wait(); }};
    const auto gate_handle = c.alone ? nullptr : engine.submit(std::move(gate));
    std::vector<std::unique_ptr<RequestHandle>> handles;
    const auto read = [&] {
      for (const auto& handle : handles) traffic.outputs.push_back(read_whole(*handle));
      handles.clear();
    };
    for (const std::vector<int>& prompt : prompts) {
      Request request = request_of(prompt, kTokens);
      request.logits = logits;
      handles.push_back(engine.submit(std::move(request)));
      if (c.alone) read();
    }
    submitted.set_value();
    read();
  }
  traffic.stats = engine.stats();
  return traffic;
}

/// What a case is for has happened.
void expect_seen(const EngineCase& c, const EngineStats& stats) {
  if (c.tight) {
    EXPECT_GT(stats.preemptions, 0);
  }
  if (c.rounds > 1 && !c.tight) {
    EXPECT_GT(stats.prefix_hit_tokens, 0);
  }
  if (c.guesses > 0) {
    EXPECT_GT(stats.speculative.num_draft_tokens, 0);
  }
}

class EngineCaseTest : public ::testing::TestWithParam<std::tuple<std::string, std::string, EngineCase>> {
 protected:
  /// No id is worse than the best one by more than roundings explain, given the ids before it. Returns how
  /// many of them have been looked at: those before a router's near tie.
  static int64_t expect_near_best(HalfJudge& judge, const std::vector<int>& prompt,
                                  const std::vector<int>& answer) {
    const HalfLogits judged = judge.judge(concat(prompt, {answer.begin(), answer.end() - 1}));
    const auto first = static_cast<int64_t>(prompt.size()) - 1;
    for (int64_t row = first; row < judged.comparable; ++row) {
      const ConstTensorView want = judged.want, bound = judged.bound;
      const int id = answer[static_cast<size_t>(row - first)], best = argmax(want, row);
      EXPECT_LE(want.at(row, best) - want.at(row, id), bound.at(row, best) + bound.at(row, id))
          << "token " << row - first << " is " << id << ", the best is " << best;
    }
    return std::max<int64_t>(0, judged.comparable - first);
  }
};

// In f32 the original's tokens. In 16 bits near ties fall otherwise.
TEST_P(EngineCaseTest, GreedyTokens) {
  const auto& [fixture, name, c] = GetParam();
  LMD_REQUIRE_GPU(name);
  const std::string folder = find_fixture(fixture);
  if (folder.empty()) GTEST_SKIP() << "the checkpoint " << fixture << " is not part of the repository";
  const SafetensorsFile file(folder + "/expected.safetensors");
  const Kernels& kernels = backend_or_nearest(name);
  const auto checkpoint = open_checkpoint(folder);
  const auto model = load_model(*checkpoint, kernels, kLoadOptions);
  std::vector<std::vector<int>> prompts;
  for (int k = 0; k < kPrompts; ++k) prompts.push_back(ints_of(file, cat("ids_", k)));
  const auto draft = c.guesses > 0 ? load_model(*checkpoint, kernels, kLoadOptions) : nullptr;
  const Traffic traffic = run_case(c, *model, draft.get(), kernels, prompts);
  expect_seen(c, traffic.stats);
  ASSERT_EQ(traffic.outputs.size(), static_cast<size_t>(c.rounds) * kPrompts);
  std::optional<HalfJudge> judge;
  if (const auto dtype = half_dtype_of(name)) judge.emplace(*checkpoint, *dtype, kLoadOptions, c.kv_dtype);
  int64_t compared = 0;
  for (size_t i = 0; i < traffic.outputs.size(); ++i) {
    SCOPED_TRACE(cat("request ", i));
    const std::vector<int>& ids = traffic.outputs[i].token_ids;
    const size_t k = i % kPrompts;
    ASSERT_EQ(ids.size(), static_cast<size_t>(kTokens));
    if (!judge)
      EXPECT_EQ(ids, ints_of(file, cat("greedy_", k)));
    else
      compared += expect_near_best(*judge, prompts[k], ids);
  }
  RecordProperty("compared", cat(compared, " of ", traffic.outputs.size() * kTokens));
}

class DeterministicCaseTest
    : public ::testing::TestWithParam<std::tuple<std::string, std::string, DType, EngineCase>> {};

// With `deterministic` a request gives the same bits alone, in company, in chunks, from the prefix cache,
// after it has lost its blocks and with guesses. `kv_dtype` kF32 stands for the cache that loses nothing.
TEST_P(DeterministicCaseTest, ToTheLastBit) {
  const auto& [fixture, name, kv_dtype, with] = GetParam();
  LMD_REQUIRE_GPU(name);
  const std::string folder = find_fixture(fixture);
  if (folder.empty()) GTEST_SKIP() << "the checkpoint " << fixture << " is not part of the repository";
  std::unique_ptr<Kernels> invariant;
  if (name.starts_with("cuda"))
    invariant = make_cuda_kernels(std::make_shared<ThreadPool>(1), backend(name).activation_dtype(),
                                  {.batch_invariant = true});
  const Kernels& kernels = invariant ? *invariant : backend(name);
  const SafetensorsFile file(folder + "/expected.safetensors");
  std::vector<std::vector<int>> prompts;
  for (int k = 0; k < kPrompts; ++k) prompts.push_back(ints_of(file, cat("ids_", k)));
  const auto checkpoint = open_checkpoint(folder);
  const auto model = load_model(*checkpoint, kernels, kLoadOptions);
  const auto draft = with.guesses > 0 ? load_model(*checkpoint, kernels, kLoadOptions) : nullptr;
  EngineCase c = with;
  if (kv_dtype != DType::kF32) c.kv_dtype = kv_dtype;
  const EngineCase plain = {.name = "alone", .kv_dtype = c.kv_dtype, .chunk = 64, .alone = true};
  const Traffic want = run_case(plain, *model, nullptr, kernels, prompts, OutputRows::kGeneration);
  const Traffic got = run_case(c, *model, draft.get(), kernels, prompts, OutputRows::kGeneration);
  expect_seen(c, got.stats);
  for (size_t i = 0; i < got.outputs.size(); ++i) {
    const RequestOutput& one = want.outputs[i % kPrompts];
    ASSERT_EQ(one.logits.size(), static_cast<size_t>(kTokens * model->spec().vocab_size));
    EXPECT_EQ(got.outputs[i].token_ids, one.token_ids) << "request " << i;
    EXPECT_TRUE(got.outputs[i].logits == one.logits) << "request " << i;
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

constexpr size_t kMiB = size_t{1} << 20;

/// A full batch of the longest prompts.
void run_largest_batch(Engine& engine) {
  constexpr int64_t kNew = 8;
  std::vector<std::unique_ptr<RequestHandle>> handles;
  for (int64_t i = 0; i < engine.config().max_batch_size; ++i) {
    std::vector<int> ids(static_cast<size_t>(engine.session_len() - kNew), static_cast<int>(1 + i % 60));
    handles.push_back(engine.submit(request_of(std::move(ids), kNew)));
  }
  for (const auto& handle : handles) EXPECT_EQ(read_all(*handle).size(), static_cast<size_t>(kNew));
}

/// Loads a model, gives its cache 0.95 of what is left, as cache_max_entry_count does, and fills batches
/// twice.
void fill_most_of_the_memory(const std::string& name, const LlamaShape& shape) {
  const auto kernels = make_backend(name);
  EngineConfig config;
  config.max_batch_size = 64;
  config.session_len = 2048;
  config.kv_dtype = kernels->activation_dtype();
  const MemoryCheckpoint checkpoint = make_random_llama(shape, 6);
  const auto model = load_model(checkpoint, *kernels,
                                {.max_step_tokens = config.max_prefill_token_num + config.max_batch_size});
  const size_t set_aside = warm_up(*model, *kernels, config);
  config.kv_memory_bytes =
      static_cast<size_t>(0.95 * static_cast<double>(model->cache_memory(*kernels) - set_aside));
  Engine engine(*model, *kernels, config);
  run_largest_batch(engine);
  const size_t first = kernels->available_memory();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  run_largest_batch(engine);
  const size_t second = kernels->available_memory();
  EXPECT_LE(first - std::min(first, second), first / 100)
      << first / kMiB << " MiB were free, then " << second / kMiB;
  EXPECT_EQ(engine.stats().failed, 0);
  ::testing::Test::RecordProperty("blocks", cat(engine.stats().total_blocks));
}

size_t taken_by(const Kernels& probe, const std::function<void()>& work) {
  const size_t before = probe.available_memory();
  work();
  return before - std::min(before, probe.available_memory());
}

// Everything is given back but the context's share: code that is loaded with its first use, and what the
// driver and cuBLASLt keep for it. A second engine finds that there and takes nothing.
TEST_P(CudaMemoryTest, TheLargestCacheLeavesRoomForTheLargestSteps) {
  LMD_REQUIRE_GPU(GetParam());
  const LlamaShape shape = {
      .hidden = 256, .inner = 512, .layers = 4, .heads = 8, .kv_heads = 8, .head_dim = 128, .vocab = 512};
  for (const size_t most : {64 * kMiB, 16 * kMiB}) {
    const size_t kept = taken_by(backend(GetParam()), [&] { fill_most_of_the_memory(GetParam(), shape); });
    EXPECT_LE(kept, most) << kept / kMiB << " MiB are not free again";
    RecordProperty(cat("kept_mib_of_", most / kMiB), cat(kept / kMiB));
  }
}

// Blocks of some 20 KB.
TEST_P(CudaMemoryTest, MillionsOfBlocks) {
  LMD_REQUIRE_GPU(GetParam());
  const size_t kept =
      taken_by(backend(GetParam()), [&] { fill_most_of_the_memory(GetParam(), LlamaShape{}); });
  EXPECT_LE(kept, 64 * kMiB) << kept / kMiB << " MiB are not free again";
}

INSTANTIATE_TEST_SUITE_P(Dtypes, CudaMemoryTest, ::testing::ValuesIn(cuda_names()),
                         [](const auto& test) { return test.param; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CudaMemoryTest);

INSTANTIATE_TEST_SUITE_P(Dtypes, CudaDeterministicTest, ::testing::ValuesIn(cuda_names()),
                         [](const auto& test) { return test.param; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CudaDeterministicTest);

/// One that proves the cases without a GPU, and CUDA's.
std::vector<std::string> engine_backends() {
  std::vector<std::string> names = {backend_names().back()};
  for (const std::string& name : cuda_names()) names.push_back(name);
  return names;
}
std::vector<std::string> half_backends() {
  std::vector<std::string> names = {"nearest_bf16"};
  for (const std::string& name : cuda_names())
    if (name != "cuda_f32") names.push_back(name);
  return names;
}
std::string engine_case_name(const ::testing::TestParamInfo<EngineCaseTest::ParamType>& test) {
  return cat(std::get<0>(test.param), "_", std::get<1>(test.param), "_", std::get<2>(test.param).name);
}

std::string deterministic_case_name(const ::testing::TestParamInfo<DeterministicCaseTest::ParamType>& test) {
  const auto& [fixture, name, kv_dtype, c] = test.param;
  return cat(fixture, "_", name, "_", c.name, kv_dtype == DType::kF32 ? "" : cat("_", kv_dtype));
}

// Those of the repository: plain, grouped windows, sinks and experts, latent attention, ALiBi, learned
// positions.
INSTANTIATE_TEST_SUITE_P(Models, EngineCaseTest,
                         ::testing::Combine(::testing::Values("llama3", "gemma2", "gemma3_text", "gpt_oss",
                                                              "deepseek_v3", "falcon_rw", "gpt2",
                                                              "qwen2_moe"),
                                            ::testing::ValuesIn(engine_backends()),
                                            ::testing::ValuesIn(kEngineCases)),
                         engine_case_name);
INSTANTIATE_TEST_SUITE_P(Codes, EngineCaseTest,
                         ::testing::Combine(::testing::Values("llama3", "gemma2", "gemma3_text", "falcon_rw"),
                                            ::testing::ValuesIn(half_backends()),
                                            ::testing::ValuesIn(kCodeCases)),
                         engine_case_name);
INSTANTIATE_TEST_SUITE_P(Models, DeterministicCaseTest,
                         ::testing::Combine(::testing::Values("llama3", "gemma2", "gpt_oss", "deepseek_v3",
                                                              "falcon_rw", "qwen2_moe"),
                                            ::testing::ValuesIn(engine_backends()),
                                            ::testing::Values(DType::kF32, DType::kU8, DType::kU4),
                                            ::testing::ValuesIn(kEngineCases)),
                         deterministic_case_name);

}  // namespace
}  // namespace lmdeploy::testing
