// Steps that fail: who hears of it, who goes on, and what /health says.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "lmdeploy/core/error.h"
#include "scripted_server.h"

namespace lmdeploy::testing {
namespace {

constexpr const char* kChat = "/v1/chat/completions";
constexpr const char* kEndless = R"({"messages":[{"role":"user","content":"hi"}],"stream":true})";
constexpr const char* kShort = R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":3})";

std::string post_text(const std::string& target, const std::string& body) {
  return cat("POST ", target,
             " HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: ", body.size(),
             "\r\n\r\n", body);
}

/// Until one of the words is in the text, or the connection has ended.
void read_until(RawClient& client, std::string& text, std::initializer_list<const char*> words) {
  const auto found = [&] {
    return std::any_of(words.begin(), words.end(),
                       [&](const char* word) { return text.find(word) != std::string::npos; });
  };
  while (!found()) {
    const std::string more = client.read_some();
    if (more.empty()) break;
    text += more;
  }
}

/// A model whose next steps fail when a test says so.
class FailingServer {
 public:
  FailingServer() : server_(options()) {}
  ScriptedServer* operator->() { return &server_; }
  void fail_next(int count) { failures_ = count; }
  /// Returns when they have failed.
  void await_failures() {
    while (failures_ > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

 private:
  ScriptOptions options() {
    ScriptOptions options;
    options.answer = "endless ";
    options.endless = true;
    options.session_len = 1 << 16;
    options.step_time = std::chrono::milliseconds(1);
    options.before_step = [this](const StepInput&) {
      if (failures_ == 0) return;
      --failures_;
      throw Error(ErrorCode::kInternal, "the device is gone");
    };
    return options;
  }

  std::atomic<int> failures_ = 0;
  ScriptedServer server_;
};

/// The words of a stream, and of the events that end it.
void expect_broken_off(const std::string& body) {
  const std::vector<Json> events = events_of(body);
  ASSERT_GE(events.size(), 2u) << body;
  EXPECT_EQ(events.back(), Json("[DONE]"));
  const Json& error = events[events.size() - 2];
  ASSERT_TRUE(error.as_object().contains("error")) << body;
  EXPECT_NE(to_json_text(error).find("the device is gone"), std::string::npos);
  for (size_t i = 0; i + 2 < events.size(); ++i) EXPECT_FALSE(events[i].as_object().contains("error"));
}

TEST(Failures, F29_EveryStreamOfTheStepHearsOfIt) {
  FailingServer server;
  std::vector<RawClient> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(server->connect());
    clients.back().send(post_text(kChat, kEndless));
    EXPECT_FALSE(clients.back().read_some().empty());
  }
  std::string unused;
  read_until(clients[3], unused, {"\"content\":\"s\""});
  server.fail_next(1);
  for (RawClient& client : clients) {
    std::string text;
    read_until(client, text, {"[DONE]"});
    expect_broken_off(text);
  }
  server->await_idle();
  EXPECT_EQ(server->post(kChat, kShort).status, 200) << "the next request goes on";
  EXPECT_EQ(server->get("/health").status, 200) << "one failed step may be the fault of its requests";
}

/// Each in the words of its protocol.
TEST(Failures, StreamsOfAllProtocolsSayWhy) {
  struct Call {
    const char *route, *body, *end;
  };
  const Call calls[] = {
      {"/v1/completions", R"({"prompt":"h","max_tokens":2000,"stream":true})", "data: [DONE]"},
      {"/generate", R"({"prompt":"h","max_tokens":2000,"stream":true})", "data: [DONE]"},
      {"/v1/responses", R"({"input":"hi","stream":true})", "event: response.failed"},
      {"/v1/messages", R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":2000,"stream":true})",
       "event: error"}};
  FailingServer server;
  for (const Call& call : calls) {
    RawClient client = server->connect();
    std::string request = post_text(call.route, call.body);
    request.insert(request.find("Content-Type"), "anthropic-version: 2023-06-01\r\nConnection: close\r\n");
    client.send(request);
    std::string text;
    read_until(client, text, {"dl", "\"e\""});
    server.fail_next(1);
    text += client.read_to_end();
    EXPECT_NE(text.find("the device is gone"), std::string::npos) << call.route << text;
    EXPECT_NE(text.find(call.end), std::string::npos) << call.route << text;
    server->await_idle();
  }
}

/// So do they when --shutdown-timeout cuts them off.
TEST(Failures, WhatAShutdownCutsOffHearsOfIt) {
  FailingServer server;
  const char* const streams[][3] = {
      {kChat, kEndless, "data: [DONE]"},
      {"/v1/completions", R"({"prompt":"h","max_tokens":9000,"stream":true})", "data: [DONE]"},
      {"/v1/responses", R"({"input":"hi","stream":true})", "event: response.failed"},
      {"/v1/chat/interactive", R"({"prompt":"hi","stream":true})", "\"error\":{"}};
  std::vector<RawClient> clients;
  for (const auto& [route, body, end] : streams) {
    clients.push_back(server->connect());
    clients.back().send(post_text(route, body));
    EXPECT_FALSE(clients.back().read_some().empty());
  }
  clients.push_back(server->connect());
  clients.back().send(post_text("/v1/completions", R"({"prompt":"h","max_tokens":60000})"));
  server->await_running(5);
  server->server().service().set_state(ServiceState::kStopping);
  EXPECT_FALSE(server->server().drain(std::chrono::milliseconds(30)));
  for (size_t i = 0; i < std::size(streams); ++i) {
    const std::string text = clients[i].read_to_end();
    EXPECT_NE(text.find("the server is shutting down"), std::string::npos) << streams[i][0];
    EXPECT_NE(text.find(streams[i][2]), std::string::npos) << streams[i][0];
  }
  const RawReply whole = clients.back().read_reply();
  EXPECT_EQ(whole.status, 503);
  EXPECT_EQ(whole.headers.at("retry-after"), "2");
  server->await_idle();
}

/// Places in the queue too.
TEST(Failures, WhoeverWaitsForAPlaceHearsOfAShutdown) {
  ScriptOptions options;
  options.service.admission.max_running = 1;
  ScriptedServer server(options);
  server.close_gate();
  RawClient runs = server.connect(), waits = server.connect();
  runs.send(post_text(kChat, kShort));
  server.await_admitted(1);
  waits.send(post_text(kChat, kShort));
  server.await_waiting(1);
  EXPECT_FALSE(server.server().drain(std::chrono::milliseconds(30)));
  EXPECT_EQ(waits.read_reply().status, 503);
  EXPECT_EQ(runs.read_reply().status, 503);
  server.open_gate();
  server.await_idle();
}

/// A request that waits when the step fails is not part of it.
TEST(Failures, WaitingRequestsGoOn) {
  FailingServer server;
  std::vector<RawClient> running;
  for (int i = 0; i < 8; ++i) {  // as many as run at once
    running.push_back(server->connect());
    running.back().send(post_text(kChat, kEndless));
    EXPECT_FALSE(running.back().read_some().empty());
  }
  server->await_running(8);
  RawClient waiting = server->connect();
  waiting.send(post_text(kChat, kShort));
  server->await_running(9);
  server.fail_next(1);
  EXPECT_EQ(waiting.read_reply().status, 200);
}

TEST(Failures, WholeAnswersGetAStatus) {
  FailingServer server;
  server.fail_next(1);
  const Json refused = server->post_json(kChat, kShort, 500);
  EXPECT_NE(to_json_text(refused).find("the device is gone"), std::string::npos);
  server.fail_next(1);
  EXPECT_EQ(server->post(kChat, kEndless).status, 500) << "before the first byte a stream is none";
}

TEST(Failures, TheInteractiveStreamSaysWhy) {
  FailingServer server;
  RawClient client = server->connect();
  client.send(post_text("/v1/chat/interactive",
                        R"({"prompt":"hi","stream":true,"interactive_mode":true,"session_id":5})"));
  std::string text;
  read_until(client, text, {"\"text\":"});
  server.fail_next(1);
  read_until(client, text, {"\"error\":{"});
  EXPECT_NE(text.find("\"finish_reason\":\"error\""), std::string::npos);
  EXPECT_NE(text.find("the device is gone"), std::string::npos);
  server->await_idle();
}

TEST(Failures, F71_HealthTellsABrokenEngine) {
  FailingServer server;
  server.fail_next(3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(server->get("/health").status, 200);
    EXPECT_EQ(server->post(kChat, kShort).status, 500);
  }
  const RawReply sick = server->get("/health");
  EXPECT_EQ(sick.status, 503);
  EXPECT_NE(sick.body.find("unhealthy"), std::string::npos);
  EXPECT_NE(sick.body.find("3 steps"), std::string::npos);
  EXPECT_EQ(server->post(kChat, kShort).status, 200);
  EXPECT_EQ(server->get("/health").status, 200) << "it has recovered";
  server->pipeline().engine().close();
  const RawReply dead = server->get("/health");
  EXPECT_EQ(dead.status, 503);
  EXPECT_NE(dead.body.find("closed"), std::string::npos);
}

TEST(Failures, HealthOfAClosedPipeline) {
  ScriptedServer server;
  server.pipeline().close();
  EXPECT_EQ(server.get("/health").status, 503);
  EXPECT_EQ(server.post(kChat, kShort).status, 503);
}

}  // namespace
}  // namespace lmdeploy::testing
