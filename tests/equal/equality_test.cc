// F52. One prompt alone = in a batch = in chunks = from the prefix cache = after preemption = after its
// session was evicted: the same tokens and, since every op promises rows that do not depend on the batch, the
// same logits to the last bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>

#include "backends.h"
#include "core_driver.h"
#include "fake_model.h"
#include "llama_of_kind.h"
#include "lmdeploy/core/random.h"
#include "random_family.h"

namespace lmdeploy::testing {
namespace {

constexpr int64_t kNewTokens = 16;

/// What no checkpoint of tests/data/models has: 13 heads, no power of two, with ALiBi in place of rope; a
/// training length of 16, past which Qwen's NTK and log n begin.
JsonObject random_config(const std::string& name) {
  if (name == "random_baichuan")
    return {{"architectures", JsonArray{"BaichuanForCausalLM"}},
            {"hidden_size", 13 * 7},
            {"intermediate_size", 50},
            {"num_attention_heads", 13},
            {"num_hidden_layers", 3},
            {"vocab_size", 211},
            {"model_max_length", 128}};
  return {{"architectures", JsonArray{"QWenLMHeadModel"}},
          {"hidden_size", 55},
          {"intermediate_size", 84},
          {"kv_channels", 12},
          {"num_attention_heads", 3},
          {"num_hidden_layers", 3},
          {"vocab_size", 211},
          {"seq_length", 16},
          {"max_position_embeddings", 128}};
}

std::unique_ptr<Checkpoint> open(const std::string& name) {
  if (name.starts_with("random_"))
    return std::make_unique<MemoryCheckpoint>(make_random_family(random_config(name), /*seed=*/1));
  return open_checkpoint(find_fixture(name));
}

std::unique_ptr<Checkpoint> random_llama(DType weights) {
  const LlamaShape shape = {
      .hidden = 256, .inner = 256, .layers = 2, .heads = 4, .kv_heads = 2, .head_dim = 64, .vocab = 211};
  return std::make_unique<MemoryCheckpoint>(make_llama_of(weights, shape));
}

/// A tiny checkpoint of tests/data/models, or a random one, on the CPU back end, activations in f32; a random
/// Llama, activations rounded for its weights; or a fake model with several groups of layers.
struct EqualityCase {
  const char* name;
  const char* checkpoint;             // nullptr: fake, or of `rounded`
  std::vector<int64_t> windows = {};  // of a fake one
  int64_t longrope_border = 0;        // > 0: the checkpoint's rope is made a longrope that changes there
  DType kv_dtype = DType::kF32;
  std::optional<DType> rounded = {};  // the kind of weights for which activations are rounded
};
void PrintTo(const EqualityCase& c, std::ostream* out) { *out << c.name; }

JsonObject longrope_config(int64_t border) {
  JsonArray short_factor(8, 1.0), long_factor(8, 3.0);
  return {
      {"original_max_position_embeddings", border},
      {"rope_scaling", {{"type", "longrope"}, {"short_factor", short_factor}, {"long_factor", long_factor}}}};
}

class EqualityTest : public ::testing::TestWithParam<EqualityCase> {
 protected:
  EqualityTest()
      : kernels_(make_cpu_kernels(std::make_shared<ThreadPool>(2),
                                  {.rounded_activations = GetParam().rounded.has_value()})) {
    const EqualityCase& c = GetParam();
    if (c.checkpoint == nullptr && !c.rounded) {
      model_ = std::make_unique<FakeModel>(FakeOptions{.vocab_size = 200, .windows = c.windows});
      return;
    }
    LoadOptions options = {.max_step_tokens = 512, .max_logit_rows = 64};
    if (c.longrope_border > 0) options.config_overrides = longrope_config(c.longrope_border);
    checkpoint_ = c.rounded ? random_llama(*c.rounded) : open(c.checkpoint);
    model_ = load_model(*checkpoint_, *kernels_, options);
  }
  /// So many blocks that `length` tokens just fit in, and two windows more for each window group.
  int64_t tight_blocks(int64_t length) const {
    const BlockGroups groups(8, model_->kv_groups());
    return groups.least_for(length) + 4 * groups.num_windows();
  }

  EngineConfig config() const {
    EngineConfig config = small_config(static_cast<int64_t>(model_->kv_groups().size()));
    config.block_len = 8;
    config.session_len = 96;
    config.max_prefill_token_num = 256;
    config.max_logit_rows = 64;
    config.kv_dtype = GetParam().kv_dtype;
    return config;
  }
  static Request prompt(uint64_t seed, int64_t length) {
    Request request = request_of(random_ids(seed, length), kNewTokens);
    request.logits = OutputRows::kGeneration;
    return request;
  }
  static Request drawn(Request request, uint64_t seed) {
    request.sampling.temperature = 1;
    request.sampling.top_p = 0.95f;
    request.sampling.repetition_penalty = 1.1f;
    request.sampling.seed = seed;
    return request;
  }
  RequestOutput alone(const Request& request) {
    CoreDriver driver(*model_, config());
    return driver.complete(request);
  }
  static void expect_same(const RequestOutput& got, const RequestOutput& want, const std::string& how) {
    ASSERT_EQ(got.finish, FinishReason::kLength) << how << ": " << got.error_message;
    ASSERT_EQ(got.token_ids, want.token_ids) << how;
    ASSERT_EQ(got.logits, want.logits) << how;
  }

  std::unique_ptr<Kernels> kernels_;
  std::unique_ptr<Checkpoint> checkpoint_;
  std::unique_ptr<Model> model_;
};

TEST_P(EqualityTest, AloneIsBatched) {
  std::vector<Request> requests;
  for (uint64_t i = 0; i < 8; ++i) {
    requests.push_back(prompt(i, static_cast<int64_t>(1 + 7 * i)));
    if (i % 2 == 1) requests.back() = drawn(requests.back(), i);
  }
  CoreDriver driver(*model_, config());
  std::vector<std::shared_ptr<Client>> clients;
  for (const Request& request : requests) {
    clients.push_back(driver.submit(request));
    driver.step();  // each joins while the others decode
  }
  driver.run();
  for (size_t i = 0; i < 8; ++i) expect_same(clients[i]->output, alone(requests[i]), cat("request ", i));
}

TEST_P(EqualityTest, AloneIsChunked) {
  const Request request = prompt(1, 41);
  const RequestOutput want = alone(request);
  for (const int64_t chunk : {1, 3, 8, 16, 40, 41}) {
    EngineConfig chunked = config();
    chunked.max_prefill_token_num = chunk;
    CoreDriver driver(*model_, chunked);
    expect_same(driver.complete(request), want, cat("chunks of ", chunk));
  }
}

TEST_P(EqualityTest, AloneIsPrefixHit) {
  EngineConfig cached = config();
  cached.enable_prefix_caching = true;
  CoreDriver driver(*model_, cached);
  for (const int64_t length : {7, 8, 9, 16, 17, 45}) {
    const Request request = prompt(static_cast<uint64_t>(length), length);
    const RequestOutput want = alone(request);
    for (int i = 0; i < 3; ++i) {
      const RequestOutput got = driver.complete(request);
      EXPECT_EQ(got.cached_tokens, i == 0 ? 0 : (length - 1) / 8 * 8);
      expect_same(got, want, cat(length, " ids, time ", i));
    }
  }
}

TEST_P(EqualityTest, AloneIsPreempted) {
  for (const bool caching : {false, true}) {
    EngineConfig tight = config();
    tight.num_blocks = tight_blocks(96);
    tight.enable_prefix_caching = caching;
    CoreDriver driver(*model_, tight);
    std::vector<Request> requests;
    std::vector<std::shared_ptr<Client>> clients;
    for (uint64_t i = 0; i < 5; ++i) {
      requests.push_back(prompt(20 + i, static_cast<int64_t>(15 + 4 * i)));
      if (i % 2 == 0) requests.back() = drawn(requests.back(), i);
      clients.push_back(driver.submit(requests.back()));
    }
    driver.run();
    EXPECT_GT(driver.stats().preemptions, 0);
    for (size_t i = 0; i < 5; ++i) expect_same(clients[i]->output, alone(requests[i]), cat("request ", i));
  }
}

TEST_P(EqualityTest, ATurnIsTheSameAfterItsSessionWasEvicted) {
  const std::vector<int> first = random_ids(7, 19), second = random_ids(8, 6);
  RequestOutput kept, evicted;
  for (const bool evict : {false, true}) {
    EngineConfig tight = config();
    tight.num_blocks = tight_blocks(96);
    CoreDriver driver(*model_, tight);
    driver.complete(turn_of(1, first, 10, true));
    if (evict) {
      for (uint64_t seed = 9; seed < 13; ++seed) driver.submit(request_of(random_ids(seed, 90), 5));
      driver.run();
      EXPECT_EQ(driver.stats().cached_blocks, 0);
    }
    Request turn = turn_of(1, second, kNewTokens, false);
    turn.logits = OutputRows::kGeneration;
    (evict ? evicted : kept) = driver.complete(turn);
  }
  expect_same(evicted, kept, "evicted");
}

// Guesses of the model itself, which are right, and of another one, which are not: rows of several tokens of
// a sequence are those of one token after the other.
TEST_P(EqualityTest, AloneIsSpeculated) {
  FakeModel other({.vocab_size = model_->spec().vocab_size});
  std::vector<Request> requests;
  for (uint64_t i = 0; i < 6; ++i) {
    requests.push_back(prompt(40 + i, static_cast<int64_t>(1 + 9 * i)));
    if (i % 2 == 1) requests.back() = drawn(requests.back(), i);
  }
  const auto check = [&](const EngineConfig& guessed, Model* draft_model, const std::string& how) {
    CoreDriver driver(*model_, guessed, draft_model);
    std::vector<std::shared_ptr<Client>> clients;
    for (const Request& request : requests) {
      clients.push_back(driver.submit(request));
      driver.step();
    }
    driver.run();
    for (size_t i = 0; i < requests.size(); ++i)
      expect_same(clients[i]->output, alone(requests[i]), cat(how, ", request ", i));
    return driver.stats().speculative;
  };
  for (const int64_t count : {1, 4, 9}) {
    const EngineConfig drafts = guessing(config(), count, SpeculativeMethod::kDraft);
    const SpeculativeStats right = check(drafts, model_.get(), cat(count, " right ones"));
    EXPECT_GT(right.num_accepted_tokens, 0);
    EXPECT_EQ(right.num_accepted_tokens, right.num_draft_tokens);
    check(drafts, &other, cat(count, " wrong ones"));
    check(guessing(config(), count), nullptr, cat(count, " looked up"));
  }
  EngineConfig tight = guessing(config(), 4, SpeculativeMethod::kDraft);
  tight.num_blocks = tight_blocks(96);
  tight.max_prefill_token_num = 20;
  tight.enable_prefix_caching = true;
  check(tight, model_.get(), "a tight pool");
}

TEST_P(EqualityTest, RandomTrafficOverATightPool) {
  Rng rng(77);
  EngineConfig tight = config();
  tight.num_blocks = tight_blocks(112);
  tight.max_prefill_token_num = 20;
  tight.enable_prefix_caching = true;
  CoreDriver driver(*model_, tight);
  std::vector<Request> requests;
  std::vector<std::shared_ptr<Client>> clients;
  for (uint64_t i = 0; i < 24; ++i) {
    Request request = prompt(rng.below(4), static_cast<int64_t>(1 + rng.below(50)));
    request.input_ids.push_back(static_cast<int>(rng.below(200)));
    if (i % 3 == 0) request = drawn(request, rng.bits());
    requests.push_back(request);
    clients.push_back(driver.submit(request));
    for (uint64_t steps = rng.below(6); steps > 0; --steps) driver.step();
  }
  driver.run();
  EXPECT_GT(driver.stats().preemptions, 0);
  EXPECT_GT(driver.stats().prefix_hit_tokens, 0);
  for (size_t i = 0; i < requests.size(); ++i)
    expect_same(clients[i]->output, alone(requests[i]), cat("request ", i));
}

INSTANTIATE_TEST_SUITE_P(Models, EqualityTest,
                         ::testing::Values(EqualityCase{"llama2", "llama2"}, EqualityCase{"llama3", "llama3"},
                                           EqualityCase{"llama_dynamic_ntk", "llama_dynamic_ntk"},
                                           EqualityCase{"llama_longrope", "llama2", {}, 37},
                                           EqualityCase{"llama_tied_headdim", "llama_tied_headdim"},
                                           EqualityCase{"full", nullptr, {0}},
                                           EqualityCase{"window", nullptr, {16}},
                                           EqualityCase{"full_and_window", nullptr, {0, 16}},
                                           EqualityCase{"several", nullptr, {5, 0, 16, 1}}),
                         [](const auto& test) { return std::string(test.param.name); });
// One of each kind of attention: windows, soft caps and local rope, sinks, ALiBi, latent, log n and NTK,
// clipped, longrope, norms of whole rows, parallel, learned positions; and of experts.
INSTANTIATE_TEST_SUITE_P(
    Kinds, EqualityTest,
    ::testing::Values(EqualityCase{"mistral", "mistral"}, EqualityCase{"gemma2", "gemma2"},
                      EqualityCase{"gemma3_text", "gemma3_text"}, EqualityCase{"gpt_oss", "gpt_oss"},
                      EqualityCase{"falcon_rw", "falcon_rw"},
                      EqualityCase{"random_baichuan", "random_baichuan"},
                      EqualityCase{"deepseek_v3", "deepseek_v3"}, EqualityCase{"random_qwen", "random_qwen"},
                      EqualityCase{"qwen2_moe", "qwen2_moe"}, EqualityCase{"dbrx", "dbrx"},
                      EqualityCase{"phi3_longrope", "phi3_longrope"}, EqualityCase{"olmo2", "olmo2"},
                      EqualityCase{"cohere", "cohere"}, EqualityCase{"gpt2", "gpt2"}),
    [](const auto& test) { return std::string(test.param.name); });

// Each kind of cache that loses digits: what prefill reads is what later steps read.
std::vector<EqualityCase> quantized_cases() {
  std::vector<EqualityCase> cases;
  for (const char* model : {"llama3", "llama_dynamic_ntk", "mistral", "gemma2", "gpt_oss", "falcon_rw",
                            "deepseek_v3", "phi3_longrope"})
    for (const DType dtype : {DType::kU8, DType::kU4})
      cases.push_back({.name = model, .checkpoint = model, .kv_dtype = dtype});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(QuantizedCache, EqualityTest, ::testing::ValuesIn(quantized_cases()),
                         [](const auto& test) {
                           return cat(test.param.name, "_", kv_name(test.param.kv_dtype));
                         });

// Rounding has scales of its own for each token: it sees nothing of the others.
std::vector<EqualityCase> rounded_cases() {
  std::vector<EqualityCase> cases;
  for (const DType dtype : {DType::kQ4_1, DType::kQ4_K, DType::kI8G64, DType::kBF16})
    cases.push_back({.name = "rounded", .checkpoint = nullptr, .rounded = dtype});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(RoundedActivations, EqualityTest, ::testing::ValuesIn(rounded_cases()),
                         [](const auto& test) { return std::string(to_string(*test.param.rounded)); });

// The pool is planned with the bytes that a token takes.
TEST(QuantizedCache, HoldsMoreBlocksInTheSameMemory) {
  const auto kernels = make_cpu_kernels(std::make_shared<ThreadPool>(1));
  const auto checkpoint = open("llama3");
  const auto model = load_model(*checkpoint, *kernels, {});
  const KvLayout layout = model->kv_layout(DType::kF16, 64);
  const int64_t rows = 64 * layout.num_layers * layout.num_kv_heads;  // of K in a block
  const auto blocks = [&](DType dtype) {
    EngineConfig config;
    config.kv_memory_bytes = size_t{64} << 20;
    config.kv_dtype = dtype;
    return resolve_config(config, *model, 0).num_blocks;
  };
  const int64_t bytes = int64_t{64} << 20, d = layout.head_dim;
  EXPECT_EQ(blocks(DType::kF16), bytes / (rows * 4 * d));
  EXPECT_EQ(blocks(DType::kU8), bytes / (rows * 2 * (d + 4)));
  EXPECT_EQ(blocks(DType::kU4), bytes / (rows * (d + 4 + 8)));
}

}  // namespace
}  // namespace lmdeploy::testing
