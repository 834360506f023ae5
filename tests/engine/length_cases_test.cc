// Session length, clamping, the step budget: field cases F40, F41, F42, F81 and the config.
#include <gtest/gtest.h>

#include <algorithm>

#include "core_driver.h"
#include "fake_model.h"
#include "lmdeploy/engine/engine.h"
#include "lmdeploy/engine/kv_pool.h"

namespace lmdeploy::testing {
namespace {

EngineConfig session_64() {
  EngineConfig config = small_config();
  config.session_len = 64;
  return config;
}

TEST(Length, F40_APromptThatDoesNotFitIsToldSo) {
  FakeModel model;
  CoreDriver driver(model, session_64());
  const auto fits = driver.submit(request_of(random_ids(1, 63), -1));
  for (const int64_t length : {65, 64}) {
    const RequestOutput output = driver.complete(request_of(random_ids(1, length), -1));
    EXPECT_EQ(output.finish, FinishReason::kError);
    EXPECT_EQ(output.error_code, ErrorCode::kInvalidArgument);
    EXPECT_NE(output.error_message.find(cat("prompt has ", length, " tokens, session holds 64")),
              std::string::npos)
        << output.error_message;
    EXPECT_EQ(output.prompt_tokens, length);
  }
  driver.run();
  EXPECT_EQ(fits->output.finish, FinishReason::kLength);
  EXPECT_EQ(fits->output.token_ids, model.generate(random_ids(1, 63), 1));
}

TEST(Length, F41_TooManyNewTokensAreClamped) {
  FakeModel model;
  CoreDriver driver(model, session_64());
  model.script = [](std::span<const int> tokens) { return tokens.size() == 25 ? 9 : 1; };
  Request request = request_of(random_ids(1, 20), 2048);
  request.stop_ids = {9};
  ::testing::internal::CaptureStderr();
  RequestOutput output = driver.complete(request);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(output.finish, FinishReason::kStop);
  EXPECT_EQ(output.token_ids.size(), 5u);
  EXPECT_NE(log.find("warning"), std::string::npos) << log;
  EXPECT_NE(log.find("max_new_tokens 2048 is clamped to 44"), std::string::npos) << log;
  for (const int64_t max_new_tokens : {2048, -1}) {
    output = driver.complete(request_of(random_ids(1, 20), max_new_tokens));
    EXPECT_EQ(output.finish, FinishReason::kLength);
    EXPECT_EQ(output.token_ids.size(), 44u);
    EXPECT_EQ(output.session_tokens, 64);
  }
}

TEST(Length, F42_StartUpSaysWhatFits) {
  FakeModel model;
  const std::unique_ptr<Kernels> kernels = make_ref_kernels(std::make_shared<ThreadPool>(1));
  EngineConfig config;
  config.session_len = 210000;
  config.kv_memory_bytes = static_cast<size_t>(model.kv_layout(DType::kF32, 1).block_bytes()) * 30000;
  ::testing::internal::CaptureStderr();
  Engine engine(model, *kernels, config);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(engine.session_len(), 29952) << "468 blocks of 64";
  EXPECT_EQ(engine.config().num_blocks, 468);
  EXPECT_NE(log.find("session_len 210000"), std::string::npos) << log;
  EXPECT_NE(log.find("session_len is now 29952"), std::string::npos) << log;
  const auto handle = engine.submit(request_of(random_ids(1, 40000), 1));
  const std::optional<RequestOutput> output = handle->next(std::chrono::seconds{60});
  ASSERT_TRUE(output.has_value());
  EXPECT_EQ(output->error_code, ErrorCode::kInvalidArgument);
  EXPECT_NE(output->error_message.find("40000"), std::string::npos);
  EXPECT_NE(output->error_message.find("29952"), std::string::npos);
}

// A's longest gap is one step; that a step is bounded in total is what keeps it short.
TEST(Length, F81_LongPromptsDoNotFreezeAStream) {
  constexpr int64_t kChunk = 16;
  for (const int newcomers : {1, 3}) {
    FakeModel model;
    EngineConfig config = small_config();
    config.num_blocks = 1000;
    config.session_len = 0;
    config.max_prefill_token_num = kChunk;
    CoreDriver driver(model, config);
    const auto stream = driver.submit(request_of(random_ids(1, 5), 300));
    for (int i = 0; i < 20; ++i) driver.step();
    std::vector<std::shared_ptr<Client>> others;
    for (int i = 0; i < newcomers; ++i)
      others.push_back(driver.submit(request_of(random_ids(static_cast<uint64_t>(2 + i), 32 * kChunk), 3)));
    while (!stream->done()) {
      const size_t before = stream->output.token_ids.size();
      driver.step();
      ASSERT_EQ(stream->output.token_ids.size(), before + 1) << "the stream gets a token in every step";
    }
    driver.run();
    for (const StepRecord& step : model.steps) {
      ASSERT_LE(step.prompt_tokens, kChunk);
      ASSERT_LE(step.tokens, kChunk + step.sequences);
    }
    EXPECT_EQ(stream->output.token_ids, model.generate(random_ids(1, 5), 300));
    for (const auto& other : others) EXPECT_EQ(other->output.token_ids.size(), 3u);
  }
}

TEST(Config, BadFieldsAreNamed) {
  FakeModel model;
  const auto message_of = [&](auto change) -> std::string {
    EngineConfig config = small_config();
    change(config);
    try {
      resolve_config(config, model, size_t{1} << 20);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    return "accepted";
  };
  EXPECT_NE(message_of([](EngineConfig& c) { c.max_batch_size = 0; }).find("max_batch_size is 0"),
            std::string::npos);
  EXPECT_NE(message_of([](EngineConfig& c) { c.block_len = -1; }).find("block_len is -1"), std::string::npos);
  EXPECT_NE(message_of([](EngineConfig& c) {
              c.max_logit_rows = 3;
            }).find("max_logit_rows is 3; expected at least 8"),
            std::string::npos);
  EXPECT_NE(
      message_of([](EngineConfig& c) { c.num_blocks = 0, c.kv_memory_bytes = 5; }).find("holds no block"),
      std::string::npos);
}

// F48: the option to change, and how far.
TEST(Config, APoolThatCannotBeHadSaysHowManyBlocksFit) {
  FakeModel model;
  const auto kernels = make_ref_kernels(std::make_shared<ThreadPool>(1));
  const KvLayout layout = model.kv_layout(DType::kF32, 64);
  constexpr int64_t kBlocks = int64_t{1} << 48;  // more than there are addresses
  try {
    const KvPool pool(model, layout, kBlocks, *kernels);
    FAIL() << "a pool of " << kBlocks << " blocks";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
    const std::string message = error.what();
    for (const std::string& part :
         {cat("KV cache of ", kBlocks, " blocks"), cat(" blocks of ", layout.block_bytes(), " bytes fit"),
          std::string("lower cache_max_entry_count")})
      EXPECT_NE(message.find(part), std::string::npos) << message;
  }
}

TEST(Config, PoolIsWhatTheBatchNeedsOrAQuarterOfTheMemory) {
  FakeModel model;
  EngineConfig config;
  config.max_batch_size = 3;
  config.session_len = 100;
  EXPECT_EQ(resolve_config(config, model, size_t{1} << 40).num_blocks, 6);
  const auto block_bytes = static_cast<size_t>(model.kv_layout(config.kv_dtype, 64).block_bytes());
  const EngineConfig small = resolve_config(config, model, 4 * block_bytes);
  EXPECT_EQ(small.num_blocks, 1);
  EXPECT_EQ(small.session_len, 64);
  config.session_len = 0;
  EXPECT_EQ(resolve_config(config, model, size_t{1} << 40).session_len, 4096) << "the model's";
}

// Other models warn; this one has no row to add.
TEST(Config, SessionsEndWithTheLearnedPositions) {
  FakeModel model({.max_positions = 1024, .learned_positions = true});
  EngineConfig config;
  config.max_batch_size = 3;
  EXPECT_EQ(resolve_config(config, model, size_t{1} << 40).session_len, 1024) << "the model's";
  config.session_len = 1024;
  EXPECT_EQ(resolve_config(config, model, size_t{1} << 40).session_len, 1024);
  config.session_len = 1025;
  try {
    resolve_config(config, model, size_t{1} << 40);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("session_len is 1025; expected at most 1024"), std::string::npos)
        << error.what();
  }
  EXPECT_EQ(resolve_config(config, FakeModel({.max_positions = 1024}), size_t{1} << 40).session_len, 1025);
}

}  // namespace
}  // namespace lmdeploy::testing
