// --qos-config-path: who is next, through HTTP.
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "lmdeploy/core/error.h"
#include "scripted_server.h"

namespace lmdeploy::testing {
namespace {

constexpr const char* kChat = "/v1/chat/completions_qos";
constexpr const char* kJson = "Content-Type: application/json\r\n";

/// The documented sample.
QosConfig sample() {
  return parse_qos_config(
      read_json_file(LMDEPLOY_SOURCE_DIR "/python/lmdeploy/serve/qos_engine/qos_config.json.template"),
      "sample");
}

/// A server that runs one request at a time; what it runs is its prompts' first words, in order.
class QuotaServer {
 public:
  explicit QuotaServer(QosConfig quotas, AdmissionLimits limits = {1, 0, std::chrono::milliseconds(0)})
      : server_(options(std::move(quotas), limits)) {}
  ~QuotaServer() { server_.open_gate(); }

  ScriptedServer* operator->() { return &server_; }

  /// Something runs, and goes on until open().
  void occupy() {
    server_.close_gate();
    send("first", "user_id0");
    server_.await_admitted(1);
  }
  void open() { server_.open_gate(); }

  /// A request that says its user's name, or `text`; returns when it waits.
  RawClient& queue(const std::string& user, const std::string& text = {}, const std::string& route = kChat) {
    const int64_t before = server_.server().service().admission().counts().waiting;
    RawClient& client = send(text.empty() ? user : text, user, route);
    server_.await_waiting(before + 1);
    return client;
  }
  RawClient& send(const std::string& text, const std::string& user, const std::string& route = kChat) {
    const std::string body =
        cat(R"({"messages":[{"role":"user","content":")", text, R"("}],"user_id":")", user, R"("})");
    clients_.push_back(std::make_unique<RawClient>(server_.connect()));
    clients_.back()->send(cat("POST ", route, " HTTP/1.1\r\nHost: a\r\n", kJson,
                              "Content-Length: ", body.size(), "\r\n\r\n", body));
    return *clients_.back();
  }

  /// All that were sent answer; the names of those that ran after the first.
  std::vector<std::string> finish() {
    open();
    for (const auto& client : clients_) EXPECT_EQ(client->read_reply().status, 200);
    const std::lock_guard lock(mutex_);
    return {order_.begin() + 1, order_.end()};
  }
  void forget_clients() { clients_.clear(); }

 private:
  ScriptOptions options(QosConfig quotas, AdmissionLimits limits) {
    ScriptOptions options;
    options.answer = "x";
    options.service.admission = limits;
    options.service.quotas = std::move(quotas);
    options.on_prompt = [this](const std::string& prompt) {
      const size_t mark = prompt.rfind("user\n");
      const size_t begin = mark == std::string::npos ? 0 : mark + 5;
      const std::lock_guard lock(mutex_);
      order_.push_back(prompt.substr(begin, prompt.find('\n', begin) - begin));
    };
    return options;
  }

  std::mutex mutex_;
  std::vector<std::string> order_;
  std::vector<std::unique_ptr<RawClient>> clients_;
  ScriptedServer server_;
};

TEST(Quotas, SharesAreThoseOfTheQuotas) {
  QuotaServer server({true, {{"G", {{"a", 10}, {"b", 20}, {"c", 70}, {"default", 0}}}}});
  server.occupy();
  for (int i = 0; i < 70; ++i)
    for (const char* user : {"a", "b", "c"}) server.queue(user);
  std::vector<std::string> order = server.finish();
  ASSERT_EQ(order.size(), 210u);
  order.resize(100);  // while all of them wait
  std::map<std::string, int> counts;
  for (const std::string& user : order) ++counts[user];
  EXPECT_NEAR(counts["a"], 10, 2);
  EXPECT_NEAR(counts["b"], 20, 2);
  EXPECT_NEAR(counts["c"], 70, 2);
}

TEST(Quotas, AGroupBeforeTheNextOne) {
  QuotaServer server(sample());
  server.occupy();
  for (int i = 0; i < 3; ++i) {
    server.queue("user_id4", "bronze");
    server.queue("a stranger", "silver");
    server.queue("", "silver");
    server.queue("user_id2", "gold");
    server.queue("user_id0", "platinum");
  }
  const std::vector<std::string> order = server.finish();
  std::vector<std::string> want;
  for (const char* group : {"platinum", "gold"}) want.insert(want.end(), 3, group);
  want.insert(want.end(), 6, "silver");
  want.insert(want.end(), 3, "bronze");
  EXPECT_EQ(order, want);
}

TEST(Quotas, StrangersWithoutADefault) {
  QuotaServer server({true, {{"G", {{"user_id0", 1}}}}});
  const auto refusal = [&](const char* user) {
    return server->post(kChat, cat(R"({"messages":"x")", user, "}")).body;
  };
  EXPECT_NE(refusal("").find("user_id is missing"), std::string::npos);
  EXPECT_NE(refusal(R"(,"user_id":"x")").find(R"(user_id \"x\" is in no group)"), std::string::npos);
}

/// However many wait before it.
TEST(Quotas, ASmallQuotaIsServed) {
  QuotaServer server({true, {{"G", {{"small", 1}, {"big", 99}, {"user_id0", 1}}}}});
  server.occupy();
  for (int i = 0; i < 50; ++i) server.queue("big");
  server.queue("small");
  const std::vector<std::string> order = server.finish();
  EXPECT_LE(std::find(order.begin(), order.end(), "small") - order.begin(), 1);
}

TEST(Quotas, PlainRoutesAreThoseOfUnknownUsers) {
  QuotaServer server(sample());
  server.occupy();
  server.queue("user_id4", "bronze", "/v1/chat/completions");
  server.queue("", "plain", "/v1/chat/completions");
  server.queue("user_id1", "gold");
  EXPECT_EQ(server.finish(), (std::vector<std::string>{"gold", "plain", "bronze"}));
}

TEST(Quotas, AClientThatLeavesFreesItsPlaceInTheLine) {
  QuotaServer server(sample());
  server.occupy();
  RawClient& gone = server.queue("user_id0", "gone");
  server.queue("user_id0", "stays");
  gone.close();
  server->await_waiting(1);
  server.open();
  server->await_admitted(0);
  server.forget_clients();
  EXPECT_EQ(server->server().service().admission().counts().given_up, 1);
  EXPECT_EQ(server->server().service().admission().group_counts()[0].begun, 2);
}

TEST(Quotas, EachGroupHasItsOwnQueueLimit) {
  QuotaServer server(sample(), {1, 2, std::chrono::milliseconds(0)});
  server.occupy();
  server.queue("user_id4");
  server.queue("user_id5");
  const RawReply refused = server->post(kChat, R"({"messages":"x","user_id":"user_id6"})");
  EXPECT_EQ(refused.status, 503);
  EXPECT_NE(refused.body.find("queue_full"), std::string::npos);
  EXPECT_TRUE(refused.headers.contains("retry-after"));
  server.queue("user_id0");
  EXPECT_EQ(server.finish(), (std::vector<std::string>{"user_id0", "user_id4", "user_id5"}));
}

TEST(Quotas, TheQueueTimeoutApplies) {
  QuotaServer server(sample(), {1, 0, std::chrono::milliseconds(50)});
  server.occupy();
  const RawReply late = server->post(kChat, R"({"messages":"x","user_id":"user_id6"})");
  EXPECT_EQ(late.status, 503);
  EXPECT_NE(late.body.find("queue_timeout"), std::string::npos);
  EXPECT_TRUE(server.finish().empty());
}

TEST(Quotas, SeveralPromptsTakeSeveralPlaces) {
  QuotaServer server(sample(), {3, 0, std::chrono::milliseconds(0)});
  server->close_gate();
  RawClient several = server->connect();
  const std::string body = R"({"prompt":["a","b"],"n":2,"max_tokens":1,"user_id":"user_id4"})";
  several.send(cat("POST /v1/completions_qos HTTP/1.1\r\nHost: a\r\n", kJson, "Content-Length: ", body.size(),
                   "\r\n\r\n", body));
  server->await_admitted(1);
  server.queue("user_id0");
  server.open();
  EXPECT_EQ(several.read_reply().status, 200);
}

/// What the pieces of an answer, or all of it, say; how it was cut depends on time.
std::string words_of(const std::string& body) {
  std::string words;
  for (const char* key : {"\"content\":\"", "\"text\":\"", "\"finish_reason\":\""})
    for (size_t at = 0; (at = body.find(key, at)) != std::string::npos;) {
      at += std::string(key).size();
      words += body.substr(at, body.find('"', at) - at);
    }
  return words;
}

TEST(Quotas, AnswersAreThoseOfThePlainRoutes) {
  ScriptOptions options;
  options.answer = "Hello";
  options.service.admission.max_running = 8;
  options.service.quotas = sample();
  ScriptedServer server(options);
  const std::pair<const char*, const char*> calls[] = {
      {"/v1/chat/completions", R"({"messages":"H","stop":false,"user_id":"user_id0")"},
      {"/v1/completions", R"({"prompt":"H","suffix":"","stop":"string","user_id":"user_id0")"},
      {"/v1/chat/interactive", R"({"prompt":"H","session_id":-1,"stop":false,"user_id":"user_id0")"}};
  for (const auto& [route, fields] : calls)
    for (const char* stream : {",\"stream\":false}", ",\"stream\":true}"}) {
      const RawReply plain = server.post(route, std::string(fields) + stream);
      const RawReply quota = server.post(std::string(route) + "_qos", std::string(fields) + stream);
      EXPECT_EQ(quota.status, 200) << quota.body;
      EXPECT_TRUE(quota.complete);
      EXPECT_EQ(words_of(quota.body), "Hellostop") << quota.body;
      EXPECT_EQ(words_of(plain.body), "Hellostop") << plain.body;
      EXPECT_EQ(quota.headers.at("content-type"), plain.headers.at("content-type"));
    }
  EXPECT_EQ(server.post(kChat, R"({"messages":"x","stop":true})").status, 400);
  EXPECT_EQ(server.post(kChat, R"({"messages":"x","user_id":3})").status, 400);
  const std::string page = server.get("/metrics").body;
  for (const char* line :
       {R"(lmdeploy:qos_requests_total{model_name="scripted",engine="0",group="Platinum"} 12)",
        R"(lmdeploy:qos_requests_waiting{model_name="scripted",engine="0",group="Bronze"} 0)",
        R"(lmdeploy:qos_requests_running{model_name="scripted",engine="0",group="Gold"} 0)"})
    EXPECT_NE(page.find(line), std::string::npos) << line << "\n" << page;
}

TEST(Quotas, AUserOfNoGroupIsRefused) {
  QuotaServer server({true, {{"G", {{"a", 1}}}}});
  const Json refused = server->post_json(kChat, R"({"messages":"x","user_id":"b"})", 400);
  EXPECT_EQ(refused.as_object().at("param"), Json("user_id"));
  EXPECT_NE(to_json_text(refused).find("default"), std::string::npos);
  EXPECT_EQ(server->post(kChat, R"({"messages":"x","user_id":"a"})").status, 200);
}

// Where nobody is served by default, each route must be able to say whose request it is.
TEST(Quotas, EveryRouteTakesTheUser) {
  QuotaServer server({true, {{"G", {{"a", 1}}}}});
  for (const auto& [route, body] : std::initializer_list<std::pair<const char*, std::string>>{
           {kChat, R"("messages":"x")"},
           {"/v1/completions", R"("prompt":"x")"},
           {"/v1/responses", R"("input":"x")"},
           {"/generate", R"("prompt":"x")"},
           {"/get_ppl", R"("input":"xy")"},
           {"/v1/chat/interactive", R"("prompt":"x")"}}) {
    EXPECT_EQ(server->post(route, cat("{", body, "}")).status, 400) << route;
    EXPECT_EQ(server->post(route, cat("{", body, R"(,"user_id":"a"})")).status, 200) << route;
  }
}

TEST(Quotas, WithoutThemTheRoutesSayWhatIsMissing) {
  ScriptedServer plain;
  for (const char* route : {"/v1/chat/completions_qos", "/v1/completions_qos", "/v1/chat/interactive_qos"})
    EXPECT_NE(to_json_text(plain.post_json(route, "{}", 404)).find("--qos-config-path"), std::string::npos);
  EXPECT_EQ(plain.get("/openapi.json").body.find("_qos"), std::string::npos);
  QuotaServer server(sample());
  EXPECT_NE(server->get("/openapi.json").body.find("/v1/chat/interactive_qos"), std::string::npos);
}

TEST(Quotas, SwitchedOffTheyPassRequestsInOrder) {
  QuotaServer server({false, {}});
  server.occupy();
  for (const char* user : {"z", "user_id4", "user_id0"}) server.queue(user);
  EXPECT_EQ(server.finish(), (std::vector<std::string>{"z", "user_id4", "user_id0"}));
  EXPECT_EQ(server->get("/metrics").body.find("qos_requests"), std::string::npos);
}

}  // namespace
}  // namespace lmdeploy::testing
