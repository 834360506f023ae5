// The other protocols: completions, generate, interactive, messages, responses, helpers.
#include <gtest/gtest.h>

#include <thread>

#include "lmdeploy/core/error.h"
#include "scripted_server.h"

namespace lmdeploy::testing {
namespace {

constexpr const char* kVersion = "anthropic-version: 2023-06-01\r\n";
std::string text(const Json& value) { return std::string(value.as_string()); }

/// The values of `key` in all events that have it, joined.
std::string joined(const std::vector<Json>& events, std::string_view type, const char* key) {
  std::string all;
  for (const Json& event : events)
    if (event.is_object() && event.get_object().contains("type") &&
        event.get_object().at("type").as_string() == type) {
      const Json& value = event.get_object().at(key);
      all += value.is_object() ? to_json_text(value) : text(value);
    }
  return all;
}
std::vector<std::string> types(const std::vector<Json>& events) {
  std::vector<std::string> all;
  for (const Json& event : events) {
    const std::string type = text(event.as_object().at("type"));
    if (all.empty() || all.back() != type) all.push_back(type);
  }
  return all;
}

TEST(CompletionsRoute, ListOfPromptsInOrderWithEcho) {
  ScriptedServer server({.answer = "0123456789", .endless = true});
  const Json answer =
      server.post_json("/v1/completions", R"({"prompt":["a","abc"],"max_tokens":4,"n":2,"echo":true})");
  const JsonArray& choices = answer.as_object().at("choices").as_array();
  ASSERT_EQ(choices.size(), 4U);
  const char* want[] = {"a0123", "a0123", "abc2345", "abc2345"};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(choices[i].as_object().at("index").to_number<size_t>(), i);
    EXPECT_EQ(text(choices[i].as_object().at("text")), want[i]);
  }
  EXPECT_EQ(answer.as_object().at("usage").as_object().at("prompt_tokens").as_int64(), 4);
  EXPECT_EQ(server.post("/v1/completions", R"({"prompt":[]})").status, 400);
  EXPECT_EQ(server.post("/v1/completions", R"({"prompt":[["x"]]})").status, 400);
  EXPECT_EQ(server.post("/v1/completions", R"({"prompt":"a","logprobs":-1})").status, 400);
}

const JsonObject& choice_of(const Json& answer, size_t i) {
  return answer.as_object().at("choices").as_array().at(i).as_object();
}

// As lm-eval asks for the log likelihood of a continuation.
TEST(CompletionsRoute, EchoWithLogprobsScoresThePrompt) {
  ScriptedServer server({.answer = "xyz"});
  for (const int64_t max_tokens : {0, 1}) {
    const Json answer = server.post_json(
        "/v1/completions",
        cat(R"({"prompt":[[97,98,99],[97]],"echo":true,"logprobs":2,"temperature":0,"max_tokens":)",
            max_tokens, "}"));
    for (size_t i = 0; i < 2; ++i) {
      const JsonObject& choice = choice_of(answer, i);
      const std::string echoed = i == 0 ? "abc" : "a";
      EXPECT_EQ(text(choice.at("text")), echoed + (max_tokens == 0 ? "" : i == 0 ? "z" : "x"));
      const JsonObject& logprobs = choice.at("logprobs").as_object();
      const size_t count = echoed.size() + static_cast<size_t>(max_tokens);
      for (const char* key : {"tokens", "token_logprobs", "top_logprobs", "text_offset"})
        ASSERT_EQ(logprobs.at(key).as_array().size(), count) << key;
      EXPECT_TRUE(logprobs.at("token_logprobs").as_array()[0].is_null());
      EXPECT_TRUE(logprobs.at("top_logprobs").as_array()[0].is_null());
      for (size_t t = 1; t < count; ++t) {
        EXPECT_LE(logprobs.at("token_logprobs").as_array()[t].as_double(), 0);
        EXPECT_GE(logprobs.at("top_logprobs").as_array()[t].as_object().size(), 2U);
        EXPECT_EQ(logprobs.at("text_offset").as_array()[t].to_number<size_t>(), t);
      }
      if (i == 0) {
        EXPECT_EQ(text(logprobs.at("tokens").as_array()[1]), "b");
      }
    }
    EXPECT_EQ(answer.as_object().at("usage").as_object().at("completion_tokens").as_int64(), 2 * max_tokens);
  }
  // The sum is what /get_ppl says.
  const Json scored =
      server.post_json("/v1/completions", R"({"prompt":"abcd","echo":true,"logprobs":0,"max_tokens":0})");
  double sum = 0;
  for (const Json& logprob : choice_of(scored, 0).at("logprobs").as_object().at("token_logprobs").as_array())
    if (!logprob.is_null()) sum -= logprob.as_double();
  const Json ppl = server.post_json("/get_ppl", R"({"input":"abcd"})");
  EXPECT_NEAR(sum / 3, ppl.as_object().at("ppl").as_double(), 1e-5);
}

TEST(CompletionsRoute, StreamedEchoHasTheSameLogprobs) {
  ScriptedServer server({.answer = "xyz"});
  const std::string fields = R"("prompt":"abc","echo":true,"logprobs":1,"temperature":0,"max_tokens":3)";
  const Json whole = server.post_json("/v1/completions", "{" + fields + "}");
  JsonArray tokens, logprobs;
  std::string streamed;
  for (const Json& event :
       events_of(server.post("/v1/completions", R"({"stream":true,)" + fields + "}").body)) {
    if (!event.is_object()) continue;
    const JsonObject& choice = choice_of(event, 0);
    streamed += text(choice.at("text"));
    if (!choice.at("logprobs").is_object()) continue;
    for (const Json& token : choice.at("logprobs").as_object().at("tokens").as_array())
      tokens.push_back(token);
    for (const Json& value : choice.at("logprobs").as_object().at("token_logprobs").as_array())
      logprobs.push_back(value);
  }
  const JsonObject& want = choice_of(whole, 0).at("logprobs").as_object();
  EXPECT_EQ(streamed, text(choice_of(whole, 0).at("text")));
  EXPECT_EQ(Json(tokens), want.at("tokens"));
  EXPECT_EQ(Json(logprobs), want.at("token_logprobs"));
}

TEST(CompletionsRoute, ZeroTokensWithoutEchoIsAnEmptyAnswer) {
  ScriptedServer server;
  const Json answer = server.post_json("/v1/completions", R"({"prompt":"abc","max_tokens":0})");
  EXPECT_EQ(text(choice_of(answer, 0).at("text")), "");
  EXPECT_EQ(text(choice_of(answer, 0).at("finish_reason")), "length");
  EXPECT_EQ(
      server.post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"a"}],"max_tokens":0})")
          .status,
      400);
}

TEST(CompletionsRoute, BestOfGivesTheLikeliestAnswers) {
  ScriptedServer server({.free = true});
  const std::string fields =
      R"("prompt":"ab","max_tokens":3,"temperature":2,"top_k":0,"seed":5,"ignore_eos":true)";
  const auto mean = [](const JsonObject& choice) {
    double sum = 0;
    const JsonArray& all = choice.at("logprobs").as_object().at("token_logprobs").as_array();
    for (const Json& logprob : all) sum += logprob.as_double();
    return sum / static_cast<double>(all.size());
  };
  const Json all = server.post_json("/v1/completions", "{" + fields + R"(,"n":6,"logprobs":0})");
  std::vector<std::pair<double, std::string>> ranked;
  for (size_t i = 0; i < 6; ++i)
    ranked.emplace_back(-mean(choice_of(all, i)), text(choice_of(all, i).at("text")));
  std::ranges::sort(ranked);
  const Json best = server.post_json("/v1/completions", "{" + fields + R"(,"n":2,"best_of":6,"logprobs":0})");
  ASSERT_EQ(best.as_object().at("choices").as_array().size(), 2U);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(choice_of(best, i).at("index").to_number<size_t>(), i);
    EXPECT_EQ(text(choice_of(best, i).at("text")), ranked[i].second);
    EXPECT_EQ(mean(choice_of(best, i)), -ranked[i].first);
  }
  EXPECT_EQ(best.as_object().at("usage").as_object().at("completion_tokens").as_int64(), 18) << "of all six";
  const Json plain = server.post_json("/v1/completions", "{" + fields + R"(,"best_of":6})");
  EXPECT_EQ(text(choice_of(plain, 0).at("text")), ranked[0].second);
  EXPECT_TRUE(choice_of(plain, 0).at("logprobs").is_null());
  for (const char* bad : {R"("n":3,"best_of":2)", R"("best_of":2,"stream":true)", R"("best_of":0)"})
    EXPECT_NE(
        server.post("/v1/completions", cat(R"({"prompt":"a",)", bad, "}")).body.find(R"("param":"best_of")"),
        std::string::npos)
        << bad;
  EXPECT_EQ(server.post("/v1/completions", R"({"prompt":"a","best_of":1,"stream":true})").status, 200);
}

TEST(CompletionsRoute, SuffixNeedsAModelThatHasLearntIt) {
  ScriptedServer server({.answer = "xyz"});
  const std::string refusal = server.post("/v1/completions", R"({"prompt":"a","suffix":"b"})").body;
  EXPECT_NE(refusal.find("infilling"), std::string::npos) << refusal;
  ScriptedServer coder({.answer = "xyz", .endless = true, .infilling = true});
  const Json answer =
      coder.post_json("/v1/completions", R"({"prompt":"a","suffix":"b","temperature":0,"max_tokens":2})");
  EXPECT_EQ(answer.as_object().at("usage").as_object().at("prompt_tokens").as_int64(), 5) << "<P>a<S>b<M>";
  EXPECT_EQ(text(choice_of(answer, 0).at("text")), "yz") << "goes on after four tokens";
  for (const char* bad : {R"("prompt":[97],"suffix":"b")", R"("prompt":"a","suffix":"b","echo":true)"})
    EXPECT_EQ(coder.post("/v1/completions", cat("{", bad, "}")).status, 400) << bad;
}

TEST(CompletionsRoute, Logprobs) {
  ScriptedServer server({.answer = "xyz"});
  const Json answer =
      server.post_json("/v1/completions", R"({"prompt":"p","max_tokens":3,"logprobs":2,"temperature":0})");
  const JsonObject& logprobs =
      answer.as_object().at("choices").as_array()[0].as_object().at("logprobs").as_object();
  for (const char* key : {"tokens", "token_logprobs", "top_logprobs", "text_offset"})
    EXPECT_EQ(logprobs.at(key).as_array().size(), 3U);
  EXPECT_EQ(logprobs.at("text_offset").as_array()[2].as_int64(), 2);
}

TEST(GenerateRoute, IdsInAndOut) {
  ScriptedServer server({.answer = "hey"});
  const Json answer =
      server.post_json("/generate", R"({"input_ids":[65],"max_tokens":9,"return_logprob":true})");
  EXPECT_EQ(text(answer.as_object().at("text")), "hey");
  EXPECT_EQ(answer.as_object().at("output_ids").as_array().size(), 3U);
  const JsonObject& meta = answer.as_object().at("meta_info").as_object();
  EXPECT_EQ(text(meta.at("finish_reason").as_object().at("type")), "stop");
  EXPECT_EQ(meta.at("output_token_logprobs").as_array().size(), 3U);
  EXPECT_EQ(server.post("/generate", R"({"input_ids":[65],"prompt":"x"})").status, 400);
  EXPECT_EQ(server.post("/generate", "{}").status, 400);
  EXPECT_EQ(server.post("/generate", R"({"prompt":""})").status, 400);
  const RawReply stream = server.post("/generate", R"({"prompt":"x","stream":true})");
  EXPECT_NE(stream.body.find("[DONE]"), std::string::npos);
}

TEST(InteractiveRoute, KeepsTheConversation) {
  ScriptedServer server({.answer = "fine"});
  const std::string first = R"({"prompt":"hi","session_id":3,"interactive_mode":true})";
  const Json one = server.post_json("/v1/chat/interactive", first);
  EXPECT_EQ(text(one.as_object().at("text")), "fine");
  EXPECT_EQ(one.as_object().at("history_tokens").as_int64(), 0);
  const Json two = server.post_json("/v1/chat/interactive", first);
  EXPECT_GT(two.as_object().at("history_tokens").as_int64(), one.as_object().at("input_tokens").as_int64());
  EXPECT_EQ(server.pipeline().engine().stats().sessions, 1);
  server.post_json("/v1/chat/interactive", R"({"prompt":"","session_id":3,"request_output_len":0})");
  const Json fresh = server.post_json("/v1/chat/interactive", R"({"prompt":"hi","session_id":3})");
  EXPECT_EQ(fresh.as_object().at("history_tokens").as_int64(), 0);
  server.await_idle();
}

TEST(InteractiveRoute, StreamIsOneObjectALine) {
  ScriptedServer server({.answer = "fine"});
  const RawReply reply = server.post("/v1/chat/interactive", R"({"prompt":"hi","stream":true})");
  EXPECT_EQ(reply.body.find("data:"), std::string::npos);
  std::string all, finish;
  size_t at = 0;
  while (at < reply.body.size()) {
    const size_t end = reply.body.find('\n', at);
    const Json line = parse_json(reply.body.substr(at, end - at), "line");
    all += text(line.as_object().at("text"));
    if (!line.as_object().at("finish_reason").is_null()) finish += text(line.as_object().at("finish_reason"));
    at = end + 1;
  }
  EXPECT_EQ(all, "fine");
  EXPECT_EQ(finish, "stop");
}

TEST(InteractiveRoute, CancelAndSecondRequestWaits) {
  ScriptedServer server({.answer = "endless ", .endless = true});
  RawClient client = server.connect();
  const std::string body = R"({"prompt":"hi","session_id":4,"interactive_mode":true})";
  client.send(cat(
      "POST /v1/chat/interactive HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: ",
      body.size(), "\r\n\r\n", body));
  server.await_running(1);
  std::thread second([&] {
    const Json answer = server.post_json("/v1/chat/interactive",
                                         R"({"prompt":"more","session_id":4,"request_output_len":3})");
    EXPECT_GT(answer.as_object().at("history_tokens").as_int64(), 0);
  });
  EXPECT_EQ(server.post("/v1/chat/interactive", R"({"prompt":"","cancel":true})").status, 400);
  server.post_json("/v1/chat/interactive", R"({"prompt":"","session_id":4,"cancel":true})");
  const RawReply reply = client.read_reply();
  EXPECT_EQ(reply.status, 200);
  EXPECT_NE(reply.body.find("\"abort\""), std::string::npos);
  second.join();
  server.await_idle();
}

TEST(InteractiveRoute, FullIsAnOrdinaryAnswer) {
  ScriptedServer server({.answer = "x", .session_len = 64});
  const Json answer = server.post_json("/v1/chat/interactive",
                                       cat(R"({"prompt":")", std::string(100, 'q'), R"(","session_id":1})"));
  EXPECT_EQ(text(answer.as_object().at("text")), "");
  EXPECT_EQ(text(answer.as_object().at("finish_reason")), "length");
}

ScriptOptions talking(const std::string& answer) {
  ScriptOptions options;
  options.answer = answer;
  options.service.parsers = {"qwen-qwq", "qwen"};
  return options;
}
constexpr const char* kEverything =
    "<think>\nhm\n</think>\n\nSure. <tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>";

TEST(MessagesRoute, BlocksWholeAndStreamed) {
  ScriptedServer server(talking(kEverything));
  const std::string body =
      R"({"max_tokens":500,"messages":[{"role":"user","content":"hi"}],"tools":[{"name":"f","input_schema":{"type":"object"}}])";
  const Json answer = server.post_json("/v1/messages", body + "}", 200, kVersion);
  const JsonArray& blocks = answer.as_object().at("content").as_array();
  ASSERT_EQ(blocks.size(), 3U);
  EXPECT_EQ(text(blocks[0].as_object().at("thinking")), "hm");
  EXPECT_EQ(text(blocks[1].as_object().at("type")), "text");
  EXPECT_EQ(blocks[2].as_object().at("input"), parse_json(R"({"x":1})", "want"));
  EXPECT_EQ(text(answer.as_object().at("stop_reason")), "tool_use");
  const std::vector<Json> events =
      events_of(server.post("/v1/messages", body + R"(,"stream":true})", kVersion).body);
  EXPECT_EQ(text(events.front().as_object().at("type")), "message_start");
  EXPECT_EQ(text(events.back().as_object().at("type")), "message_stop");
  int opened = 0, closed = 0;
  for (const Json& event : events) {
    opened += event.as_object().at("type") == "content_block_start";
    closed += event.as_object().at("type") == "content_block_stop";
  }
  EXPECT_EQ(opened, 3);
  EXPECT_EQ(closed, 3);
  EXPECT_NE(joined(events, "content_block_delta", "delta").find(R"("partial_json":"{\"x\": 1}")"),
            std::string::npos);
}

TEST(MessagesRoute, OneCallWhereSeveralAreDisabled) {
  const std::string call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>";
  ScriptedServer server(talking(call + "\n" + call));
  const auto blocks = [&](const std::string& choice) {
    const std::string body =
        R"({"max_tokens":500,"messages":[{"role":"user","content":"hi"}],"tools":[{"name":"f","input_schema":{"type":"object"}}],"tool_choice":)";
    return server.post_json("/v1/messages", body + choice + "}", 200, kVersion)
        .as_object()
        .at("content")
        .as_array()
        .size();
  };
  EXPECT_EQ(blocks(R"({"type":"auto"})"), 2U);
  EXPECT_EQ(blocks(R"({"type":"auto","disable_parallel_tool_use":true})"), 1U);
  EXPECT_EQ(blocks(R"({"type":"any"})"), 2U);
  EXPECT_EQ(blocks(R"({"type":"any","disable_parallel_tool_use":true})"), 1U);
}

TEST(MessagesRoute, StopSequenceIsNamed) {
  ScriptedServer server({.answer = "one two three"});
  const Json answer = server.post_json(
      "/v1/messages",
      R"({"max_tokens":50,"stop_sequences":["xx","two"],"messages":[{"role":"user","content":"hi"}]})", 200,
      kVersion);
  EXPECT_EQ(text(answer.as_object().at("stop_reason")), "stop_sequence");
  EXPECT_EQ(text(answer.as_object().at("stop_sequence")), "two");
  EXPECT_EQ(text(answer.as_object().at("content").as_array()[0].as_object().at("text")), "one ");
}

TEST(MessagesRoute, ErrorsInTheirShape) {
  ScriptedServer server({.answer = "x"});
  EXPECT_NE(
      server
          .post("/v1/messages",
                R"({"max_tokens":5,"messages":[{"role":"user","content":"x"}],"metadata":{"user_id":5}})",
                kVersion)
          .body.find("metadata.user_id: found"),
      std::string::npos);
  EXPECT_EQ(text(server.post_json("/v1/messages", "{}", 400).as_object().at("type")), "error");
  EXPECT_EQ(server.post("/v1/messages", R"({"messages":[{"role":"user","content":"x"}]})", kVersion).status,
            400)
      << "max_tokens";
  EXPECT_EQ(
      server.post("/v1/messages", R"({"max_tokens":5,"messages":[{"role":"robot","content":"x"}]})", kVersion)
          .status,
      400);
  EXPECT_EQ(
      server
          .post("/v1/messages",
                R"({"max_tokens":5,"messages":[{"role":"user","content":[{"type":"image"}]}]})", kVersion)
          .status,
      400);
  const Json count = server.post_json("/v1/messages/count_tokens",
                                      R"({"messages":[{"role":"user","content":"x"}]})", 200, kVersion);
  EXPECT_GT(count.as_object().at("input_tokens").as_int64(), 1);
}

TEST(MessagesRoute, AnswersOfAForm) {
  ScriptedServer server({.answer = "Hello"});
  const std::string head = R"({"max_tokens":90,"messages":[{"role":"user","content":"x"}],)";
  const std::string format =
      R"({"type":"json_schema","schema":{"type":"object","properties":{"a":{"enum":["x","y"]}},"required":["a"],"additionalProperties":false}})";
  for (const std::string& field :
       {R"("output_format":)" + format, R"("output_config":{"format":)" + format + "}"}) {
    const Json answer = server.post_json("/v1/messages", head + field + "}", 200, kVersion);
    const std::string said = text(answer.as_object().at("content").as_array()[0].as_object().at("text"));
    EXPECT_TRUE(parse_json(said, "answer").as_object().contains("a")) << said;
  }
  const std::pair<const char*, const char*> refused[] = {
      {R"("output_format":{"type":"json_schema","schema":{"type":"strin"}})", "output_format.schema#/type: "},
      {R"("output_config":{"format":{"type":"json_schema","schema":{"type":"strin"}}})",
       "output_config.format.schema#/type: "},
      {R"("output_format":{"type":"regex"})", "output_format.type: found regex"},
      {R"("output_format":{"type":"json_schema"})", "output_format.schema: found nothing"},
      {R"("output_config":{"format":5})", "output_config.format: found an integer"},
      {R"("mcp_servers":[{"name":"m"}])", "mcp_servers: not supported"},
      {R"("tools":[{"type":"web_search_20250305","name":"web_search"}])", "tools[0].type: found"},
      {R"("tools":[{"name":"","input_schema":{}}])", "tools[0].name: the text is empty"},
      {R"("top_k":-1)", "must be in [0, 2147483647]"}};
  for (const auto& [field, words] : refused) {
    const Json answer = server.post_json("/v1/messages", head + field + "}", 400, kVersion);
    EXPECT_NE(text(answer.as_object().at("error").as_object().at("message")).find(words), std::string::npos)
        << to_json_text(answer);
  }
}

constexpr const char* kCutTool =
    R"("type":"object","properties":{"d":{"enum":["no","yes"]}},"required":["d"],"additionalProperties":false)";

TEST(MessagesRoute, CallsThatMustComeAndAreCutOff) {
  ScriptedServer server(talking("Hello"));
  const std::string body =
      cat(R"({"messages":[{"role":"user","content":"hi"}],"tools":[{"name":"f","input_schema":{)", kCutTool,
          R"(}}],"tool_choice":{"type":"any"},"temperature":0,"max_tokens":)");
  for (const int limit : {3, 15, 45, 50}) {
    const Json answer = server.post_json("/v1/messages", cat(body, limit, "}"), 200, kVersion);
    EXPECT_EQ(text(answer.as_object().at("stop_reason")), "max_tokens") << to_json_text(answer);
    EXPECT_EQ(to_json_text(answer).find("tool_call"), std::string::npos) << to_json_text(answer);
    const RawReply streamed = server.post("/v1/messages", cat(body, limit, R"(,"stream":true})"), kVersion);
    EXPECT_EQ(streamed.body.find("tool_call"), std::string::npos) << streamed.body;
    EXPECT_NE(streamed.body.find(R"("stop_reason":"max_tokens")"), std::string::npos) << streamed.body;
    EXPECT_EQ(streamed.body.find("tool_use") != std::string::npos, limit > 40) << streamed.body;
  }
}

TEST(MessagesRoute, ToolResultsReachTheTemplate) {
  ScriptedServer server({.answer = "x"});
  const char* body = R"({"max_tokens":5,"messages":[{"role":"user","content":"w?"},
    {"role":"assistant","content":[{"type":"text","text":"let me see"},{"type":"tool_use","id":"t1","name":"f","input":{"x":1}}]},
    {"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"21 degrees"}]}]}]})";
  server.post_json("/v1/messages", body, 200, kVersion);
}

TEST(ResponsesRoute, ItemsWholeAndStreamed) {
  ScriptedServer server(talking(kEverything));
  const std::string body =
      R"({"input":"hi","instructions":"be nice","tools":[{"type":"function","name":"f","parameters":{"type":"object"}}])";
  const Json answer = server.post_json("/v1/responses", body + "}");
  const JsonArray& output = answer.as_object().at("output").as_array();
  ASSERT_EQ(output.size(), 3U);
  EXPECT_EQ(text(output[0].as_object().at("type")), "reasoning");
  EXPECT_EQ(text(output[1].as_object().at("type")), "message");
  EXPECT_EQ(text(output[2].as_object().at("arguments")), "{\"x\": 1}");
  EXPECT_EQ(text(answer.as_object().at("status")), "completed");
  EXPECT_EQ(text(answer.as_object().at("instructions")), "be nice");
  const JsonObject& usage = answer.as_object().at("usage").as_object();
  EXPECT_EQ(usage.at("output_tokens_details").as_object().at("reasoning_tokens").to_number<int>(), 2) << "hm";
  const std::vector<Json> events = events_of(server.post("/v1/responses", body + R"(,"stream":true})").body);
  EXPECT_EQ(types(events).front(), "response.created");
  EXPECT_EQ(types(events).back(), "response.completed");
  for (size_t i = 0; i < events.size(); ++i)
    EXPECT_EQ(events[i].as_object().at("sequence_number").to_number<size_t>(), i);
  EXPECT_EQ(joined(events, "response.reasoning_text.delta", "delta"), "hm");
  EXPECT_EQ(joined(events, "response.function_call_arguments.delta", "delta"), "{\"x\": 1}");
  const JsonArray& last = events.back().as_object().at("response").as_object().at("output").as_array();
  ASSERT_EQ(last.size(), 3U);
  EXPECT_EQ(joined(events, "response.output_text.delta", "delta"),
            text(last[1].as_object().at("content").as_array()[0].as_object().at("text")));
}

TEST(ResponsesRoute, ConversationsAndRefusals) {
  ScriptedServer server({.answer = "0123456789", .endless = true});
  const char* items =
      R"({"max_output_tokens":3,"input":[{"role":"user","content":[{"type":"input_text","text":"w?"}]},
    {"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"21"}]})";
  const Json answer = server.post_json("/v1/responses", items);
  EXPECT_EQ(text(answer.as_object().at("status")), "incomplete");
  EXPECT_EQ(text(answer.as_object().at("incomplete_details").as_object().at("reason")), "max_output_tokens");
  for (const char* body :
       {"{}", R"({"input":5})", R"({"input":[]})", R"({"input":[{"type":"image"}]})",
        R"({"input":"x","previous_response_id":"r"})", R"({"input":"x","truncation":"auto"})",
        R"({"input":"x","tools":[{"type":"web_search"}]})"})
    EXPECT_EQ(server.post("/v1/responses", body).status, 400) << body;
}

TEST(ResponsesRoute, WhatItCannotDoIsRefusedByName) {
  ScriptedServer server({.answer = "x"});
  const std::pair<const char*, const char*> cases[] = {
      {R"("conversation":"c")", "conversation"},
      {R"("prompt":{"id":"p"})", "prompt"},
      {R"("include":["message.output_text.logprobs","usage"])", "include[1]"},
      {R"("include":[5])", "include[0]"},
      {R"("top_logprobs":2)", "top_logprobs"},
      {R"("tools":[{"type":"function","name":""}])", "tools[0].name"},
      {R"("tools":[5])", "tools[0]"}};
  for (const auto& [field, param] : cases) {
    const Json answer = server.post_json("/v1/responses", cat(R"({"input":"x",)", field, "}"), 400);
    EXPECT_EQ(answer.as_object().at("param"), param) << to_json_text(answer);
  }
  const Json missing = server.post_json("/v1/responses", "{}", 400);
  EXPECT_NE(text(missing.as_object().at("message")).find("expected a text, or an array of items"),
            std::string::npos)
      << to_json_text(missing);
  const Json plain =
      server.post_json("/v1/responses", R"({"input":"x","include":["reasoning.encrypted_content"]})");
  EXPECT_EQ(plain.as_object().at("temperature"), Json(0.7)) << "as people write it";
}

TEST(ResponsesRoute, Logprobs) {
  ScriptedServer server({.answer = "abc"});
  const std::string body =
      R"({"input":"hi","include":["message.output_text.logprobs"],"top_logprobs":2,"temperature":0)";
  const auto texts = [](const JsonArray& logprobs) {
    std::string all;
    for (const Json& entry : logprobs) {
      all += text(entry.as_object().at("token"));
      EXPECT_LE(entry.as_object().at("logprob").as_double(), 0);
      EXPECT_EQ(entry.as_object().at("top_logprobs").as_array().size(), 2U);
    }
    return all;
  };
  const auto part = [](const Json& response) {
    return response.as_object().at("output").as_array().at(0).as_object().at("content").as_array().at(0);
  };
  const Json whole = server.post_json("/v1/responses", body + "}");
  EXPECT_TRUE(texts(part(whole).as_object().at("logprobs").as_array()).starts_with("abc"));
  std::string streamed;
  JsonArray last;
  for (const Json& event : events_of(server.post("/v1/responses", body + R"(,"stream":true})").body)) {
    const JsonObject& object = event.as_object();
    if (object.at("type") == "response.output_text.delta")
      streamed += texts(object.at("logprobs").as_array());
    if (object.at("type") == "response.completed")
      last = part(object.at("response")).as_object().at("logprobs").as_array();
  }
  EXPECT_EQ(streamed, texts(last));
  EXPECT_TRUE(streamed.starts_with("abc"));
}

TEST(ResponsesRoute, WhatIsCutOffIsIncomplete) {
  ScriptedServer server(talking("Hello"));
  const std::string body =
      cat(R"({"input":"hi","tools":[{"type":"function","name":"f","parameters":{)", kCutTool,
          R"(}}],"tool_choice":"required","temperature":0,"max_output_tokens":)");
  for (const int limit : {3, 45, 50}) {
    const Json answer = server.post_json("/v1/responses", cat(body, limit, "}"));
    const JsonObject& item = answer.as_object().at("output").as_array().at(0).as_object();
    EXPECT_EQ(text(answer.as_object().at("status")), "incomplete");
    EXPECT_EQ(item.at("status"), "incomplete");
    EXPECT_EQ(item.at("type"), limit < 40 ? "message" : "function_call");
    EXPECT_EQ(to_json_text(answer.as_object().at("output")).find("tool_call"), std::string::npos);
    const std::vector<Json> events =
        events_of(server.post("/v1/responses", cat(body, limit, R"(,"stream":true})")).body);
    for (const Json& event : events)
      if (event.as_object().at("type") == "response.output_item.done") {
        EXPECT_EQ(event.as_object().at("item").as_object().at("status"), "incomplete");
      }
    EXPECT_EQ(events.back()
                  .as_object()
                  .at("response")
                  .as_object()
                  .at("output")
                  .as_array()
                  .at(0)
                  .as_object()
                  .at("status"),
              "incomplete");
  }
}

TEST(TokenRoutes, EncodeDecodeRender) {
  ScriptedServer server;
  const Json one = server.post_json("/v1/encode", R"({"input":"abc"})");
  EXPECT_EQ(one.as_object().at("length").to_number<int>(), 3);
  const Json two = server.post_json("/v1/encode", R"({"input":["a","bc"]})");
  EXPECT_EQ(two.as_object().at("input_ids").as_array()[1].as_array().size(), 2U);
  EXPECT_EQ(text(server.post_json("/v1/decode", R"({"ids":[97,98]})").as_object().at("text")), "ab");
  const Json prompt = server.post_json("/v1/render", R"({"messages":[{"role":"user","content":"hi"}]})");
  EXPECT_EQ(text(prompt.as_object().at("prompt")), "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
}

TEST(TokenRoutes, IdsOutsideTheVocabularyAreRefused) {
  ScriptedServer server;
  const Json refused = server.post_json("/v1/decode", R"({"ids":[97,100000000]})", 400);
  EXPECT_EQ(refused.as_object().at("param"), "ids") << to_json_text(refused);
  EXPECT_NE(to_json_text(refused).find("100000000"), std::string::npos);
  EXPECT_EQ(text(server.post_json("/v1/decode", R"({"ids":[]})").as_object().at("text")), "");
}

TEST(ScoreRoutes, RefusalsNameTheInput) {
  ScriptedServer server;
  const std::pair<const char*, const char*> cases[] = {
      {R"({"input":[]})", "input"},          {R"({"input":"a"})", "input"},
      {R"({"input":[97]})", "input"},        {R"({"input":["ab","c"]})", "input[1]"},
      {R"({"input":["ab",5]})", "input[1]"}, {R"({"input":[[97,98],[97,"a"]]})", "input[1][1]"}};
  for (const auto& [body, param] : cases) {
    const Json refused = server.post_json("/get_ppl", body, 400);
    EXPECT_EQ(refused.as_object().at("param"), param) << to_json_text(refused);
    EXPECT_TRUE(text(refused.as_object().at("message")).starts_with(param)) << to_json_text(refused);
  }
}

TEST(CompletionsRoute, SequencesOfARequestAreBounded) {
  ScriptedServer server;
  std::string prompts = R"("a")";
  for (int i = 1; i < 100; ++i) prompts += R"(,"a")";
  const Json refused =
      server.post_json("/v1/completions", cat(R"({"prompt":[)", prompts, R"(],"n":128})"), 400);
  EXPECT_EQ(refused.as_object().at("param"), "prompt");
  for (const char* number : {"12800", "2048"})
    EXPECT_NE(text(refused.as_object().at("message")).find(number), std::string::npos)
        << to_json_text(refused);
  EXPECT_EQ(server.post_json("/v1/completions", R"({"prompt":["a",1]})", 400).as_object().at("param"),
            "prompt[1]");
}

TEST(ScoreRoutes, Perplexity) {
  ScriptedServer server;
  EXPECT_GT(server.post_json("/get_ppl", R"({"input":"some text"})").as_object().at("ppl").as_double(), 0);
  EXPECT_EQ(server.post_json("/get_ppl", R"({"input":["ab","cd"]})").as_object().at("ppl").as_array().size(),
            2U);
  EXPECT_EQ(server.post("/get_ppl", R"({"input":"a"})").status, 400);
  EXPECT_EQ(server.post("/pooling", R"({"input":"a"})").status, 400);
  EXPECT_EQ(server.post("/v1/embeddings", R"({"input":"a"})").status, 400);
  EXPECT_EQ(server.post("/update_weights", "{}").status, 501);
  EXPECT_EQ(server.get("/distserve/engine_info").status, 501);
}

TEST(SleepRoutes, SleepAndWake) {
  ScriptOptions options;
  options.answer = "x";
  std::atomic<int> opened = 0;
  options.service.open_model = [&]() -> std::shared_ptr<Pipeline> {
    ++opened;
    throw Error(ErrorCode::kIo, "the disk is gone");
  };
  ScriptedServer server(options);
  EXPECT_EQ(server.post("/sleep?level=3", "").status, 400);
  EXPECT_EQ(server.post("/sleep?level=1", "").status, 200);
  EXPECT_NE(server.get("/is_sleeping").body.find("true"), std::string::npos);
  EXPECT_EQ(server.post("/v1/chat/completions", R"({"messages":"x"})").status, 503);
  EXPECT_EQ(server.post("/wakeup?tags=weights", "").status, 200);
  EXPECT_EQ(opened, 0) << "only one of the two tags came";
  EXPECT_EQ(server.post("/wakeup?tags=kv_cache", "").status, 500);
  EXPECT_EQ(opened, 1);
  EXPECT_NE(server.get("/is_sleeping").body.find("true"), std::string::npos) << "it may be tried again";
}

}  // namespace
}  // namespace lmdeploy::testing
