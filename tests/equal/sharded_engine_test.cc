// The engine on a model that ranks share: the greedy tokens of the whole model, however requests meet.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core_driver.h"
#include "lmdeploy/core/error.h"
#include "lmdeploy/engine/channel.h"
#include "lmdeploy/engine/engine.h"
#include "random_llama.h"
#include "ranks.h"

namespace lmdeploy::testing {
namespace {

constexpr LlamaShape kShape = {
    .hidden = 48, .inner = 80, .layers = 3, .heads = 8, .kv_heads = 2, .head_dim = 8};
const LoadOptions kOptions = {.max_step_tokens = 128, .max_logit_rows = 64};
constexpr int64_t kNewTokens = 12;

struct EngineCase {
  const char* name;
  int64_t num_ranks;
  DType kv_dtype = DType::kF32;
  int64_t num_blocks = 64;
  int64_t num_guesses = 0;
};
void PrintTo(const EngineCase& c, std::ostream* out) { *out << c.name; }

class ShardedEngineTest : public ::testing::TestWithParam<EngineCase> {
 protected:
  /// The tokens of several requests at once, the last of which begins as the first does.
  static std::vector<std::vector<int>> generate(Model& model) {
    const EngineCase& c = GetParam();
    EngineConfig config = small_config();
    config.kv_dtype = c.kv_dtype;
    config.num_blocks = c.num_blocks;
    config.max_prefill_token_num = 10;
    config.max_logit_rows = 64;
    config.enable_prefix_caching = true;
    if (c.num_guesses > 0) config = guessing(config, c.num_guesses);
    CoreDriver driver(model, config);
    std::vector<std::shared_ptr<Client>> clients;
    for (const uint64_t seed : {1, 2, 3, 1})
      clients.push_back(
          driver.submit(request_of(random_ids(seed, 17 + static_cast<int64_t>(seed)), kNewTokens)));
    driver.run();
    std::vector<std::vector<int>> ids;
    for (const auto& client : clients) {
      EXPECT_EQ(client->output.finish, FinishReason::kLength) << client->output.error_message;
      ids.push_back(client->output.token_ids);
    }
    return ids;
  }
};

TEST_P(ShardedEngineTest, GreedyTokensOfTheWholeModel) {
  const MemoryCheckpoint checkpoint = make_random_llama(kShape, 4);
  const std::string name = backend_names().back();
  const auto whole = load_model(checkpoint, backend(name), kOptions);
  RankedModel ranked(checkpoint, name, GetParam().num_ranks, kOptions);
  EXPECT_EQ(generate(ranked.model()), generate(*whole));
}

INSTANTIATE_TEST_SUITE_P(
    Cases, ShardedEngineTest,
    ::testing::Values(EngineCase{.name = "two_ranks", .num_ranks = 2},
                      EngineCase{.name = "four_ranks", .num_ranks = 4},  // two have one kv head
                      EngineCase{.name = "int8_cache", .num_ranks = 2, .kv_dtype = DType::kU8},
                      EngineCase{.name = "int4_cache", .num_ranks = 2, .kv_dtype = DType::kU4},
                      EngineCase{.name = "preempted", .num_ranks = 2, .num_blocks = 18},
                      EngineCase{.name = "guesses", .num_ranks = 2, .num_guesses = 3}),
    [](const auto& test) { return std::string(test.param.name); });

// The tokens of a few prompts, by an engine with its thread: steps of one token each are recorded on a GPU.
std::vector<std::vector<int>> generate_on(Model& model, const Kernels& kernels) {
  EngineConfig config = small_config();
  config.max_prefill_token_num = 10;
  config.max_logit_rows = 64;
  Engine engine(model, kernels, config);
  std::vector<std::unique_ptr<RequestHandle>> handles;
  for (const uint64_t seed : {1, 2, 3})
    handles.push_back(engine.submit(request_of(random_ids(seed, 19), 40)));
  std::vector<std::vector<int>> ids;
  for (const auto& handle : handles) ids.push_back(read_all(*handle));
  return ids;
}

TEST(ShardedEngine, CudaRanks) {
  const std::string name = "cuda_f32";
  LMD_REQUIRE_GPU(name);
  const MemoryCheckpoint checkpoint = make_random_llama(kShape, 4);
  const auto whole = load_model(checkpoint, backend("ref"), kOptions);
  RankedModel ranked(checkpoint, name, 2, kOptions);
  EXPECT_EQ(generate_on(ranked.model(), ranked.kernels()), generate_on(*whole, backend("ref")));
}

// The pool is in the memory of every rank: each has its kv heads' part.
TEST(ShardedEngine, BlocksHoldARanksPart) {
  const MemoryCheckpoint checkpoint = make_random_llama(kShape, 4);
  const auto whole = load_model(checkpoint, backend("ref"), kOptions);
  RankedModel ranked(checkpoint, "ref", 2, kOptions);
  const int64_t bytes = ranked.model().kv_layout(DType::kF16, 16).block_bytes();
  EXPECT_EQ(2 * bytes, whole->kv_layout(DType::kF16, 16).block_bytes());
  EXPECT_EQ(ranked.model().other_ranks_memory().size(), 1u);
}

}  // namespace
}  // namespace lmdeploy::testing
