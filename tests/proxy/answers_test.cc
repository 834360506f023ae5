// What clients get through the proxy: answers and streams as the node sent them, errors in the words of their
// protocol, keys, TLS, drains.
#include <gtest/gtest.h>

#include <thread>

#include "../http/tls_client.h"
#include "front.h"
#include "lmdeploy/core/error.h"

namespace lmdeploy::testing {
namespace {

using proxy::Proxy;
using proxy::ProxyOptions;
using std::chrono::milliseconds;

std::string chat_request(const std::string& body) {
  return cat("POST ", kChat, " HTTP/1.1\r\nContent-Length: ", body.size(), "\r\n\r\n", body);
}

TEST(Proxy, PassesRequestsAndAnswersOn) {
  FakeNode node;
  Front front;
  front.add(node);
  const std::string body = "{ \"model\" : \"m\",\"x\":1.0,  \"unknown\": [] }";
  const RawReply reply = front.connect().post(
      kChat, body, "Authorization: Bearer k\r\nX-Request-Id: abc\r\nOrigin: https://page\r\n");
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.body, "{\"node\": \"" + node.url() + "\"}");
  EXPECT_EQ(reply.headers.at("x-request-id"), "abc");
  EXPECT_EQ(reply.headers.at("access-control-allow-origin"), "*");
  const http::Request got = node.last_request();
  EXPECT_EQ(got.body, body);
  EXPECT_EQ(got.id, "abc");
  EXPECT_EQ(*got.headers.find("Authorization"), "Bearer k");
  EXPECT_EQ(*got.headers.find("X-Forwarded-For"), "127.0.0.1");
  EXPECT_EQ(front.connect().post("/v1/completions?a=b", kBody).status, 200);
  EXPECT_EQ(node.last_request().target, "/v1/completions?a=b");
  front.expect_nothing_unfinished();
}

TEST(Proxy, F75_StatusesAndErrorBodiesPassUnchanged) {
  FakeNode node;
  Front front(ProxyOptions{});
  front.add(node);
  for (const int status : {400, 404, 429, 500, 503}) {
    node.set_status(status);
    const RawReply reply = front.connect().post(kChat, kBody);
    EXPECT_EQ(reply.status, status);
    EXPECT_EQ(reply.body, "{\"error\": \"the node's own words\"}");
    EXPECT_EQ(reply.headers.at("retry-after"), "7");
  }
}

TEST(Proxy, F75_EachPieceIsPassedOnAtOnce) {
  FakeNode node({{"m"}, 0, 10});
  Front front;
  front.add(node);
  node.hold_after(4);
  RawClient client = front.connect();
  client.send("POST /v1/chat/completions HTTP/1.0\r\nContent-Length: " + std::to_string(kStream.size()) +
              "\r\n\r\n" + kStream);
  const std::string head = client.read_head();
  EXPECT_NE(head.find("Content-Type: text/event-stream\r\n"), std::string::npos) << head;
  EXPECT_NE(head.find("X-Accel-Buffering: no\r\n"), std::string::npos) << head;
  std::string got;  // the node sends no more until all this is here
  const std::string before = whole_stream(4).substr(0, 4 * FakeNode::chunk(0).size());
  while (got.size() < before.size()) got += client.read_some();
  EXPECT_EQ(got, before);
  node.let_go();
  EXPECT_EQ(got + client.read_to_end(), whole_stream(10));
}

TEST(Proxy, F75_AClientThatLeavesEndsTheNodesWork) {
  FakeNode node;
  Front front;
  front.add(node);
  for (const int chunks : {0, 2}) {  // before and after the first byte
    const int gone = node.num_gone();
    node.hold_after(chunks);
    RawClient client = front.connect();
    client.send(chat_request(kStream));
    if (chunks > 0) client.read_head();
    poll_until("the request", [&] { return node.num_requests() > gone; });
    client.close();
    poll_until("ClientGone at the node", [&] { return node.num_gone() > gone; });
  }
  front.expect_nothing_unfinished();
  const Json status = front.status();
  EXPECT_TRUE(status.at(node.url()).at("latency").as_array().empty());
  EXPECT_TRUE(status.at(node.url()).at("up").as_bool());
}

TEST(Proxy, AStreamThatBreaksSaysSo) {
  FakeNode node;
  Front front;
  front.add(node);
  node.break_after(2);
  const RawReply reply = front.connect().post(kChat, kStream);
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.body,
            FakeNode::chunk(0) + FakeNode::chunk(1) +
                R"(data: {"error":{"message":"the node broke off its answer","type":"server_error",)"
                R"("param":null,"code":"engine_unavailable"},"error_code":10402,)"
                R"("text":"Failed to get response after a period of time"})"
                "\n\ndata: [DONE]\n\n");
  front.expect_nothing_unfinished();
}

/// What a client gets of a stream at `path` whose node sends `events` and is gone.
std::string broken_stream(const std::string& path, const std::string& events) {
  Front front(ProxyOptions{});
  const RawNode node([&](RawClient& connection) {
    if (connection.read_head().rfind("POST", 0) != 0) return;  // a probe
    char size[16];
    std::snprintf(size, sizeof size, "%zx\r\n", events.size());
    connection.send(
        cat("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n", size,
            events, "\r\n"));
  });
  EXPECT_EQ(front.add(node.url(), R"({"models": ["m"]})"), "\"Added successfully\"");
  const RawReply reply = front.connect().post(path, kStream);
  EXPECT_EQ(reply.status, 200);
  return reply.body;
}

TEST(Proxy, ABrokenStreamEndsInTheWordsOfItsProtocol) {
  const std::string start = "event: message_start\ndata: {\"type\":\"message_start\"}\n\n";
  EXPECT_EQ(broken_stream("/v1/messages?beta=true", start),
            start +
                "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":"
                "\"the node broke off its answer\"}}\n\n");
  const std::string created =
      "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":"
      "{\"id\":\"resp_1\",\"status\":\"in_progress\",\"error\":null,\"output\":[]}}\n\n"
      "event: response.in_progress\ndata: {\"type\":\"response.in_progress\",\"sequence_number\":1}\n\n";
  const std::string failed =
      "\"response\":{\"id\":\"resp_1\",\"status\":\"failed\",\"error\":{\"code\":\"server_error\","
      "\"message\":\"the node broke off its answer\"},\"output\":[]}}\n\n";
  const std::string type = "event: response.failed\ndata: {\"type\":\"response.failed\",\"sequence_number\":";
  EXPECT_EQ(broken_stream("/v1/responses", created), created + type + "2," + failed);
  const std::string cut = created + "event: response.output_te";
  EXPECT_EQ(broken_stream("/v1/responses", cut), cut + "\n\n" + type + "3," + failed);
  const std::string odd = broken_stream("/v1/responses", "data: 3\n\n");
  EXPECT_NE(odd.find("{\"error\":{\"message\":\"the node broke off"), std::string::npos) << odd;
}

/// What the proxy says itself has the format of the path that was asked.
TEST(Proxy, AnthropicsPathsHaveAnthropicsErrors) {
  FakeNode node({{"m", "n"}});
  ProxyOptions options = quick_probes();
  options.api_keys = {"k"};
  options.server.max_body_bytes = 1000;
  Front front(options);
  const std::string key = "x-api-key: k\r\n";
  const auto expect = [&](const std::string& body, const std::string& headers, int status, const char* type) {
    for (const char* path : {"/v1/messages", "/v1/messages/count_tokens"}) {
      const RawReply reply = front.connect().post(path, body, headers);
      EXPECT_EQ(reply.status, status) << reply.body;
      const JsonObject json = parse_json(reply.body, "body").as_object();
      EXPECT_EQ(json.size(), 2u) << reply.body;
      EXPECT_EQ(json.at("type"), "error");
      EXPECT_EQ(json.at("error").at("type"), type) << reply.body;
      EXPECT_EQ(reply.headers.count("retry-after"), status == 503 ? 1u : 0u);
    }
  };
  expect(kBody, "", 401, "authentication_error");
  expect(kBody, key, 503, "overloaded_error");  // no node yet
  front->nodes().add(node.url(), {{"m", "n"}, 0, {}, {}, "Hybrid"});
  expect("{\"model\":", key, 400, "invalid_request_error");
  expect("{}", key, 400, "invalid_request_error");
  expect(R"({"model": "wrong"})", key, 404, "not_found_error");
  expect(std::string(1001, ' '), key, 413, "request_too_large");
  node.kill();
  expect(kBody, key, 503, "overloaded_error");
}

TEST(Proxy, PassesOnWhateverHasNoStateAtANode) {
  FakeNode node;
  Front front;
  front.add(node);
  for (const char* path : {"/v1/chat/completions_qos", "/v1/completions_qos", "/v1/embeddings", "/v1/encode",
                           "/v1/decode", "/v1/render", "/generate", "/get_ppl", "/pooling"}) {
    EXPECT_EQ(front.connect().post(path, kBody).status, 200) << path;
    EXPECT_EQ(node.last_request().url.path, path);
  }
}

TEST(Proxy, F69_F73_BadRequests) {
  FakeNode node({{"m", "n"}});
  Front front;
  front.add(node);
  for (const char* body : {"{\"model\":", "[]", "null", "\"x\"", "3", ""}) {
    const RawReply reply = front.connect().post(kChat, body);
    EXPECT_EQ(reply.status, 400) << body;
    EXPECT_EQ(parse_json(reply.body, "body").at("error").at("type"), "invalid_request_error");
  }
  const RawReply wrong_model = front.connect().post(kChat, R"({"model": "wrong"})");
  EXPECT_EQ(wrong_model.status, 404);
  const Json json = parse_json(wrong_model.body, "body");
  EXPECT_EQ(json.at("error").at("code"), "model_not_found");
  EXPECT_EQ(json.at("error").at("type"), "not_found_error");
  EXPECT_EQ(json.at("code"), 404);
  EXPECT_NE(wrong_model.body.find("does not exist. The nodes serve: m, n"), std::string::npos)
      << wrong_model.body;
  for (const char* body : {R"({"messages": "hi"})", R"({"model": null})", R"({"model": ""})"}) {
    const RawReply no_model = front.connect().post(kChat, body);
    EXPECT_EQ(no_model.status, 400) << body;
    EXPECT_NE(no_model.body.find("\"model\\\" is missing"), std::string::npos) << no_model.body;
    EXPECT_NE(no_model.body.find("the nodes serve: m, n"), std::string::npos) << no_model.body;
  }
  const RawReply wrong_method = front.connect().get(kChat);
  EXPECT_EQ(wrong_method.status, 405);
  EXPECT_EQ(wrong_method.headers.at("allow"), "POST");
  EXPECT_EQ(front.connect().post("/v1/chat/interactive", "{}").status, 404);
  EXPECT_EQ(front.connect().post("/distserve/gc", "{}").status, 501);
  EXPECT_EQ(node.num_requests(), 0);
}

TEST(Proxy, AModelNeedNotBeNamedWhenThereIsOne) {
  FakeNode node;
  Front front;
  front.add(node);
  EXPECT_EQ(front.connect().post(kChat, R"({"messages": "hi"})").status, 200);
}

TEST(Proxy, F70_KeysProtectAllRoutes) {
  FakeNode node;
  ProxyOptions options = quick_probes();
  options.api_keys = {"k1", "k2"};
  Front front(options);
  for (const char* path :
       {"/nodes/status", "/v1/models", "/metrics", "/nodes/terminate_all", "/no/such/path"}) {
    const RawReply reply = front.connect().get(path);
    EXPECT_EQ(reply.status, 401) << path;
    EXPECT_EQ(reply.headers.at("www-authenticate"), "Bearer");
    EXPECT_EQ(parse_json(reply.body, "body").at("error").at("code"), "invalid_api_key");
    EXPECT_EQ(parse_json(reply.body, "body").at("error").at("type"), "authentication_error");
    EXPECT_EQ(front.connect().get(path, "Authorization: Bearer wrong\r\n").status, 401);
  }
  for (const char* path : {"/nodes/add", "/nodes/remove", "/nodes/terminate", kChat})
    EXPECT_EQ(front.connect().post(path, "{}").status, 401) << path;
  for (const char* key : {"Authorization: Bearer k1\r\n", "Authorization: bearer k2\r\n"})
    EXPECT_EQ(front.connect().get("/v1/models", key).status, 200);
  for (const char* path : {"/", "/openapi.json"}) EXPECT_EQ(front.connect().get(path).status, 200);
  EXPECT_EQ(front.connect().get("/health").status, 503);  // open; there is no node yet
  RawClient browser = front.connect();
  browser.send(
      "OPTIONS /v1/chat/completions HTTP/1.1\r\nOrigin: https://p\r\nAccess-Control-Request-Method: "
      "POST\r\nAccess-Control-Request-Headers: authorization\r\n\r\n");
  EXPECT_EQ(browser.read_reply().headers.at("access-control-allow-headers"), "authorization");
}

TEST(Proxy, ManyStreamsAndNothingIsLeft) {
  FakeNode one({{"m"}, 0, 20}), two({{"m"}, 0, 20});
  Front front;
  front.add(one);
  front.add(two);
  front.connect().get("/nodes/status");
  const auto settled = [&] { return one.num_connections() + two.num_connections(); };
  const int files = num_open_files() - settled();
  one.hold_after(10);
  two.hold_after(10);
  std::vector<RawClient> clients;
  for (int i = 0; i < 200; ++i) {
    clients.push_back(front.connect());
    clients.back().send(chat_request(kStream));
  }
  poll_until("200 streams", [&] { return one.num_requests() + two.num_requests() == 200; });
  for (int i = 0; i < 50; ++i) clients[static_cast<size_t>(i)].reset();  // some leave
  poll_until("the news at the nodes", [&] { return one.num_gone() + two.num_gone() == 50; });
  one.hold_after(-1);
  two.hold_after(-1);
  std::thread lets_go([&] {
    for (int i = 0; i < 200; ++i) {
      one.let_go();
      two.let_go();
      std::this_thread::sleep_for(milliseconds(5));
    }
  });
  for (int i = 50; i < 200; ++i)
    EXPECT_EQ(clients[static_cast<size_t>(i)].read_reply().body, whole_stream(20));
  lets_go.join();
  clients.clear();
  front.expect_nothing_unfinished();
  front->stop();
  poll_until("all connections of the nodes closed", [&] { return settled() == 0; });
  EXPECT_LE(num_open_files(), files);
}

TEST(Proxy, DrainWaitsForStreams) {
  FakeNode node;
  Front front;
  front.add(node);
  node.hold_after(1);
  RawClient client = front.connect();
  client.send(chat_request(kStream));
  poll_until("the stream", [&] { return node.num_requests() == 1; });
  bool drained = false;
  std::thread thread([&] { drained = front->drain(std::chrono::minutes(1)); });
  node.hold_after(-1);
  std::thread lets_go([&] {
    for (int i = 0; i < 100; ++i) {
      node.let_go();
      std::this_thread::sleep_for(milliseconds(2));
    }
  });
  EXPECT_EQ(client.read_reply().body, whole_stream());
  thread.join();
  lets_go.join();
  EXPECT_TRUE(drained);
}

TEST(Proxy, WhatADrainCutsOffHearsOfIt) {
  FakeNode silent({{"m"}}), talks({{"n"}});
  silent.hold_after(0);
  talks.hold_after(1);
  Front front;
  front.add(silent);
  front.add(talks);
  RawClient whole = front.connect(), stream = front.connect();
  whole.send(chat_request(kBody));
  stream.send(chat_request(R"({"model": "n", "messages": "hi", "stream": true})"));
  poll_until("the request", [&] { return silent.num_requests() == 1; });
  std::string begin;
  while (begin.find(FakeNode::chunk(0)) == std::string::npos) begin += stream.read_some();
  EXPECT_FALSE(front->drain(milliseconds(20)));
  EXPECT_EQ(whole.read_reply().status, 503);
  EXPECT_NE(stream.read_to_end().find("the server is shutting down"), std::string::npos);
  EXPECT_EQ(silent.num_requests() + talks.num_requests(), 2) << "no other node is tried";
}

TEST(Proxy, TlsOnBothSides) {
  const SelfSigned files = make_self_signed("proxy");
  ProxyOptions options = quick_probes();
  options.server.tls = http::TlsFiles{files.certificate, files.key};
  options.client.trusted = files.certificate;
  FakeNode plain;
  Proxy inner(options);
  inner.nodes().add(plain.url(), {{"m"}, 0, {}, {}, "Hybrid"});
  ProxyOptions outer_options = quick_probes();
  outer_options.client.trusted = files.certificate;
  Front outer(outer_options);  // its node is the other proxy, behind TLS
  EXPECT_EQ(outer.add("https://localhost:" + std::to_string(inner.port())), "\"Added successfully\"");
  EXPECT_EQ(outer.connect().post(kChat, kStream).body, whole_stream());
  EXPECT_EQ(*plain.last_request().headers.find("X-Forwarded-Proto"), "https");
}

TEST(Proxy, PagesAndMetrics) {
  FakeNode node;
  Front front;
  front.add(node);
  EXPECT_EQ(send_many(front, 5, 1), 0);
  EXPECT_NE(front.connect().get("/").body.find("<code>/nodes/add</code>"), std::string::npos);
  const Json api = parse_json(front.connect().get("/openapi.json").body, "openapi.json");
  EXPECT_EQ(api.at("paths").at("/nodes/status").as_object().count("get"), 1u);
  const std::string metrics = front.connect().get("/metrics").body;
  EXPECT_NE(metrics.find("lmdeploy_proxy_node_answered_total{node=\"" + node.url() + "\"} 5\n"),
            std::string::npos)
      << metrics;
  EXPECT_NE(metrics.find("lmdeploy_proxy_node_up{node=\"" + node.url() + "\"} 1\n"), std::string::npos)
      << metrics;
}

}  // namespace
}  // namespace lmdeploy::testing
