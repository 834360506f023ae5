// Lengths: prompts that do not fit, answers that are cut, what the cache holds.
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

#include "fixture.h"
#include "lmdeploy/core/log.h"

namespace lmdeploy::testing {
namespace {

class LimitsTest : public PipelineTest {
 protected:
  PipelineConfig short_sessions() const {
    PipelineConfig pipeline_config = config();
    pipeline_config.session_len = 64;
    return pipeline_config;
  }
};

TEST_F(LimitsTest, F40_APromptThatDoesNotFitIsToldSo) {
  write_chain_model(folder(), {.after_newline = '0'});
  Pipeline pipeline(short_sessions());
  const auto ids = [](size_t count) { return std::vector<int>(count, '3'); };
  const std::vector<Response> responses =
      pipeline.infer({ids(65), ids(63), ids(64), ids(4)}, {new_tokens(2)});
  for (const size_t i : {0u, 2u}) {
    EXPECT_EQ(responses[i].text, "");
    EXPECT_EQ(responses[i].finish_reason, FinishReason::kLength);
    EXPECT_EQ(responses[i].error_code, ErrorCode::kInvalidArgument);
    EXPECT_NE(responses[i].error_message.find("session_len is 64"), std::string::npos);
    EXPECT_EQ(responses[i].generate_token_len, 0);
    EXPECT_EQ(responses[i].index, static_cast<int64_t>(i));
  }
  EXPECT_EQ(responses[1].token_ids, std::vector<int>{'4'});
  EXPECT_EQ(responses[1].finish_reason, FinishReason::kLength);
  EXPECT_FALSE(responses[1].error_code);
  EXPECT_EQ(responses[3].text, "45");
  const auto stream = pipeline.submit(ids(64), {});
  const std::optional<Response> piece = stream->next(std::chrono::milliseconds(0));
  ASSERT_TRUE(piece);
  EXPECT_EQ(piece->finish_reason, FinishReason::kLength);
  EXPECT_TRUE(stream->finished());
  EXPECT_FALSE(stream->next(std::chrono::milliseconds(0)));
}

TEST_F(LimitsTest, F41_ATooLargeMaxNewTokensIsClamped) {
  write_chain_model(folder());
  Pipeline pipeline(short_sessions());
  const std::string ends_after_five = std::string(19, '.') + "u", never_ends = std::string(19, '.') + "0";
  const Response ended = run_raw(pipeline, ends_after_five, new_tokens(2048));
  EXPECT_EQ(ended.input_token_len, 20);
  EXPECT_EQ(ended.generate_token_len, 5);
  EXPECT_EQ(ended.finish_reason, FinishReason::kStop);
  GenerationConfig unlimited;
  unlimited.max_new_tokens.reset();
  for (const GenerationConfig& gen_config : {new_tokens(2048), unlimited}) {
    const Response endless = run_raw(pipeline, never_ends, gen_config);
    EXPECT_EQ(endless.generate_token_len, 44);
    EXPECT_EQ(endless.finish_reason, FinishReason::kLength);
  }
}

TEST_F(LimitsTest, F42_SessionLengthIsWhatTheCacheHolds) {
  write_chain_model(folder());
  PipelineConfig small_cache = config();
  small_cache.session_len = 210000;
  small_cache.cache_max_entry_count = 4;  // blocks
  Pipeline pipeline(small_cache);
  EXPECT_EQ(pipeline.session_len(), 256);
  const Response response = pipeline.infer({std::vector<int>(300, '3')}, {GenerationConfig()}).front();
  EXPECT_NE(response.error_message.find("session_len is 256"), std::string::npos);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they need all addresses
// As long as it lives the process gets `more` bytes of addresses and no others.
class AddressLimit {
 public:
  explicit AddressLimit(rlim_t more) {
    getrlimit(RLIMIT_AS, &before_);
    rlim_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlimit limit = {pages * static_cast<rlim_t>(getpagesize()) + more, before_.rlim_max};
    setrlimit(RLIMIT_AS, &limit);
  }
  ~AddressLimit() { setrlimit(RLIMIT_AS, &before_); }

 private:
  rlimit before_ = {};
};

TEST_F(LimitsTest, F48_AModelThatDoesNotFitSaysWhatToChange) {
  write_chain_model(folder());
  PipelineConfig large = config();
  large.max_prefill_token_num = large.num_tokens_per_iter = 1 << 24;
  const AddressLimit limit(rlim_t{64} << 20);
  expect_error(ErrorCode::kResourceExhausted,
               {"load " + folder(), "the buffers for max_prefill_token_num and max_batch_size do not fit",
                "lower max_prefill_token_num (16777216) or max_batch_size (8)"},
               [&] { Pipeline pipeline(large); });
}
#endif

TEST_F(LimitsTest, AQuantisedCacheAnswersAloneAsTogether) {
  write_random_text_model(folder(), 2);
  for (const int policy : {8, 4}) {
    PipelineConfig quantized = config();
    quantized.quant_policy = policy;
    quantized.enable_prefix_caching = true;
    quantized.cache_block_seq_len = 16;
    Pipeline pipeline(quantized);
    EXPECT_EQ(pipeline.engine().config().kv_dtype, policy == 8 ? DType::kU8 : DType::kU4);
    const std::vector<Prompt> prompts = {random_ids(1, 70, kTextVocab), random_ids(2, 33, kTextVocab)};
    const std::vector<Response> together = pipeline.infer(prompts, {new_tokens(20)});
    for (size_t i = 0; i < prompts.size(); ++i)
      EXPECT_EQ(pipeline.infer({prompts[i]}, {new_tokens(20)}).front().token_ids, together[i].token_ids);
  }
}

// Nothing can interrupt a step, and what runs waits for it.
TEST_F(LimitsTest, AStepOfTheCpuTakesFewPromptTokensUnlessMoreAreAskedFor) {
  write_chain_model(folder());
  const auto step_of = [&](std::optional<int64_t> most, std::optional<int64_t> least) {
    PipelineConfig asked = config();
    asked.device_type = "cpu";
    asked.max_prefill_token_num = most;
    asked.num_tokens_per_iter = least;
    return Pipeline(asked).engine().config().max_prefill_token_num;
  };
  EXPECT_EQ(step_of({}, {}), 256);
  EXPECT_EQ(step_of(8192, {}), 256);
  EXPECT_EQ(step_of(100, 0), 100);
  EXPECT_EQ(step_of(4096, 64), 256);
  EXPECT_EQ(step_of(4096, 1024), 1024);
}

TEST_F(LimitsTest, F51_CacheHitsAreVisible) {
  write_random_text_model(folder(), 2);
  for (const bool caching : {true, false}) {
    PipelineConfig pipeline_config = config();
    pipeline_config.enable_prefix_caching = caching;
    Pipeline pipeline(pipeline_config);
    const std::vector<int> long_ids = random_ids(1, 200, kTextVocab),
                           short_ids = random_ids(2, 40, kTextVocab);
    const auto cached_tokens = [&](const std::vector<int>& ids) {
      return pipeline.infer({ids}, {new_tokens(2)}).front().cached_tokens;
    };
    EXPECT_EQ(cached_tokens(long_ids), 0);
    EXPECT_EQ(cached_tokens(long_ids), caching ? 192 : 0);
    EXPECT_EQ(cached_tokens(short_ids), 0);
    EXPECT_EQ(cached_tokens(short_ids), 0);
    EXPECT_EQ(pipeline.engine().stats().prefix_hit_tokens, caching ? 192 : 0);
  }
}

TEST_F(LimitsTest, RopeScalingAndOverridesReachTheModel) {
  write_chain_model(folder(), {.max_positions = 128});
  PipelineConfig pipeline_config = config();
  EXPECT_EQ(Pipeline(pipeline_config).spec().rope.kind, RopeSpec::Kind::kDefault);
  pipeline_config.rope_scaling_factor = 2;
  EXPECT_EQ(Pipeline(pipeline_config).spec().rope.kind, RopeSpec::Kind::kDynamicNtk);
  EXPECT_EQ(Pipeline(pipeline_config).session_len(), 256);
  pipeline_config.hf_overrides["rope_scaling"] = JsonObject{{"rope_type", "linear"}, {"factor", 4.0}};
  EXPECT_EQ(Pipeline(pipeline_config).spec().rope.kind, RopeSpec::Kind::kLinear);
}

TEST_F(LimitsTest, ProgressReachesTheEnd) {
  write_chain_model(folder());
  PipelineConfig pipeline_config = config();
  int64_t last_done = -1, last_total = 0;
  pipeline_config.progress = [&](int64_t done, int64_t total) {
    EXPECT_GE(done, last_done);
    last_done = done;
    last_total = total;
  };
  Pipeline pipeline(pipeline_config);
  EXPECT_GT(last_total, 0);
  EXPECT_EQ(last_done, last_total);
}

TEST_F(LimitsTest, F47_TheStartSaysWhatTheCacheHolds) {
  write_chain_model(folder());
  const auto log_of = [&](double cache_max_entry_count) {
    PipelineConfig pipeline_config = short_sessions();
    pipeline_config.cache_max_entry_count = cache_max_entry_count;
    set_log_level(LogLevel::kInfo);
    ::testing::internal::CaptureStderr();
    { const Pipeline pipeline(pipeline_config); }
    set_log_level(LogLevel::kWarning);
    return ::testing::internal::GetCapturedStderr();
  };
  const std::string blocks = log_of(5), share = log_of(0.001);
  EXPECT_NE(blocks.find("a given number of blocks: 5 blocks of "), std::string::npos) << blocks;
  EXPECT_NE(blocks.find("320 tokens; max concurrency at session_len 64: 5 (max_batch_size 8)"),
            std::string::npos)
      << blocks;
  EXPECT_NE(share.find("MiB free after weights and work space, a share of 0.001 of that: "),
            std::string::npos)
      << share;
}

}  // namespace
}  // namespace lmdeploy::testing
