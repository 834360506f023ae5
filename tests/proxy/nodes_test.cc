// Which nodes the proxy has and which of them gets a request: nodes that come, go, die, are slow or hostile.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "front.h"
#include "lmdeploy/core/error.h"

namespace lmdeploy::testing {
namespace {

using proxy::Proxy;
using proxy::ProxyOptions;
using proxy::Strategy;
using std::chrono::milliseconds;

TEST(Proxy, NodesComeAndGo) {
  FakeNode one({{"m", "n"}}), two({{"m"}});
  Front front;
  EXPECT_EQ(front.connect().get("/nodes/status").body, "{}");
  EXPECT_EQ(front.connect().get("/health").status, 503);
  front.add(one);
  EXPECT_EQ(front.add(two.url(), R"({"models": ["given"], "speed": 120, "unfinished": 3})"),
            "\"Added successfully\"");
  EXPECT_EQ(front.connect().get("/health").status, 200);
  const Json status = front.status();
  EXPECT_EQ(to_json_text(status.at(one.url()).at("models")), R"(["m","n"])");
  EXPECT_EQ(to_json_text(status.at(two.url())),
            R"({"models":["given"],"unfinished":0,"latency":[],"speed":1.2E2,"role":"Hybrid","up":true})");
  const Json models = parse_json(front.connect().get("/v1/models").body, "models");
  EXPECT_EQ(models.at("data").as_array().size(), 3u);
  EXPECT_EQ(models.at("data").as_array()[2].at("id"), "given");
  EXPECT_EQ(front.connect().post("/nodes/remove?node_url=" + one.url(), "").body, "\"Deleted successfully\"");
  EXPECT_EQ(front.connect().post("/nodes/remove", "{\"url\": \"" + two.url() + "\"}").body,
            "\"Deleted successfully\"");
  EXPECT_EQ(front.connect().post("/nodes/remove", R"({"url": "http://unknown"})").body,
            "\"Deleted successfully\"");
  EXPECT_EQ(front.connect().get("/nodes/status").body, "{}");
}

TEST(Proxy, NodesThatCannotBeAdded) {
  Front front;
  const std::string failed = "\"Failed to add, please check the input url.\"";
  const int free_port = RawListener().port();
  for (const std::string& url :
       {"http://127.0.0.1:" + std::to_string(free_port), std::string("no-url"), std::string("ftp://a")})
    EXPECT_EQ(front.add(url), failed) << url;
  for (const char* answer : {"HTTP/1.1 200 OK\r\n\r\nnot json", "HTTP/1.1 200 OK\r\n\r\n{\"data\": 3}",
                             "HTTP/1.1 404 No\r\n\r\n", "garbage\r\n\r\n"}) {
    const RawNode node([&](RawClient& connection) {
      connection.read_head();
      connection.send(answer);
    });
    EXPECT_EQ(front.add(node.url()), failed) << answer;
  }
  for (const char* body : {"", "[]", "{}", R"({"url": 3})", R"({"url": "http://a", "status": 3})",
                           R"({"url": "http://a", "status": {"models": ["m"], "speed": 0}})",
                           R"({"url": "http://a", "status": {"models": ["m"], "role": "Prefill"}})"}) {
    const RawReply reply = front.connect().post("/nodes/add", body);
    EXPECT_EQ(reply.status, 400) << body;
    EXPECT_NE(reply.body.find("\"error\":{\"message\":\"request body"), std::string::npos) << reply.body;
  }
  EXPECT_EQ(front.connect().get("/nodes/status").body, "{}");
}

TEST(Proxy, NodesWithoutUrl) {
  Front front;
  for (const char* path : {"/nodes/add", "/nodes/remove", "/nodes/terminate"})
    for (const char* body : {"", " \n", "{}", "[]"}) {
      const RawReply reply = front.connect().post(path, body);
      EXPECT_EQ(reply.status, 400) << path;
      EXPECT_NE(reply.body.find("\\\"url\\\" is missing"), std::string::npos) << path << ": " << reply.body;
    }
}

/// A proxy whose node it is itself, asked for its models or not.
TEST(Proxy, DoesNotTakeItselfForANode) {
  FakeNode node({{"m"}});
  Front front;
  front.add(node);
  const std::string own = cat("http://127.0.0.1:", front->port());
  const std::string refusal = front.add(own);
  EXPECT_NE(refusal.find("Failed to add, please check the input url: the url leads back to this proxy"),
            std::string::npos)
      << refusal;
  EXPECT_EQ(front.status().as_object().size(), 1u);
  EXPECT_EQ(front.add(own, R"({"models": ["m", "n"]})"), "\"Added successfully\"");  // nobody asks it
  front.await_up(own, false);
  EXPECT_EQ(send_many(front, 20, 2), 0);
  const RawReply reply = front.connect().post(kChat, R"({"model": "n"})");
  EXPECT_EQ(reply.status, 508);
  EXPECT_NE(reply.body.find("loop: the request has come back to this proxy"), std::string::npos)
      << reply.body;
  front.expect_nothing_unfinished();
}

TEST(Proxy, TwoProxiesInACircleFindTheServerOrSayWhy) {
  FakeNode node({{"m"}});
  Front one(ProxyOptions{}), two(ProxyOptions{});
  const auto url = [](Front& front) { return cat("http://127.0.0.1:", front->port()); };
  EXPECT_EQ(one.add(url(two), R"({"models": ["m", "n"]})"), "\"Added successfully\"");
  EXPECT_EQ(two.add(url(one), R"({"models": ["m", "n"]})"), "\"Added successfully\"");
  two.add(node);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(one.connect().post(kChat, kBody).status, 200);
  EXPECT_EQ(one.connect().post(kChat, R"({"model": "n"})").status, 508);
  one.expect_nothing_unfinished();
  two.expect_nothing_unfinished();
}

TEST(Proxy, ASilentNodeIsNotWaitedFor) {
  RawListener silent;
  ProxyOptions options = quick_probes();
  options.probes.timeout = milliseconds(30);
  Front front(options);
  EXPECT_EQ(front.add(silent.url()), "\"Failed to add, please check the input url.\"");
}

TEST(Proxy, IdleConnectionsToNodesAreClosed) {
  FakeNode node;
  ProxyOptions options = quick_probes();
  options.client.keep_timeout = milliseconds(30);
  Front front(options);
  front.add(node);
  EXPECT_EQ(send_many(front, 40, 8), 0);
  front->nodes().remove(node.url());  // no more probes
  poll_until("no connection", [&] { return node.num_connections() == 0; });
}

TEST(Proxy, TerminateEndsTheNodes) {
  FakeNode one, two, three;
  Front front;
  for (const FakeNode* node : {&one, &two, &three}) front.add(*node);
  const auto body = [](const FakeNode& node) { return "{\"url\": \"" + node.url() + "\"}"; };
  const auto expect = [](const RawReply& reply, int status, const char* words) {
    EXPECT_EQ(reply.status, status) << reply.body;
    EXPECT_EQ(reply.body, words);
  };
  expect(front.connect().post("/nodes/terminate", body(one)), 200, "\"Terminated successfully\"");
  expect(front.connect().post("/nodes/terminate", body(one)), 404, "\"Failed to terminate node URL\"");
  two.set_status(400);  // does not allow it
  expect(front.connect().post("/nodes/terminate", body(two)), 502, "\"Failed to terminate node URL\"");
  expect(front.connect().get("/nodes/terminate_all"), 502, "\"Failed to terminate all nodes\"");
  two.set_status(200);
  EXPECT_EQ(front.connect().get("/nodes/terminate_all").body, "\"All nodes terminated successfully\"");
  for (const FakeNode* node : {&one, &three}) EXPECT_EQ(node->num_terminated(), 1);
  EXPECT_EQ(front.connect().get("/nodes/status").body, "{}");
}

TEST(Proxy, F76_LoadIsSpread) {
  FakeNode one({{"m"}, 2}), two({{"m"}, 2}), three({{"m"}, 2}), other({{"another"}, 0});
  for (const Strategy strategy :
       {Strategy::kRandom, Strategy::kMinExpectedLatency, Strategy::kMinObservedLatency}) {
    ProxyOptions options = quick_probes();
    options.strategy = strategy;
    Front front(options);
    for (const FakeNode* node : {&one, &two, &three, &other}) front.add(*node);
    const int before[] = {one.num_requests(), two.num_requests(), three.num_requests()};
    EXPECT_EQ(send_many(front, 900, 30), 0);
    const int counts[] = {one.num_requests() - before[0], two.num_requests() - before[1],
                          three.num_requests() - before[2]};
    for (const int count : counts) {
      if (strategy == Strategy::kMinObservedLatency)
        EXPECT_GE(count, 90);
      else
        EXPECT_NEAR(count, 300, 60) << static_cast<int>(strategy);
    }
    EXPECT_EQ(other.num_requests(), 0);
    front.expect_nothing_unfinished();
    EXPECT_EQ(to_json_text(front.status().at(other.url()).at("models")), R"(["another"])");
  }
}

/// Slower than slow: it answers nothing until the others have done most of the work.
TEST(Proxy, F76_ASlowNodeGetsLess) {
  for (const Strategy strategy : {Strategy::kMinExpectedLatency, Strategy::kMinObservedLatency}) {
    FakeNode one, slow, three;
    slow.hold_after(0);
    ProxyOptions options = quick_probes();
    options.strategy = strategy;
    Front front(options);
    for (const FakeNode* node : {&one, &slow, &three}) front.add(*node);
    std::atomic<bool> done = false;
    std::thread lets_go([&] {
      poll_until("the others' work", [&] { return one.num_requests() + three.num_requests() >= 800; });
      slow.hold_after(-1);
      while (!done) {
        slow.let_go();
        std::this_thread::sleep_for(milliseconds(1));
      }
    });
    EXPECT_EQ(send_many(front, 900, 30), 0);
    done = true;
    lets_go.join();
    EXPECT_LE(slow.num_requests(), 100) << static_cast<int>(strategy);
  }
}

TEST(Proxy, PrefixAwareKeepsConversationsTogether) {
  FakeNode one, two, three;
  ProxyOptions options = quick_probes();
  options.strategy = Strategy::kPrefixAware;
  Front front(options);
  for (const FakeNode* node : {&one, &two, &three}) front.add(*node);
  std::set<std::string> all;
  for (int i = 0; i < 30; ++i) {
    std::set<std::string> nodes;
    for (int turn = 0; turn < 3; ++turn) {
      std::string messages = "{\"role\": \"user\", \"content\": \"I am client " + std::to_string(i) + "\"}";
      for (int t = 0; t < turn; ++t) messages += ",{\"role\": \"user\", \"content\": \"more\"}";
      nodes.insert(front.connect().post(kChat, "{\"model\": \"m\", \"messages\": [" + messages + "]}").body);
    }
    EXPECT_EQ(nodes.size(), 1u);
    all.insert(nodes.begin(), nodes.end());
  }
  EXPECT_EQ(all.size(), 3u);
}

TEST(Proxy, NoRequestIsLostWhenANodeIsKilled) {
  FakeNode one({{"m"}, 1}), two({{"m"}, 1}), three({{"m"}, 1});
  Front front;
  for (const FakeNode* node : {&one, &two, &three}) front.add(*node);
  std::atomic<bool> stop = false;
  std::thread breaks([&] {
    for (int i = 0; i < 10 && !stop; ++i) {
      poll_until("work", [&, seen = two.num_requests()] { return stop || two.num_requests() > seen + 5; });
      two.kill();
      std::this_thread::sleep_for(milliseconds(20));
      two.restart();
    }
  });
  EXPECT_EQ(send_many(front, 3000, 16), 0);
  stop = true;
  breaks.join();
  front.await_up(two.url(), true);
  const int before = two.num_requests();
  EXPECT_EQ(send_many(front, 300, 8), 0);
  EXPECT_GT(two.num_requests(), before + 30);  // it is back
  front.expect_nothing_unfinished();
}

TEST(Proxy, ANodeThatDiesBeforeTheFirstByteIsReplaced) {
  FakeNode one, two;
  Front front;
  front.add(one);
  front.add(two);
  one.break_after(0);  // its head comes, its body does not
  two.break_after(-1);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(front.connect().post(kChat, kStream).body, whole_stream());
  EXPECT_NE(front.connect().get("/metrics").body.find("lmdeploy_proxy_retries_total "), std::string::npos);
}

TEST(Proxy, BusyNodesAreReplacedToo) {
  FakeNode busy, good;
  Front front(ProxyOptions{});
  front.add(busy);
  front.add(good);
  busy.set_status(503);
  EXPECT_EQ(send_many(front, 50, 4), 0);
}

TEST(Proxy, NodesAreOutWhileTheirHealthIsBad) {
  FakeNode one, two;
  Front front;
  front.add(one);
  front.add(two);
  one.set_status(503);
  front.await_up(one.url(), false);
  const int before = one.num_requests();
  EXPECT_EQ(send_many(front, 20, 2), 0);
  EXPECT_EQ(one.num_requests(), before);
  one.set_status(200);
  front.await_up(one.url(), true);
  EXPECT_EQ(send_many(front, 20, 2), 0);
  EXPECT_GT(one.num_requests(), before);
}

TEST(Proxy, NoNodeAnswers) {
  FakeNode node;
  Front front;
  front.add(node);
  node.kill();
  const RawReply reply = front.connect().post(kChat, kBody);
  EXPECT_EQ(reply.status, 503);
  EXPECT_EQ(reply.headers.at("retry-after"), "1");
  const Json body = parse_json(reply.body, "body");
  EXPECT_EQ(body.at("error_code"), 10402);
  EXPECT_EQ(body.at("text"), "Failed to get response after a period of time");
  EXPECT_EQ(front.connect().get("/health").status, 503);
  node.restart();
  front.await_up(node.url(), true);
  EXPECT_EQ(front.connect().post(kChat, kBody).status, 200);
}

TEST(Proxy, WithoutNodesClientsShouldTryAgain) {
  Front front;
  const RawReply reply = front.connect().post(kChat, kBody);
  EXPECT_EQ(reply.status, 503);
  EXPECT_EQ(reply.headers.at("retry-after"), "1");
  EXPECT_NE(reply.body.find("no node has been added yet"), std::string::npos) << reply.body;
}

TEST(Proxy, NodesThatTakeTooLong) {
  FakeNode slow, other;
  ProxyOptions options = quick_probes();
  options.client.answer_timeout = milliseconds(30);
  Front front(options);
  front.add(slow);
  slow.hold_after(0);
  const RawReply reply = front.connect().post(kChat, kBody);
  EXPECT_EQ(reply.status, 504);
  EXPECT_EQ(parse_json(reply.body, "body").at("error_code"), 10402);
  EXPECT_EQ(slow.num_requests(), 1);
}

TEST(Proxy, HostileNodes) {
  std::string endless = "HTTP/1.1 200 OK\r\n";
  for (int i = 0; i < 20'000; ++i) endless += "A: b\r\n";
  FakeNode good;
  for (const std::string& answer :
       {std::string("garbage\r\n\r\n"), endless, std::string(100'000, 'x'), std::string(),
        std::string("HTTP/1.1 200"), std::string("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort"),
        std::string("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"),
        std::string("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
        std::string("HTTP/1.1 101 Switching\r\n\r\n")}) {
    Front front(ProxyOptions{});
    const RawNode bad([&](RawClient& connection) {
      connection.read_head();
      connection.send(answer);
    });
    EXPECT_EQ(front.add(bad.url(), R"({"models": ["m"]})"), "\"Added successfully\"");
    EXPECT_EQ(front.connect().post(kChat, kBody).status, 503) << answer.substr(0, 80);
    front.add(good);
    EXPECT_EQ(send_many(front, 10, 2), 0) << answer.substr(0, 80);
  }
}

TEST(Proxy, NodesAreRememberedInAFile) {
  const std::string path = ::testing::TempDir() + "proxy_nodes.json";
  for (const char* end : {"", ".broken"}) std::filesystem::remove(path + end);
  FakeNode one, two;
  ProxyOptions options = quick_probes();
  options.node_file = path;
  {
    Front front(options);
    front.add(one);
    EXPECT_EQ(front.add(two.url(), R"({"models": ["m"], "speed": 2})"), "\"Added successfully\"");
  }
  {
    Front front(options);
    EXPECT_EQ(front.status().as_object().size(), 2u);
    EXPECT_EQ(send_many(front, 10, 2), 0);
    front.connect().post("/nodes/remove", "{\"url\": \"" + one.url() + "\"}");
  }
  {
    Front front(options);
    EXPECT_EQ(front.status().as_object().size(), 1u);
  }
  std::ofstream(path) << "{\"http://a\": ";
  {
    Front front(options);
    EXPECT_EQ(front.connect().get("/nodes/status").body, "{}");
    front.add(one);
  }
  EXPECT_TRUE(std::filesystem::exists(path + ".broken"));
  Front front(options);
  EXPECT_EQ(front.status().as_object().size(), 1u);
}

}  // namespace
}  // namespace lmdeploy::testing
