// What all routes share: states, names, keys, queues, clients that go away, ending.
#include <gtest/gtest.h>

#include <thread>

#include "lmdeploy/core/error.h"
#include "lmdeploy/serve/routes.h"
#include "scripted_server.h"

namespace lmdeploy::testing {
namespace {

constexpr const char* kChat = "/v1/chat/completions";
constexpr const char* kBody = R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":2000})";
constexpr const char* kStreamBody =
    R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":2000,"stream":true})";
constexpr const char* kJson = "Content-Type: application/json\r\n";

std::string post_text(const std::string& target, const std::string& body) {
  return cat("POST ", target,
             " HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: ", body.size(),
             "\r\n\r\n", body);
}

TEST(ApiServer, LoadingAnswers503) {
  ScriptedServer server({.load = false});
  EXPECT_EQ(server.get("/health").status, 503);
  EXPECT_EQ(server.get("/v1/models").status, 503);
  const RawReply reply = server.post(kChat, kBody);
  EXPECT_EQ(reply.status, 503);
  EXPECT_TRUE(reply.headers.contains("retry-after"));
}

TEST(ApiServer, ModelNames) {
  ScriptOptions options;
  options.service.model_names = {"org/Model", "alias"};
  ScriptedServer server(options);
  const RawReply list = server.get("/v1/models");
  EXPECT_NE(list.body.find("\"org/Model\""), std::string::npos);
  EXPECT_NE(list.body.find("\"alias\""), std::string::npos);
  for (const char* name : {"org/Model", "alias"}) {
    const Json answer = server.post_json(kChat, cat(R"({"model":")", name, R"(","messages":"x"})"));
    EXPECT_EQ(answer.as_object().at("model"), Json(name));
  }
  const Json refused = server.post_json(kChat, R"({"model":"wrong","messages":"x","temperature":9})", 404);
  EXPECT_EQ(refused.as_object().at("error").as_object().at("code"), Json("model_not_found"));
  EXPECT_NE(to_json_text(refused).find("alias"), std::string::npos);
}

TEST(ApiServer, KeysProtectAllButOpenRoutes) {
  ScriptOptions options;
  options.service.api_keys = {"k1", "k2"};
  ScriptedServer server(options);
  for (const Route& route : routes()) {
    const auto status = [&](const std::string& headers) {
      return std::string_view(route.method) == "GET"
                 ? server.get(route.path, headers).status
                 : server.connect().post(route.path, "{}", kJson + headers).status;
    };
    const bool open = route.access == Access::kOpen;
    EXPECT_EQ(status("") == 401, !open) << route.path;
    EXPECT_EQ(status("Authorization: Bearer wrong\r\n") == 401, !open) << route.path;
    EXPECT_NE(status("Authorization: Bearer k1\r\n"), 401) << route.path;
    EXPECT_NE(status("Authorization: bearer k2\r\n"), 401) << route.path;
    EXPECT_NE(status("x-api-key: k2\r\n"), 401) << route.path;
  }
  EXPECT_EQ(server.get("/nothing").status, 401) << "what there is is not told without a key";
  const RawReply refused = server.get("/v1/models");
  EXPECT_TRUE(refused.headers.contains("www-authenticate"));
}

/// Also of what no route sees: keys, methods, paths, sizes.
TEST(ApiServer, AnthropicsPathsHaveAnthropicsErrors) {
  ScriptOptions options;
  options.service.api_keys = {"k"};
  options.http.max_body_bytes = 100;
  ScriptedServer server(options);
  const std::string key = "x-api-key: k\r\n";
  const auto expect = [](const RawReply& reply, int status, const char* type) {
    EXPECT_EQ(reply.status, status) << reply.body;
    const JsonObject body = parse_json(reply.body, "answer").as_object();
    EXPECT_EQ(body.at("type"), "error") << reply.body;
    EXPECT_EQ(body.at("error").as_object().at("type"), type) << reply.body;
    EXPECT_EQ(body.size(), 2U) << reply.body;
  };
  for (const char* path : {"/v1/messages", "/v1/messages/count_tokens", "/v1/messages?beta=true"})
    expect(server.post(path, "{}"), 401, "authentication_error");
  expect(server.get("/anthropic/v1/models"), 401, "authentication_error");
  expect(server.get("/v1/messages", key), 405, "invalid_request_error");
  expect(server.post("/v1/messages/batches", "{}", key), 404, "not_found_error");
  expect(server.get("/anthropic/v1/nothing", key), 404, "not_found_error");
  expect(server.post("/v1/messages", std::string(101, ' '), key), 413, "request_too_large");
  expect(server.post("/v1/messages", "{}", key), 400, "invalid_request_error");
  EXPECT_NE(server.get("/v1/nothing", key).body.find("\"param\""), std::string::npos) << "OpenAI's elsewhere";
}

TEST(ApiServer, ClientsThatGoAwayFreeTheirPlace) {
  // Its answer would take two minutes.
  ScriptedServer server({.answer = "endless ",
                         .endless = true,
                         .session_len = 1 << 16,
                         .max_batch_size = 1,
                         .step_time = std::chrono::milliseconds(2)});
  const std::string body = R"({"messages":[{"role":"user","content":"hi"}]})";
  const std::string stream_body = R"({"messages":[{"role":"user","content":"hi"}],"stream":true})";
  for (int i = 0; i < 20; ++i) {
    RawClient client = server.connect();
    client.send(post_text(kChat, i % 2 == 0 ? stream_body : body));
    server.await_running(1);
    if (i % 2 == 0) client.read_some();
    i % 3 == 0 ? client.reset() : client.close();
    server.await_idle();
  }
  const EngineStats stats = server.pipeline().engine().stats();
  EXPECT_EQ(stats.aborted, 20);
  EXPECT_EQ(stats.free_blocks + stats.cached_blocks, stats.total_blocks);
}

TEST(ApiServer, QueueLimitAndTimeout) {
  ScriptOptions options;
  options.service.admission = {2, 3, std::chrono::milliseconds(0)};
  options.answer = "x";
  ScriptedServer server(options);
  server.close_gate();
  std::vector<RawClient> clients;
  for (int i = 0; i < 5; ++i) {
    clients.push_back(server.connect());
    clients.back().send(post_text(kChat, kBody));
    const auto queued = [&] {
      const Admission::Counts counts = server.server().service().admission().counts();
      return counts.running + counts.waiting;
    };
    while (queued() <= i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const RawReply refused = server.post(kChat, kBody);
  EXPECT_EQ(refused.status, 503);
  EXPECT_TRUE(refused.headers.contains("retry-after"));
  server.open_gate();
  for (RawClient& client : clients) EXPECT_EQ(client.read_reply().status, 200);
  server.await_admitted(0);
}

TEST(ApiServer, WaitingTooLong) {
  ScriptOptions options;
  options.service.admission = {1, 0, std::chrono::milliseconds(50)};
  options.answer = "x";
  ScriptedServer server(options);
  server.close_gate();
  RawClient first = server.connect();
  first.send(post_text(kChat, kBody));
  server.await_admitted(1);
  EXPECT_EQ(server.post(kChat, kBody).status, 503);
  EXPECT_EQ(server.server().service().admission().counts().waiting, 0);
  server.open_gate();
  EXPECT_EQ(first.read_reply().status, 200);
}

TEST(ApiServer, QueuedClientThatGoesAwayLeavesTheQueue) {
  ScriptOptions options;
  options.service.admission = {1, 0, std::chrono::milliseconds(0)};
  ScriptedServer server(options);
  server.close_gate();
  RawClient first = server.connect();
  first.send(post_text(kChat, kBody));
  server.await_admitted(1);
  RawClient second = server.connect();
  second.send(post_text(kChat, kBody));
  const auto waiting = [&] { return server.server().service().admission().counts().waiting; };
  while (waiting() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  second.close();
  while (waiting() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  server.open_gate();
  EXPECT_EQ(first.read_reply().status, 200);
}

TEST(ApiServer, TheOldestConversationMakesRoom) {
  ScriptOptions options;
  options.service.max_sessions = 2;
  ScriptedServer server(options);
  const auto history = [&](int session) {
    const std::string body = cat(R"({"prompt":"hi","interactive_mode":true,"session_id":)", session, "}");
    return server.post_json("/v1/chat/interactive", body).as_object().at("history_tokens").as_int64();
  };
  for (const int session : {1, 2, 1, 3}) history(session);
  EXPECT_EQ(server.pipeline().engine().stats().sessions, 2) << "the engine's session has ended too";
  EXPECT_GT(history(1), 0) << "used after the second one";
  EXPECT_EQ(history(2), 0) << "forgotten";
}

TEST(ApiServer, AbortRequest) {
  ScriptOptions options;
  options.answer = "endless ";
  options.endless = true;
  options.service.enable_abort = true;
  ScriptedServer server(options);
  RawClient client = server.connect();
  client.send(post_text(kChat, R"({"messages":"hi","session_id":7,"stream":true})"));
  server.await_running(1);
  EXPECT_EQ(server.post(kChat, R"({"messages":"hi","session_id":7})").status, 400) << "the id is taken";
  EXPECT_EQ(server.post("/abort_request", R"({"session_id":7})").status, 200);
  const RawReply reply = client.read_reply();
  EXPECT_NE(reply.body.find("\"finish_reason\":\"abort\""), std::string::npos);
  EXPECT_NE(reply.body.find("[DONE]"), std::string::npos);
  server.await_idle();
}

TEST(ApiServer, MetricsCount) {
  ScriptedServer server({.answer = "abc"});
  server.post_json(kChat, kBody);
  server.await_idle();
  const RawReply page = server.get("/metrics");
  EXPECT_NE(page.body.find("lmdeploy:generation_tokens_total{model_name=\"scripted\",engine=\"0\"} 3\n"),
            std::string::npos)
      << page.body;
  EXPECT_NE(page.body.find("lmdeploy:request_success_total{model_name=\"scripted\",engine=\"0\",finished_"
                           "reason=\"stop\"} 1\n"),
            std::string::npos);
  EXPECT_NE(page.body.find("lmdeploy:num_requests_running{model_name=\"scripted\",engine=\"0\"} 0\n"),
            std::string::npos);
}

TEST(ApiServer, DocumentDescribesEveryRoute) {
  ScriptedServer server;
  const Json document = parse_json(server.get("/openapi.json").body, "document");
  const JsonObject& paths = document.as_object().at("paths").as_object();
  for (const Route& route : routes())
    EXPECT_EQ(paths.contains(route.path), route.shown == Shown::kAlways) << route.path;
}

TEST(ApiServer, RoutesAreGroupedByTags) {
  ScriptedServer server;
  const Json document = parse_json(server.get("/openapi.json").body, "document");
  const auto tag = [&](const char* path, const char* method) {
    return to_json_text(
        document.as_object().at("paths").as_object().at(path).as_object().at(method).at("tags"));
  };
  EXPECT_EQ(tag("/v1/chat/completions", "post"), R"(["OpenAI"])");
  EXPECT_EQ(tag("/v1/messages/count_tokens", "post"), R"(["Anthropic"])");
  EXPECT_EQ(tag("/v1/chat/interactive", "post"), R"(["LMDeploy"])");
  EXPECT_EQ(tag("/metrics", "get"), R"(["Server"])");
  EXPECT_EQ(document.as_object().at("tags").as_array().size(), 4u);
}

TEST(ApiServer, EngineThatCannotAnswerSaysSo) {
  ScriptedServer server({.answer = "x"});
  server.pipeline().close();
  EXPECT_EQ(server.post(kChat, kBody).status, 503);
  EXPECT_EQ(server.post(kChat, kStreamBody).status, 503);
}

TEST(ApiServer, StopEndsRunningStreams) {
  auto server = std::make_unique<ScriptedServer>(ScriptOptions{.answer = "endless ", .endless = true});
  RawClient client = server->connect();
  client.send(post_text(kChat, kStreamBody));
  EXPECT_FALSE(client.read_some().empty());
  server.reset();
  client.read_to_end();
}

}  // namespace
}  // namespace lmdeploy::testing
