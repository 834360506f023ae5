#include "lmdeploy/pipeline/request_builder.h"

#include "lmdeploy/core/expect_error.h"
#include "lmdeploy/pipeline/scripted_tokenizer.h"

namespace lmdeploy {
namespace {

RequestBuilder make_builder(std::shared_ptr<const Tokenizer> tokenizer) {
  RequestDefaults defaults;
  defaults.tokenizer = std::move(tokenizer);
  defaults.eos_ids = {2, 5};
  defaults.template_stop_words = {"\nUser:"};
  defaults.vocab_size = 10;
  defaults.session_len = 64;
  return RequestBuilder(defaults);
}

RequestBuilder make_builder() {
  return make_builder(std::make_shared<ScriptedTokenizer>(
      std::vector<ScriptedTokenizer::Piece>{{"a"}, {"b"}, {"</s>", true}, {"<x>", true}, {" a"}}));
}

TEST(RequestBuilder, GreedyUnlessDoSample) {
  GenerationConfig config;
  config.top_k = 3;
  config.temperature = 0.5f;
  config.repetition_penalty = 1.5f;
  config.presence_penalty = 0.25f;
  SamplingParams greedy = make_builder().build({1}, config).request.sampling;
  EXPECT_EQ(greedy.temperature, 0);
  EXPECT_EQ(greedy.top_k, 0);
  EXPECT_EQ(greedy.repetition_penalty, 1.5f);  // acts under greedy too
  EXPECT_EQ(greedy.presence_penalty, 0.25f);
  config.do_sample = true;
  config.top_p = 0;
  config.random_seed = 9;
  SamplingParams sampled = make_builder().build({1}, config).request.sampling;
  EXPECT_EQ(sampled.temperature, 0.5f);
  EXPECT_EQ(sampled.top_k, 3);
  EXPECT_GT(sampled.top_p, 0);
  EXPECT_EQ(sampled.seed, 9u);
  config.temperature = 0;
  EXPECT_EQ(make_builder().build({1}, config).request.sampling.top_k, 0);
}

TEST(RequestBuilder, FreshSeeds) {
  GenerationConfig config;
  config.do_sample = true;
  const RequestBuilder builder = make_builder();
  EXPECT_NE(builder.build({1}, config).request.sampling.seed,
            builder.build({1}, config).request.sampling.seed);
}

TEST(RequestBuilder, F15_F16_StopRules) {
  GenerationConfig config;
  config.stop_words = {"<x>", "END"};
  config.stop_token_ids = {8};
  PreparedRequest prepared = make_builder().build({1}, config);
  EXPECT_EQ(prepared.request.stop_ids, (std::vector<int>{2, 3, 5, 8}));
  EXPECT_EQ(prepared.text.stop_words, (std::vector<std::string>{"END", "\nUser:"}));
  config.ignore_eos = true;
  prepared = make_builder().build({1}, config);
  EXPECT_TRUE(prepared.request.stop_ids.empty());
  EXPECT_TRUE(prepared.text.stop_words.empty());
}

TEST(RequestBuilder, BadWordsAndBadIds) {
  GenerationConfig config;
  config.bad_words = {"a"};
  config.bad_token_ids = {7};
  EXPECT_EQ(make_builder().build({1}, config).request.sampling.bad_words,
            (std::vector<std::vector<int>>{{0}, {4}, {7}}));
}

TEST(RequestBuilder, F40_F41_LengthLimits) {
  const RequestBuilder builder = make_builder();
  EXPECT_FALSE(builder.fits(65, {}));
  EXPECT_FALSE(builder.fits(64, {}));
  EXPECT_TRUE(builder.fits(63, {}));
  GenerationConfig reads;
  reads.max_new_tokens = 0;
  EXPECT_TRUE(builder.fits(64, reads)) << "nothing is generated";
  EXPECT_FALSE(builder.fits(65, reads));
  const Response rejection = builder.rejection(65);
  EXPECT_EQ(rejection.finish_reason, FinishReason::kLength);
  EXPECT_EQ(rejection.text, "");
  EXPECT_TRUE(rejection.error_code.has_value());
  EXPECT_NE(rejection.error_message.find("65"), std::string::npos);
  EXPECT_NE(rejection.error_message.find("64"), std::string::npos);

  GenerationConfig config;
  config.max_new_tokens = 2048;
  EXPECT_EQ(builder.build(std::vector<int>(20, 1), config).request.max_new_tokens, 44);
  config.max_new_tokens.reset();
  EXPECT_EQ(builder.build(std::vector<int>(20, 1), config).request.max_new_tokens, 44);
  config.max_new_tokens = 5;
  EXPECT_EQ(builder.build(std::vector<int>(20, 1), config).request.max_new_tokens, 5);
}

TEST(RequestBuilder, BadInput_IdsOutsideTheVocabulary) {
  GenerationConfig config;
  config.stop_token_ids = {10};
  expect_error(ErrorCode::kInvalidArgument, {"stop_token_ids", "10"},
               [&] { make_builder().build({1}, config); });
  config = {};
  config.bad_token_ids = {11};
  expect_error(ErrorCode::kInvalidArgument, {"bad_token_ids", "11"},
               [&] { make_builder().build({1}, config); });
  config = {};
  config.logit_bias = {{12, 1.0f}};
  expect_error(ErrorCode::kInvalidArgument, {"logit_bias", "12"}, [&] { make_builder().build({1}, config); });
}

TEST(RequestBuilder, WordsNeedATokenizer) {
  GenerationConfig config;
  config.stop_words = {"END"};
  expect_error(ErrorCode::kUnsupported, {"stop_token_ids"},
               [&] { make_builder(nullptr).build({1}, config); });
}

}  // namespace
}  // namespace lmdeploy
