// /v1/chat/completions: whole and streamed answers, their counts, thoughts and calls, and what is refused.
#include <gtest/gtest.h>

#include "lmdeploy/core/error.h"
#include "scripted_server.h"

namespace lmdeploy::testing {
namespace {

constexpr const char* kChat = "/v1/chat/completions";

std::string body_with(const std::string& more = "") {
  return R"({"messages":[{"role":"user","content":"hi"}])" + (more.empty() ? "" : "," + more) + "}";
}

const JsonObject& choice(const Json& answer, size_t index = 0) {
  return answer.as_object().at("choices").as_array().at(index).as_object();
}
const JsonObject& message(const Json& answer, size_t index = 0) {
  return choice(answer, index).at("message").as_object();
}
std::string text(const Json& value) { return std::string(value.as_string()); }
const JsonObject& error(const Json& answer) { return answer.as_object().at("error").as_object(); }

struct Streamed {
  std::string content, reasoning, finish, arguments, name;
  int roles = 0, chunks = 0;
  Json usage;
  bool done = false;
};
Streamed joined(const RawReply& reply) {
  EXPECT_EQ(reply.status, 200) << reply.body;
  EXPECT_TRUE(reply.headers.at("content-type").starts_with("text/event-stream"));
  Streamed all;
  for (const Json& event : events_of(reply.body)) {
    EXPECT_FALSE(all.done) << "an event after [DONE]";
    if (event.is_string()) {
      all.done = true;
      continue;
    }
    const JsonArray& choices = event.as_object().at("choices").as_array();
    if (choices.empty()) {
      all.usage = event.as_object().at("usage");
      continue;
    }
    ++all.chunks;
    const JsonObject& one = choices[0].as_object();
    const JsonObject& delta = one.at("delta").as_object();
    if (delta.contains("role")) ++all.roles;
    if (const Json* content = delta.if_contains("content")) all.content += text(*content);
    if (const Json* reasoning = delta.if_contains("reasoning_content")) all.reasoning += text(*reasoning);
    if (const Json* calls = delta.if_contains("tool_calls"))
      for (const Json& call : calls->as_array()) {
        const JsonObject& function = call.as_object().at("function").as_object();
        if (const Json* name = function.if_contains("name")) all.name += text(*name);
        all.arguments += text(function.at("arguments"));
      }
    if (!one.at("finish_reason").is_null()) all.finish = text(one.at("finish_reason"));
  }
  EXPECT_TRUE(all.done);
  return all;
}

TEST(ChatRoute, WholeAnswer) {
  ScriptedServer server({.answer = "Hello, 世界"});
  const Json answer = server.post_json(kChat, body_with());
  EXPECT_EQ(text(message(answer).at("content")), "Hello, 世界");
  EXPECT_EQ(text(message(answer).at("role")), "assistant");
  EXPECT_EQ(text(choice(answer).at("finish_reason")), "stop");
  const JsonObject& usage = answer.as_object().at("usage").as_object();
  EXPECT_EQ(usage.at("completion_tokens").as_int64(), 13);
  EXPECT_EQ(usage.at("total_tokens").as_int64(), usage.at("prompt_tokens").as_int64() + 13);
  EXPECT_TRUE(text(answer.as_object().at("id")).starts_with("chatcmpl-"));
}

TEST(ChatRoute, StreamedAnswerHasOneRoleAndNoBrokenCharacter) {
  ScriptedServer server({.answer = "a世b"});
  const Streamed all =
      joined(server.post(kChat, body_with(R"("stream":true,"stream_options":{"include_usage":true})")));
  EXPECT_EQ(all.content, "a世b");
  EXPECT_EQ(all.content.find("\xEF\xBF\xBD"), std::string::npos);
  EXPECT_EQ(all.roles, 1);
  EXPECT_EQ(all.finish, "stop");
  ASSERT_TRUE(all.usage.is_object());
  EXPECT_EQ(all.usage.get_object().at("completion_tokens").as_int64(), 5);
}

TEST(ChatRoute, StopAndLength) {
  ScriptedServer server({.answer = "one two three"});
  const Json stopped = server.post_json(kChat, body_with(R"("stop":["two"])"));
  EXPECT_EQ(text(message(stopped).at("content")), "one ");
  EXPECT_EQ(text(choice(stopped).at("finish_reason")), "stop");
  const Json cut = server.post_json(kChat, body_with(R"("max_tokens":9,"max_completion_tokens":3)"));
  EXPECT_EQ(text(message(cut).at("content")), "one");
  EXPECT_EQ(text(choice(cut).at("finish_reason")), "length");
}

TEST(ChatRoute, SeveralChoices) {
  ScriptedServer server({.answer = "abc"});
  const Json answer = server.post_json(kChat, body_with(R"("n":3)"));
  ASSERT_EQ(answer.as_object().at("choices").as_array().size(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(choice(answer, i).at("index").to_number<size_t>(), i);
    EXPECT_EQ(text(message(answer, i).at("content")), "abc");
  }
  const JsonObject& usage = answer.as_object().at("usage").as_object();
  const Json single = server.post_json(kChat, body_with());
  EXPECT_EQ(usage.at("prompt_tokens"), single.as_object().at("usage").as_object().at("prompt_tokens"))
      << "the prompt counts once";
  EXPECT_EQ(usage.at("completion_tokens").as_int64(), 9);
}

TEST(ChatRoute, Logprobs) {
  ScriptedServer server({.answer = "ab"});
  const Json answer =
      server.post_json(kChat, body_with(R"("logprobs":true,"top_logprobs":3,"temperature":0)"));
  const JsonArray& content = choice(answer).at("logprobs").as_object().at("content").as_array();
  ASSERT_EQ(content.size(), 2U);
  for (const Json& entry : content) {
    EXPECT_EQ(entry.as_object().at("top_logprobs").as_array().size(), 3U);
    EXPECT_EQ(entry.as_object().at("top_logprobs").as_array()[0].as_object().at("token"),
              entry.as_object().at("token"));
  }
  EXPECT_EQ(text(content[0].as_object().at("token")), "a");
  const Json bare = server.post_json(kChat, body_with(R"("logprobs":true)"));
  const JsonArray& entries = choice(bare).at("logprobs").as_object().at("content").as_array();
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_TRUE(entries[0].as_object().at("top_logprobs").as_array().empty());
  EXPECT_EQ(text(error(server.post_json(kChat, body_with(R"("top_logprobs":2)"), 400)).at("param")),
            "top_logprobs");
}

constexpr const char* kCallText =
    "Sure. <tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>";
constexpr const char* kTools =
    R"("tools":[{"type":"function","function":{"name":"weather","parameters":{"type":"object"}}}])";

ScriptOptions with_parsers(const std::string& answer, const std::string& reasoning,
                           const std::string& calls) {
  ScriptOptions options;
  options.answer = answer;
  options.service.parsers = {reasoning, calls};
  return options;
}

TEST(ChatRoute, ToolCalls) {
  ScriptedServer server(with_parsers(kCallText, "", "qwen"));
  const Json answer = server.post_json(kChat, body_with(kTools));
  EXPECT_EQ(text(choice(answer).at("finish_reason")), "tool_calls");
  const JsonObject& call = message(answer).at("tool_calls").as_array().at(0).as_object();
  EXPECT_EQ(text(call.at("type")), "function");
  EXPECT_EQ(text(call.at("function").as_object().at("name")), "weather");
  EXPECT_EQ(parse_json(text(call.at("function").as_object().at("arguments")), "arguments"),
            parse_json(R"({"city":"Oslo"})", "want"));
  const Streamed all = joined(server.post(kChat, body_with(std::string(kTools) + R"(,"stream":true)")));
  EXPECT_EQ(all.name, "weather");
  EXPECT_EQ(all.arguments, text(call.at("function").as_object().at("arguments")));
  EXPECT_EQ(all.content, text(message(answer).at("content")));
  EXPECT_EQ(all.finish, "tool_calls");
}

TEST(ChatRoute, WithoutToolsNothingIsTakenForACall) {
  ScriptedServer server(with_parsers(kCallText, "", "qwen"));
  EXPECT_EQ(text(message(server.post_json(kChat, body_with())).at("content")), kCallText);
  EXPECT_EQ(text(message(server.post_json(kChat, body_with(std::string(kTools) + R"(,"tool_choice":"none")")))
                     .at("content")),
            kCallText);
}

TEST(ChatRoute, AnswersOfAForm) {
  ScriptedServer server({.answer = "Hello"});
  const Json chosen =
      server.post_json(kChat, body_with(R"("response_format":{"type":"choice","choice":["yes","no"]})"));
  const std::string word = text(message(chosen).at("content"));
  EXPECT_TRUE(word == "yes" || word == "no") << word;
  EXPECT_EQ(text(choice(chosen).at("finish_reason")), "stop");
  const std::string schema =
      R"({"type":"object","properties":{"a":{"enum":["x","y"]}},"required":["a"],"additionalProperties":false})";
  const std::string format =
      R"("response_format":{"type":"json_schema","json_schema":{"name":"n","schema":)" + schema + "}}";
  const Json formed = server.post_json(kChat, body_with(format));
  EXPECT_EQ(text(parse_json(text(message(formed).at("content")), "answer").as_object().at("a")).size(), 1U);
  const Json response = server.post_json(
      "/v1/responses",
      R"({"input":"hi","text":{"format":{"type":"json_schema","name":"n","schema":)" + schema + "}}}");
  const JsonObject& item = response.as_object().at("output").as_array().at(0).as_object();
  const std::string output = text(item.at("content").as_array().at(0).as_object().at("text"));
  EXPECT_TRUE(parse_json(output, "answer").as_object().contains("a")) << output;
  const Json refused = server.post_json(
      kChat,
      body_with(
          R"("response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"strin"}}})"),
      400);
  EXPECT_EQ(error(refused).at("param"), Json("response_format")) << to_json_text(refused);
}

TEST(ChatRoute, CallsThatMustCome) {
  ScriptedServer server(with_parsers("Hello", "", "qwen"));
  const std::string typed =
      R"("tools":[{"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{"d":{"enum":[1,2]}},"required":["d"],"additionalProperties":false}}}],)";
  for (const char* forced : {R"("tool_choice":"required")",
                             R"("tool_choice":{"type":"function","function":{"name":"weather"}})"}) {
    const Json answer = server.post_json(kChat, body_with(typed + forced));
    EXPECT_EQ(text(choice(answer).at("finish_reason")), "tool_calls") << to_json_text(answer);
    const JsonObject& function =
        message(answer).at("tool_calls").as_array().at(0).as_object().at("function").as_object();
    EXPECT_EQ(text(function.at("name")), "weather");
    EXPECT_TRUE(parse_json(text(function.at("arguments")), "arguments").as_object().contains("d"));
  }
  EXPECT_EQ(server.post(kChat, body_with(R"("tool_choice":"required")")).status, 400);
}

/// No marks of calls reach a client, wherever a limit cuts.
TEST(ChatRoute, CallsThatMustComeAndAreCutOff) {
  ScriptedServer server(with_parsers("Hello", "", "qwen"));
  const std::string required =
      R"("tools":[{"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{"d":{"enum":["no","yes"]}},"required":["d"],"additionalProperties":false}}}],"tool_choice":"required","seed":1)";
  const Json whole = server.post_json(kChat, body_with(required));
  const JsonObject& function =
      message(whole).at("tool_calls").as_array().at(0).as_object().at("function").as_object();
  const std::string arguments = text(function.at("arguments"));
  const int64_t tokens = whole.as_object().at("usage").as_object().at("completion_tokens").as_int64();
  size_t longest = 0;
  int64_t with_calls = 0;
  for (int64_t limit = 1; limit < tokens; ++limit) {
    const std::string body = body_with(cat(required, R"(,"max_tokens":)", limit));
    const Json answer = server.post_json(kChat, body);
    const Json& calls = message(answer).at("tool_calls");
    const Json& content = message(answer).at("content");
    EXPECT_EQ(text(choice(answer).at("finish_reason")), "length");
    EXPECT_EQ(content, calls.is_null() ? Json("") : Json(nullptr)) << limit;
    const Streamed all = joined(server.post(kChat, body.substr(0, body.size() - 1) + R"(,"stream":true})"));
    EXPECT_EQ(all.content, "");
    EXPECT_EQ(all.finish, "length");
    EXPECT_EQ(all.name, calls.is_null() ? "" : "weather");
    if (calls.is_null()) continue;
    ++with_calls;
    const JsonObject& cut = calls.as_array().at(0).as_object().at("function").as_object();
    EXPECT_EQ(text(cut.at("name")), "weather");
    EXPECT_TRUE(arguments.starts_with(text(cut.at("arguments")))) << to_json_text(answer);
    EXPECT_EQ(all.arguments, text(cut.at("arguments")));
    EXPECT_GE(all.arguments.size(), longest);
    longest = all.arguments.size();
  }
  EXPECT_EQ(longest, arguments.size());
  EXPECT_GT(with_calls, 10);
  const Json stopped = server.post_json(kChat, body_with(required + R"(,"stop":"\"d")"));
  EXPECT_EQ(text(choice(stopped).at("finish_reason")), "stop") << "the call is not whole";
  EXPECT_EQ(message(stopped).at("tool_calls").as_array().size(), 1U);
}

TEST(ChatRoute, SchemasOfToolsAreNamed) {
  ScriptedServer server(with_parsers("Hello", "", "qwen"));
  const std::string tools =
      R"("tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g","parameters":{"type":"zap"}}}])";
  for (const char* forced : {R"("required")", R"({"type":"function","function":{"name":"g"}})"}) {
    const Json refused = server.post_json(kChat, body_with(tools + R"(,"tool_choice":)" + forced), 400);
    EXPECT_EQ(error(refused).at("param"), "tools[1].function.parameters#/type") << to_json_text(refused);
    EXPECT_TRUE(text(error(refused).at("message")).starts_with("tools[1].function.parameters#/type: "))
        << to_json_text(refused);
  }
  server.post_json(kChat, body_with(tools));
}

TEST(ChatRoute, ToolsAreFunctionsWithNames) {
  ScriptedServer server(with_parsers("Hello", "", "qwen"));
  const std::pair<const char*, const char*> cases[] = {
      {R"({"type":"x"})", "tools[1].type"},
      {R"({"type":"web_search","function":{"name":"f"}})", "tools[1].type"},
      {R"({"type":"function","function":{"name":""}})", "tools[1].function.name"},
      {R"({"type":"function"})", "tools[1]"}};
  for (const auto& [tool, param] : cases) {
    const std::string tools = cat(R"("tools":[{"type":"function","function":{"name":"f"}},)", tool, "]");
    EXPECT_EQ(error(server.post_json(kChat, body_with(tools), 400)).at("param"), param);
  }
}

TEST(ChatRoute, TemplatesWithoutAPlaceForToolsRefuseThem) {
  ScriptOptions options = with_parsers("Hello", "", "qwen");
  options.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}<|im_start|>assistant\n";
  ScriptedServer server(options);
  const Json refused = server.post_json(kChat, body_with(kTools), 400);
  EXPECT_EQ(error(refused).at("param"), "tools");
  EXPECT_NE(text(error(refused).at("message")).find("--chat-template"), std::string::npos);
  server.post_json(kChat, body_with(std::string(kTools) + R"(,"tool_choice":"none")"));
  server.post_json(kChat, body_with(std::string(kTools) + R"(,"tool_choice":"required","max_tokens":1)"));
}

/// The request's own doing, before and after the first word.
TEST(ChatRoute, RequestsThatLeaveNoToken) {
  ScriptedServer server({.answer = "Hello"});
  const std::string none =
      R"("response_format":{"type":"choice","choice":["ab","ac"]},"bad_words":["b","c"])";
  const Json refused = server.post_json(kChat, body_with(none), 400);
  for (const char* field : {"bad_words", "response_format", "logit_bias"})
    EXPECT_NE(text(error(refused).at("message")).find(field), std::string::npos) << field;
  const RawReply streamed = server.post(kChat, body_with(none + R"(,"stream":true)"));
  EXPECT_NE(streamed.body.find("no token is left"), std::string::npos) << streamed.body;
  EXPECT_EQ(streamed.body.find("internal_error"), std::string::npos) << streamed.body;
  const Json penalty = server.post_json(kChat, body_with(R"("repetition_penalty":1e-38)"), 400);
  EXPECT_EQ(error(penalty).at("param"), "repetition_penalty");
  EXPECT_NE(text(error(penalty).at("message")).find("at least 0.01"), std::string::npos)
      << to_json_text(penalty);
  server.post_json(kChat, body_with(R"("repetition_penalty":0.01)"));
}

TEST(ChatRoute, ToolsWithoutAParserAreRefused) {
  ScriptedServer server({.answer = kCallText});
  const Json answer = server.post_json(kChat, body_with(kTools), 400);
  EXPECT_EQ(text(error(answer).at("param")), "tools");
  EXPECT_NE(text(error(answer).at("message")).find("--tool-call-parser"), std::string::npos);
}

TEST(ChatRoute, Thoughts) {
  ScriptedServer server(with_parsers("<think>\nhm\n</think>\n\nyes", "qwen-qwq", ""));
  const Json answer = server.post_json(kChat, body_with());
  EXPECT_EQ(text(message(answer).at("reasoning_content")), "hm");
  EXPECT_EQ(text(message(answer).at("content")), "yes");
  const Streamed all = joined(server.post(kChat, body_with(R"("stream":true)")));
  EXPECT_EQ(all.reasoning, "hm");
  EXPECT_EQ(all.content, "yes");
}

TEST(ChatRoute, RefusalsNameTheField) {
  ScriptedServer server({.answer = "x"});
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("temperature":-0.1)", "temperature"},
      {R"("temperature":"hot")", "temperature"},
      {R"("temperature":2.5)", "temperature"},
      {R"("top_p":0)", "top_p"},
      {R"("top_k":-2)", "top_k"},
      {R"("top_k":1.5)", "top_k"},
      {R"("n":0)", "n"},
      {R"("logit_bias":{"999999999":1})", "logit_bias"},
      {R"("logit_bias":{"5":101})", "logit_bias"},
      {R"("logit_bias":{"yes":1})", "logit_bias"},
      {R"("max_tokens":0)", "max_tokens"},
      {R"("stop":5)", "stop"},
      {R"("repetition_penalty":0)", "repetition_penalty"},
      {R"("response_format":{"type":"json_shema"})", "response_format"},
      {R"("stream":"yes")", "stream"},
      {R"("continue_final_message":true,"add_generation_prompt":true)", "continue_final_message"}};
  for (const auto& [field, param] : cases) {
    const Json answer = server.post_json(kChat, body_with(field), 400);
    EXPECT_EQ(error(answer).at("param"), Json(param)) << field;
    EXPECT_EQ(answer.as_object().at("object"), Json("error"));
    EXPECT_EQ(to_json_text(answer).find("gen_config"), std::string::npos)
        << field << ": no field of a request";
  }
}

TEST(ChatRoute, RefusalsSayWhereAndWhat) {
  ScriptedServer server({.answer = "x", .session_len = 64});
  struct Case {
    std::string body;
    const char *param, *words;
  };
  const Case cases[] = {
      {body_with(R"("stop":[5])"), "stop[0]", "found an integer 5; expected a string"},
      {body_with(R"("stop":["a",null])"), "stop[1]", "found null; expected a string"},
      {body_with(R"("stop_token_ids":[1,"a"])"), "stop_token_ids[1]",
       "found a string \"a\"; expected an integer"},
      {body_with(R"("logit_bias":{"5":"x"})"), "logit_bias[5]", "found a string \"x\"; expected a number"},
      {body_with(R"("tools":[3])"), "tools[0]", "found an integer 3; expected an object"},
      {R"({"messages":[5]})", "messages[0]", "found an integer 5; expected an object"},
      {R"({"messages":""})", "messages", "messages: there are no token ids"},
      {R"({"input_ids":[]})", "input_ids", "input_ids: there are no token ids"},
      {R"({"messages":[{"role":"user","content":null}]})", "messages[0].content", "found null"},
      {R"({"messages":[{"role":"user"}]})", "messages[0].content", "found nothing"},
      {R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})", "messages[0].content[0]",
       "image_url"},
      {cat(R"({"messages":")", std::string(80, 'q'), R"("})"), "messages", "80"},
      {body_with(R"("seed":1180591620717411303424)"), "seed",
       "from -9223372036854775808 to 18446744073709551615"},
      {body_with(R"("n":1180591620717411303424)"), "n", "expected an integer in [1, 128]"},
      {body_with(R"("temperature":4.5)"), "temperature", "The temperature 4.5 must be in [0, 2]."},
      {body_with(R"("top_k":1.5)"), "top_k", "found a number 1.5; expected an integer"}};
  for (const Case& c : cases) {
    const Json answer = server.post_json(kChat, c.body, 400);
    EXPECT_EQ(error(answer).at("param"), c.param) << to_json_text(answer);
    EXPECT_NE(text(error(answer).at("message")).find(c.words), std::string::npos) << to_json_text(answer);
  }
}

TEST(ChatRoute, SeedsBeyond63Bits) {
  ScriptedServer server({.free = true});
  const auto drawn = [&](const char* seed) {
    const std::string fields =
        cat(R"("max_tokens":8,"temperature":2,"top_k":0,"ignore_eos":true,"seed":)", seed);
    return to_json_text(server.post_json(kChat, body_with(fields)).as_object().at("choices"));
  };
  EXPECT_NE(drawn("9223372036854775808"), drawn("18446744073709551615"));
  EXPECT_EQ(drawn("18446744073709551615"), drawn("-1")) << "the same 64 bits";
}

TEST(ChatRoute, HarmlessUnknownFieldsAndRoles) {
  ScriptedServer server({.answer = "ok"});
  EXPECT_EQ(
      text(message(server.post_json(
                       kChat,
                       body_with(
                           R"("metadata":{},"store":true,"x_foo":1,"user":"u","parallel_tool_calls":true)")))
               .at("content")),
      "ok");
  const std::string developer =
      R"({"messages":[{"role":"developer","content":"be nice"},{"role":"user","content":"hi","name":"bob","refusal":null}]})";
  EXPECT_EQ(text(message(server.post_json(kChat, developer)).at("content")), "ok");
  const std::string system =
      R"({"messages":[{"role":"system","content":"be nice"},{"role":"user","content":"hi"}]})";
  EXPECT_EQ(server.post_json("/v1/render", developer), server.post_json("/v1/render", system));
}

TEST(ChatRoute, BadBodies) {
  ScriptedServer server({.answer = "x"});
  for (const char* body : {"{\"model\":", "[]", "null", "\"x\"", "3", "", "{\"messages\":5}",
                           "{\"messages\":[]}", "{\"messages\":[3]}", "{}"}) {
    const Json answer = server.post_json(kChat, body, 400);
    EXPECT_TRUE(error(answer).at("message").is_string()) << body;
  }
  EXPECT_EQ(server.connect().post(kChat, body_with(), "Content-Type: text/plain\r\n").status, 415);
  EXPECT_EQ(server.get(kChat).status, 405);
  EXPECT_EQ(server.get("/v1/nothing").status, 404);
  EXPECT_EQ(server.pipeline().engine().stats().prompt_tokens, 0) << "nothing reached the engine";
}

TEST(ChatRoute, PromptThatDoesNotFit) {
  ScriptedServer server({.answer = "x", .endless = true, .session_len = 64});
  const std::string long_text(80, 'q');
  for (const char* stream : {"false", "true"}) {
    const Json answer =
        server.post_json(kChat, cat(R"({"messages":")", long_text, R"(","stream":)", stream, "}"), 400);
    EXPECT_EQ(text(error(answer).at("code")), "context_length_exceeded");
    EXPECT_NE(text(error(answer).at("message")).find("80"), std::string::npos);
    EXPECT_NE(text(error(answer).at("message")).find("64"), std::string::npos);
  }
  const Json fits = server.post_json(kChat, cat(R"({"messages":")", std::string(63, 'q'), R"("})"));
  EXPECT_EQ(fits.as_object().at("usage").as_object().at("completion_tokens").as_int64(), 1);
  EXPECT_EQ(text(choice(fits).at("finish_reason")), "length");
  server.await_idle();
  const std::string page = server.get("/metrics").body;
  for (const char* line : {"finished_reason=\"length\"} 1\n", "finished_reason=\"error\"} 2\n"})
    EXPECT_NE(page.find(line), std::string::npos) << line << page;
}

TEST(ChatRoute, CachedTokens) {
  ScriptedServer server({.answer = "x", .prefix_caching = true});
  const std::string body = cat(R"({"max_tokens":1,"messages":")", std::string(70, 'q'), R"("})");
  const auto cached = [&] {
    return server.post_json(kChat, body)
        .as_object()
        .at("usage")
        .as_object()
        .at("prompt_tokens_details")
        .as_object()
        .at("cached_tokens")
        .as_int64();
  };
  EXPECT_EQ(cached(), 0);
  EXPECT_EQ(cached(), 64);
}

}  // namespace
}  // namespace lmdeploy::testing
