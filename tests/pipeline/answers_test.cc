// Prompts in, answers out: shapes of prompts, stop rules, streams, batches.
#include <algorithm>

#include "fixture.h"

namespace lmdeploy::testing {
namespace {

using AnswersTest = PipelineTest;

constexpr const char* kAlphabet = "abcdefghijklmnopqrstuvwxyz";

TEST_F(AnswersTest, PromptShapes) {
  write_chain_model(folder());
  Pipeline pipeline(config());
  const Json messages = parse_json(R"([{"role":"user","content":"hi"}])", "test");
  const std::vector<Response> responses =
      pipeline.infer({std::string("hi"), messages, std::vector<int>{'w', 'x'}}, {GenerationConfig()});
  ASSERT_EQ(responses.size(), 3u);
  EXPECT_EQ(responses[0].text, kAlphabet);
  EXPECT_EQ(responses[1].text, kAlphabet);
  EXPECT_EQ(responses[2].text, "yz");
  EXPECT_EQ(responses[2].token_ids, (std::vector<int>{'y', 'z'}));
  EXPECT_EQ(responses[2].input_token_len, 2);
  for (const Response& response : responses) EXPECT_EQ(response.finish_reason, FinishReason::kStop);
  EXPECT_EQ(responses[0].input_token_len, responses[1].input_token_len);
  EXPECT_EQ(run_raw(pipeline, "x").text, "yz");
  EXPECT_EQ(pipeline.render(std::string("hi")), "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
}

TEST_F(AnswersTest, OrderIndexAndOneConfigPerPrompt) {
  write_chain_model(folder());
  Pipeline pipeline(config());
  std::vector<Prompt> prompts;
  std::vector<GenerationConfig> configs;
  for (int i = 0; i < 20; ++i) {
    prompts.emplace_back(std::vector<int>{'a' + i});
    configs.push_back(new_tokens(1 + i % 4));
  }
  const std::vector<Response> responses = pipeline.infer(prompts, configs);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(responses[static_cast<size_t>(i)].index, i);
    EXPECT_EQ(responses[static_cast<size_t>(i)].text,
              std::string(kAlphabet).substr(static_cast<size_t>(i) + 1, static_cast<size_t>(1 + i % 4)));
    EXPECT_EQ(responses[static_cast<size_t>(i)].generate_token_len, 1 + i % 4);
  }
}

TEST_F(AnswersTest, SeveralChoices) {
  write_random_text_model(folder(), 3);
  Pipeline pipeline(config());
  GenerationConfig gen_config = new_tokens(12);
  gen_config.n = 3;
  gen_config.do_sample = true;
  gen_config.random_seed = 17;
  gen_config.ignore_eos = true;
  const Prompt prompt = std::vector<int>{5, 6};
  const std::vector<Response> responses = pipeline.infer({prompt, prompt}, {gen_config});
  ASSERT_EQ(responses.size(), 6u);
  EXPECT_EQ(responses[2].index, 0);
  EXPECT_EQ(responses[3].index, 1);
  EXPECT_NE(responses[0].token_ids, responses[1].token_ids);
  EXPECT_EQ(responses[1].token_ids, responses[4].token_ids);  // the same seed, another prompt of the batch
  const Response alone = pipeline.infer({prompt}, {gen_config.choice(2)}).front();
  EXPECT_EQ(alone.token_ids, responses[2].token_ids);
  expect_error(ErrorCode::kInvalidArgument, {"gen_config.n is 3"},
               [&] { pipeline.submit(prompt, gen_config); });
}

TEST_F(AnswersTest, F12_StopWordsOfSeveralTokens) {
  write_chain_model(folder());
  Pipeline pipeline(config());
  GenerationConfig gen_config;
  gen_config.stop_words = {"xy", "def"};
  const Response batch = pipeline.infer({std::string("hi")}, {gen_config}).front();
  EXPECT_EQ(batch.text, "abc");
  EXPECT_EQ(batch.finish_reason, FinishReason::kStop);
  EXPECT_EQ(batch.generate_token_len, 6);
  const Response streamed = read_all(*pipeline.submit(std::string("hi"), gen_config));
  EXPECT_EQ(streamed.text, "abc");
  EXPECT_EQ(streamed.finish_reason, FinishReason::kStop);
  EXPECT_EQ(streamed.token_ids, batch.token_ids);
  gen_config.include_stop_str_in_output = true;
  EXPECT_EQ(pipeline.infer({std::string("hi")}, {gen_config}).front().text, "abcdef");
}

TEST_F(AnswersTest, F12_StopWordEndsTheRequestInTheEngine) {
  write_chain_model(folder(), {.after_newline = '0'});
  Pipeline pipeline(config());
  GenerationConfig gen_config = new_tokens(4000);
  gen_config.stop_words = {"34"};
  const auto stream = pipeline.submit(std::string("hi"), gen_config);
  EXPECT_EQ(read_all(*stream).text, "012");
  expect_idle(pipeline);  // while the stream is still there
  EXPECT_LT(pipeline.engine().stats().generated_tokens, 4000);
}

TEST_F(AnswersTest, F15_ControlTokenAsStopWord) {
  // Nothing names an end token: the model would repeat <|im_end|> for ever.
  write_chain_model(folder(), {.eos = false});
  Pipeline pipeline(config());
  EXPECT_TRUE(pipeline.eos_ids().empty());
  const Response without = pipeline.infer({std::string("hi")}, {new_tokens(40)}).front();
  EXPECT_EQ(without.finish_reason, FinishReason::kLength);
  EXPECT_EQ(without.text, kAlphabet);
  GenerationConfig gen_config = new_tokens(40);
  gen_config.stop_words = {"<|im_end|>"};
  const Response with = pipeline.infer({std::string("hi")}, {gen_config}).front();
  EXPECT_EQ(with.finish_reason, FinishReason::kStop);
  EXPECT_EQ(with.text, kAlphabet);
  EXPECT_EQ(with.generate_token_len, 26);
}

TEST_F(AnswersTest, F16_AllEndOfTurnIds) {
  const JsonObject in_config = {{"eos_token_id", 0}};
  const JsonObject in_generation_config = {{"eos_token_id", JsonArray{'p', 'g'}}};
  write_chain_model(folder(), {.config = in_config, .generation_config = in_generation_config});
  Pipeline pipeline(config());
  EXPECT_EQ(pipeline.eos_ids(), (std::vector<int>{'g', 'p', kImEnd}));
  EXPECT_EQ(run_raw(pipeline, "a").text, "bcdef");
  EXPECT_EQ(run_raw(pipeline, "h").text, "ijklmno");
  EXPECT_EQ(run_raw(pipeline, "q").text, "rstuvwxyz");
  GenerationConfig gen_config = new_tokens(40);
  gen_config.ignore_eos = true;
  gen_config.stop_words = {"de"};
  const Response ignored = run_raw(pipeline, "a", gen_config);
  EXPECT_EQ(ignored.finish_reason, FinishReason::kLength);
  EXPECT_EQ(ignored.generate_token_len, 40);
  EXPECT_EQ(ignored.text, std::string(kAlphabet).substr(1));
}

TEST_F(AnswersTest, StreamPiecesJoinToTheWhole) {
  write_chain_model(folder());
  Pipeline pipeline(config());
  const auto stream = pipeline.submit(std::string("hi"), {});
  Response piece;
  std::string text;
  size_t num_ids = 0;
  while (!stream->finished()) {
    const std::optional<Response> next = stream->next(std::chrono::seconds(10));
    ASSERT_TRUE(next);
    text += next->text;
    num_ids += next->token_ids.size();
    EXPECT_EQ(static_cast<size_t>(next->generate_token_len), num_ids);
    piece = *next;
  }
  EXPECT_EQ(text, kAlphabet);
  EXPECT_EQ(piece.finish_reason, FinishReason::kStop);
  EXPECT_FALSE(stream->next(std::chrono::milliseconds(0)));
}

TEST_F(AnswersTest, BadWordsMinNewTokensAndIncludedStop) {
  write_chain_model(folder());
  Pipeline pipeline(config());
  GenerationConfig gen_config = new_tokens(3);
  gen_config.bad_words = {"b"};
  const Response banned = run_raw(pipeline, "a", gen_config);
  EXPECT_EQ(banned.text.find('b'), std::string::npos);
  EXPECT_EQ(banned.generate_token_len, 3);

  gen_config = new_tokens(20);
  gen_config.min_new_tokens = 5;
  EXPECT_GE(run_raw(pipeline, "x", gen_config).generate_token_len, 5);

  gen_config = new_tokens(20);
  gen_config.include_stop_str_in_output = true;
  const Response included = run_raw(pipeline, "x", gen_config);
  EXPECT_EQ(included.text, "yz<|im_end|>");
  EXPECT_EQ(included.token_ids, (std::vector<int>{'y', 'z', kImEnd}));
  EXPECT_EQ(included.generate_token_len, 3);
}

TEST_F(AnswersTest, SeedDecidesWhateverTheBatch) {
  write_random_text_model(folder(), 5);
  Pipeline pipeline(config());
  GenerationConfig gen_config = new_tokens(16);
  gen_config.do_sample = true;
  gen_config.random_seed = 4;
  gen_config.ignore_eos = true;
  const std::vector<int> ids = {1, 2, 3};
  const Response alone = pipeline.infer({ids}, {gen_config}).front();
  const std::vector<Response> together =
      pipeline.infer({std::vector<int>{9}, ids, std::vector<int>{8, 7}, ids}, {gen_config});
  EXPECT_EQ(together[1].token_ids, alone.token_ids);
  EXPECT_EQ(together[3].token_ids, alone.token_ids);
  gen_config.random_seed = 5;
  EXPECT_NE(pipeline.infer({ids}, {gen_config}).front().token_ids, alone.token_ids);
}

TEST_F(AnswersTest, CheckpointWithoutTokenizer) {
  write_chain_model(folder(), {.tokenizer = false});
  Pipeline pipeline(config());
  EXPECT_EQ(pipeline.tokenizer(), nullptr);
  GenerationConfig gen_config = new_tokens(3);
  const Response response = pipeline.infer({std::vector<int>{'a'}}, {gen_config}).front();
  EXPECT_EQ(response.token_ids, (std::vector<int>{'b', 'c', 'd'}));
  EXPECT_EQ(response.text, "");
  expect_error(ErrorCode::kUnsupported, {"prompts[0]", "no tokenizer", "token ids"},
               [&] { pipeline.infer({std::string("hi")}, {gen_config}); });
}

TEST_F(AnswersTest, TemplateVariablesAndPrefill) {
  write_chain_model(folder());
  Pipeline pipeline(config());
  const Json prefill =
      parse_json(R"([{"role":"user","content":"hi"},{"role":"assistant","content":"uvw"}])", "test");
  EXPECT_EQ(pipeline.infer({prefill}, {GenerationConfig()}).front().text, "xyz");
}

ResponseFormat format_of(const char* text) { return read_response_format(parse_json(text, "test"), "test"); }

TEST_F(AnswersTest, ResponseFormatsLimitTheText) {
  write_random_text_model(folder(), 3);
  Pipeline pipeline(config());
  GenerationConfig record = new_tokens(300);
  record.response_format = format_of(
      R"({"type":"json_schema","json_schema":{"schema":{"type":"object","additionalProperties":false,
      "properties":{"n":{"type":"integer","minimum":10,"maximum":99},"s":{"type":"string","maxLength":8}},"required":["n","s"]}}})");
  record.do_sample = true;
  record.top_k = 0;
  record.temperature = 2;
  record.random_seed = 4;
  record.n = 3;
  GenerationConfig choice = new_tokens(20);
  choice.response_format = format_of(R"({"type":"choice","choice":["left","right"]})");
  const std::vector<Response> responses = pipeline.infer(
      {std::vector<int>{1}, std::vector<int>{2}, std::vector<int>{3}}, {record, choice, new_tokens(4)});
  ASSERT_EQ(responses.size(), 5u);
  for (size_t i = 0; i < 3; ++i) {
    const Json answer = parse_json(responses[i].text, "answer");
    EXPECT_EQ(responses[i].finish_reason, FinishReason::kStop);
    EXPECT_TRUE(answer.at("n").as_int64() >= 10 && answer.at("n").as_int64() <= 99) << responses[i].text;
    EXPECT_TRUE(answer.at("s").is_string());
  }
  EXPECT_NE(responses[0].text, responses[1].text);
  EXPECT_TRUE(responses[3].text == "left" || responses[3].text == "right") << responses[3].text;
  EXPECT_EQ(responses[4].token_ids.size(), 4u);
}

TEST_F(AnswersTest, ABadSchemaStopsTheBatchBeforeItStarts) {
  write_chain_model(folder());
  Pipeline pipeline(config());
  GenerationConfig bad;
  bad.response_format =
      format_of(R"({"type":"json_schema","json_schema":{"schema":{"properties":{"a":{"type":"x"}}}}})");
  expect_error(ErrorCode::kInvalidArgument,
               {"gen_config.response_format.json_schema.schema#/properties/a/type", "\"x\""}, [&] {
                 pipeline.infer({std::vector<int>{1}, std::vector<int>{2}}, {GenerationConfig(), bad});
               });
  EXPECT_EQ(pipeline.engine().stats().steps, 0);
}

}  // namespace
}  // namespace lmdeploy::testing
