// Chat sessions: what is sent, what stays in the engine, and that the answers are those of the whole
// conversation.
#include "fixture.h"

namespace lmdeploy::testing {
namespace {

using ConversationsTest = PipelineTest;

Json conversation(const ChatSession& session, const std::string& prompt) {
  JsonArray messages;
  const auto add = [&](const std::string& role, const std::string& content) {
    messages.push_back(JsonObject{{"role", role}, {"content", content}});
  };
  if (!session.system.empty()) add("system", session.system);
  for (const auto& [user, assistant] : session.history) {
    add("user", user);
    add("assistant", assistant);
  }
  add("user", prompt);
  return messages;
}

TEST_F(ConversationsTest, LaterTurnsSendOnlyWhatIsNew) {
  write_chain_model(folder());
  Pipeline pipeline(config());
  ChatSession session = pipeline.new_session();
  const Response first = read_all(*pipeline.chat(session, "hi", {}));
  EXPECT_EQ(first.text, "abcdefghijklmnopqrstuvwxyz");
  ASSERT_EQ(session.history.size(), 1u);
  EXPECT_EQ(session.history[0], std::make_pair(std::string("hi"), first.text));
  EXPECT_EQ(session.step, first.input_token_len + 26);
  EXPECT_EQ(static_cast<int64_t>(session.token_ids.size()), session.step);

  const int64_t whole =
      static_cast<int64_t>(pipeline.tokenizer()->encode(pipeline.render(conversation(session, "on"))).size());
  const Response second = read_all(*pipeline.chat(session, "on", {}));
  EXPECT_EQ(second.text, first.text);
  EXPECT_EQ(second.input_token_len, whole - (first.input_token_len + 26));
  EXPECT_EQ(pipeline.engine().stats().sessions, 1);
  pipeline.end_session(session);
  expect_idle(pipeline);
}

TEST_F(ConversationsTest, AnswersAreThoseOfTheWholeConversation) {
  write_random_text_model(folder(), 8);
  Pipeline pipeline(config());
  GenerationConfig gen_config = new_tokens(10);
  gen_config.ignore_eos =
      true;  // the answer holds control tokens and broken characters, as the weights have it
  ChatSession session = pipeline.new_session();
  session.system = "be brief";
  for (const char* prompt : {"hi", "on", "and on"}) {
    const Response whole = pipeline.infer({conversation(session, prompt)}, {gen_config}).front();
    const Response turn = read_all(*pipeline.chat(session, prompt, gen_config));
    EXPECT_EQ(turn.token_ids, whole.token_ids) << prompt;
    EXPECT_EQ(turn.text, whole.text);
  }
}

TEST_F(ConversationsTest, StopWordsAndIncludedStopsRollBack) {
  write_chain_model(folder());
  Pipeline pipeline(config());
  ChatSession session = pipeline.new_session();
  GenerationConfig gen_config;
  gen_config.stop_words = {"ef"};
  EXPECT_EQ(read_all(*pipeline.chat(session, "hi", gen_config)).text, "abcd");
  gen_config.include_stop_str_in_output = true;
  EXPECT_EQ(read_all(*pipeline.chat(session, "on", gen_config)).text, "abcdef");
  gen_config.stop_words.clear();
  EXPECT_EQ(read_all(*pipeline.chat(session, "on", gen_config)).text, "abcdefghijklmnopqrstuvwxyz<|im_end|>");
  const Json whole = conversation(session, "last");
  const Response last = read_all(*pipeline.chat(session, "last", {}));
  EXPECT_EQ(last.text, "abcdefghijklmnopqrstuvwxyz");
  EXPECT_EQ(session.token_ids.size(),
            pipeline.tokenizer()->encode(pipeline.render(whole)).size() + last.token_ids.size());
}

TEST_F(ConversationsTest, CancelledAndAbandonedTurns) {
  write_chain_model(folder(), {.after_newline = '0'});
  Pipeline pipeline(config());
  ChatSession session = pipeline.new_session();
  const GenerationConfig endless = new_tokens(3000);
  const auto cancelled = pipeline.chat(session, "hi", endless);
  cancelled->next(std::chrono::seconds(10));
  cancelled->cancel();
  const Response partial = read_all(*cancelled);
  EXPECT_EQ(partial.finish_reason, FinishReason::kAbort);
  ASSERT_EQ(session.history.size(), 1u);  // what was generated stays
  EXPECT_GT(session.step, 0);

  const int64_t step = session.step;
  pipeline.chat(session, "dropped", endless)->next(std::chrono::seconds(10));  // destroyed in the middle
  EXPECT_EQ(session.history.size(), 1u);
  EXPECT_EQ(session.step, step);
  EXPECT_EQ(read_all(*pipeline.chat(session, "on", new_tokens(3))).text, "012");
  EXPECT_EQ(session.history.size(), 2u);
  expect_idle(pipeline, /*num_sessions=*/1);
}

TEST_F(ConversationsTest, ABusySessionKeepsTheTurnThatRuns) {
  write_chain_model(folder(), {.after_newline = '0'});
  Pipeline pipeline(config());
  ChatSession session = pipeline.new_session();
  const auto running = pipeline.chat(session, "hi", new_tokens(3000));
  ASSERT_TRUE(running->next(std::chrono::seconds(10)));
  const Response second = read_all(*pipeline.chat(session, "on", new_tokens(3)));
  EXPECT_EQ(second.error_code, ErrorCode::kBusy);
  EXPECT_EQ(read_all(*running).finish_reason, FinishReason::kLength);
  ASSERT_EQ(session.history.size(), 1u);
  EXPECT_EQ(session.history[0].first, "hi");
  EXPECT_EQ(read_all(*pipeline.chat(session, "on", new_tokens(3))).text, "012");
}

TEST_F(ConversationsTest, RawTextContinuesTheSession) {
  write_random_text_model(folder(), 9);
  Pipeline pipeline(config());
  GenerationConfig gen_config = new_tokens(5);
  gen_config.ignore_eos = true;
  ChatSession session = pipeline.new_session();
  const Response first = read_all(*pipeline.chat(session, "ab", gen_config, raw_text()));
  std::vector<int> ids = {'a', 'b'};
  ids.insert(ids.end(), first.token_ids.begin(), first.token_ids.end());
  ids.push_back('c');
  const Response whole = pipeline.infer({ids}, {gen_config}).front();
  const Response second = read_all(*pipeline.chat(session, "c", gen_config, raw_text()));
  EXPECT_EQ(second.token_ids, whole.token_ids);
}

TEST_F(ConversationsTest, F40_AFullSessionSaysSo) {
  write_chain_model(folder(), {.after_newline = '0'});
  PipelineConfig short_sessions = config();
  short_sessions.session_len = 64;
  Pipeline pipeline(short_sessions);
  ChatSession session = pipeline.new_session();
  EXPECT_EQ(read_all(*pipeline.chat(session, "hi", new_tokens(20))).generate_token_len, 20);
  const Response full = read_all(*pipeline.chat(session, "more", new_tokens(20)));
  EXPECT_EQ(full.finish_reason, FinishReason::kLength);
  EXPECT_TRUE(full.error_code);
  EXPECT_EQ(session.history.size(), 1u);
  pipeline.end_session(session);
  session = pipeline.new_session();
  EXPECT_EQ(read_all(*pipeline.chat(session, "hi", new_tokens(20))).generate_token_len, 20);
}

TEST_F(ConversationsTest, ManySessionsAtOnce) {
  write_random_text_model(folder(), 12);
  Pipeline pipeline(config());
  GenerationConfig gen_config = new_tokens(6);
  gen_config.ignore_eos = true;
  std::vector<ChatSession> sessions(6);
  for (int turn = 0; turn < 3; ++turn) {
    std::vector<Prompt> whole;
    std::vector<std::unique_ptr<ResponseStream>> streams;
    for (size_t i = 0; i < sessions.size(); ++i) {
      const std::string prompt = cat("turn ", turn, " of ", i);
      whole.emplace_back(conversation(sessions[i], prompt));
      streams.push_back(pipeline.chat(sessions[i], prompt, gen_config));
    }
    const std::vector<Response> want = pipeline.infer(whole, {gen_config});
    for (size_t i = 0; i < sessions.size(); ++i)
      EXPECT_EQ(read_all(*streams[i]).token_ids, want[i].token_ids) << i;
  }
}

}  // namespace
}  // namespace lmdeploy::testing
