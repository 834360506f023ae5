// What a well-behaved client may send.
#include <gtest/gtest.h>

#include "test_server.h"

namespace lmdeploy::testing {
namespace {

TEST(Requests, OneConnectionServesMany) {
  TestServer server;
  RawClient client = server.connect();
  for (int i = 0; i < 3; ++i) {
    const RawReply reply = client.get("/hello");
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(reply.body, "hello");
    EXPECT_EQ(reply.headers.at("connection"), "keep-alive");
    EXPECT_EQ(reply.headers.at("content-type"), "text/plain");
    EXPECT_EQ(reply.headers.count("date"), 1u);
  }
  EXPECT_EQ(server.server().counts().connections, 1);
  EXPECT_EQ(client.post("/echo", "a body").body, "a body");
}

TEST(Requests, PipelinedOnesAreAnsweredInOrder) {
  TestServer server;
  RawClient client = server.connect();
  std::string requests;
  for (int i = 0; i < 20; ++i) {
    const std::string body = "body " + std::to_string(i);
    requests += "POST /echo HTTP/1.1\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
    requests += "GET /stream?n=" + std::to_string(i) + " HTTP/1.1\r\n\r\n";
  }
  client.send(requests);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(client.read_reply().body, "body " + std::to_string(i));
    const RawReply stream = client.read_reply();
    EXPECT_TRUE(stream.complete);
    EXPECT_EQ(std::count(stream.body.begin(), stream.body.end(), '\n'), i);
  }
}

TEST(Requests, HowTheBytesAreCutDoesNotMatter) {
  TestServer server;
  RawClient client = server.connect();
  const std::string request =
      "POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5;ext=1\r\nhello\r\n1\r\n "
      "\r\n5\r\nworld\r\n0\r\nTrailer: x\r\n\r\n";
  for (const char c : request) client.send({&c, 1});
  EXPECT_EQ(client.read_reply().body, "hello world");
  client.send(request + request);
  EXPECT_EQ(client.read_reply().body, "hello world");
  EXPECT_EQ(client.read_reply().body, "hello world");
}

TEST(Requests, LargeBodies) {
  TestServer server;
  RawClient client = server.connect();
  std::string body(3'000'000, 'x');
  for (size_t i = 0; i < body.size(); ++i) body[i] = static_cast<char>(i * 31 % 251);
  EXPECT_EQ(client.post("/echo", body).body, body);
  client.send("POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n");
  std::string chunked;
  for (size_t at = 0; at < body.size(); at += 100'000)
    chunked += "186a0\r\n" + body.substr(at, 100'000) + "\r\n";
  client.send(chunked + "0\r\n\r\n");
  EXPECT_EQ(client.read_reply().body, body);
  EXPECT_EQ(client.get("/big?bytes=5000000").body, std::string(5'000'000, 'b'));
}

TEST(Requests, ClientsThatAskBeforeTheySendTheBody) {
  TestServer server;
  RawClient client = server.connect();
  client.send("POST /echo HTTP/1.1\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.read_reply().status, 100);
  client.send("body");
  EXPECT_EQ(client.read_reply().body, "body");
  // HTTP/1.0 has no such answer; another expectation cannot be met.
  client.send("POST /echo HTTP/1.0\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\nbody");
  EXPECT_EQ(client.read_reply().status, 200);
  RawClient other = server.connect();
  EXPECT_EQ(other.post("/echo", "body", "Expect: a-miracle\r\n").status, 400);
}

TEST(Requests, Http10) {
  TestServer server;
  RawClient client = server.connect();
  client.send("GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_EQ(client.read_reply().headers.at("connection"), "keep-alive");
  client.send("GET /stream?n=2 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  const RawReply stream = client.read_reply();  // no chunks: until the end of the connection
  EXPECT_EQ(stream.headers.count("transfer-encoding"), 0u);
  EXPECT_EQ(stream.headers.at("connection"), "close");
  EXPECT_EQ(stream.body, "piece 0\npiece 1\n");
  RawClient other = server.connect();
  other.send("GET /hello HTTP/1.0\r\n\r\n");
  EXPECT_EQ(other.read_reply().headers.at("connection"), "close");
  EXPECT_EQ(other.read_some(), "");
}

TEST(Requests, ConnectionCloseIsHonoured) {
  TestServer server;
  RawClient client = server.connect();
  EXPECT_EQ(client.get("/hello", "Connection: close\r\n").headers.at("connection"), "close");
  EXPECT_EQ(client.read_some(), "");
}

TEST(Requests, HeadHasTheHeadersAndNoBody) {
  TestServer server;
  RawClient client = server.connect();
  client.send("HEAD /hello HTTP/1.1\r\n\r\nHEAD /stream?n=3 HTTP/1.1\r\n\r\nGET /hello HTTP/1.1\r\n\r\n");
  EXPECT_EQ(client.read_reply(true).headers.at("content-length"), "5");
  EXPECT_EQ(client.read_reply(true).headers.at("transfer-encoding"), "chunked");
  EXPECT_EQ(client.read_reply().body, "hello");
}

TEST(Requests, StatusesWithoutABody) {
  TestServer server;
  RawClient client = server.connect();
  for (const char* status : {"204", "304"}) {
    const RawReply reply = client.get(std::string("/none?status=") + status);
    EXPECT_EQ(std::to_string(reply.status), status);
    EXPECT_EQ(reply.headers.count("content-length"), 0u);
    EXPECT_EQ(client.get("/hello").body, "hello");
  }
}

TEST(Requests, TargetsMayBeWholeUrls) {
  TestServer server;
  RawClient client = server.connect();
  EXPECT_EQ(client.get("http://example.com:80/hello").body, "hello");
  EXPECT_EQ(client.get("/h%65llo?x=%2").status, 400);  // and the connection goes on
  EXPECT_EQ(client.get("/h%65llo").body, "hello");
  EXPECT_EQ(client.get("/missing").status, 404);
}

const char* const kAsk = "Origin: https://page.example\r\nAccess-Control-Request-Method: POST\r\n";

RawReply preflight(const TestServer& server, const std::string& headers) {
  RawClient client = server.connect();
  client.send("OPTIONS /wait HTTP/1.1\r\n" + headers + "\r\n");
  return client.read_reply();
}

TEST(Cors, EveryOriginByDefault) {
  TestServer server;
  const RawReply reply =
      preflight(server, std::string(kAsk) + "Access-Control-Request-Headers: x-key, content-type\r\n");
  EXPECT_EQ(reply.status, 204);
  EXPECT_EQ(reply.headers.at("access-control-allow-origin"), "*");
  EXPECT_EQ(reply.headers.at("access-control-allow-headers"), "x-key, content-type");
  EXPECT_NE(reply.headers.at("access-control-allow-methods").find("POST"), std::string::npos);
  EXPECT_EQ(server.connect()
                .get("/hello", "Origin: https://page.example\r\n")
                .headers.at("access-control-allow-origin"),
            "*");
  EXPECT_EQ(server.connect().get("/hello").headers.count("access-control-allow-origin"), 0u);
}

TEST(Cors, CredentialsNameTheOrigin) {
  http::ServerOptions options;
  options.cors.credentials = true;
  TestServer server(options);
  const RawReply reply = preflight(server, kAsk);
  EXPECT_EQ(reply.headers.at("access-control-allow-origin"), "https://page.example");
  EXPECT_EQ(reply.headers.at("access-control-allow-credentials"), "true");
  EXPECT_EQ(reply.headers.at("vary"), "Origin");
}

TEST(Cors, OnlyWhatIsAllowed) {
  http::ServerOptions options;
  options.cors.origins = {"https://one.example", "https://page.example"};
  options.cors.methods = {"GET", "POST"};
  options.cors.headers = {"x-key"};
  TestServer server(options);
  const RawReply reply = preflight(server, std::string(kAsk) + "Access-Control-Request-Headers: x-other\r\n");
  EXPECT_EQ(reply.headers.at("access-control-allow-origin"), "https://page.example");
  EXPECT_EQ(reply.headers.at("access-control-allow-methods"), "GET, POST");
  EXPECT_EQ(reply.headers.at("access-control-allow-headers"), "x-key");
  const RawReply other =
      preflight(server, "Origin: https://bad.example\r\nAccess-Control-Request-Method: POST\r\n");
  EXPECT_EQ(other.status, 403);
  EXPECT_EQ(other.headers.count("access-control-allow-origin"), 0u);
}

TEST(Cors, OptionsOfOthersAreTheHandlers) {
  TestServer server;
  RawClient client = server.connect();
  client.send("OPTIONS /hello HTTP/1.1\r\n\r\n");
  EXPECT_EQ(client.read_reply().body, "hello");
}

TEST(RequestIds, TheClientsOrARandomOne) {
  TestServer server;
  RawClient client = server.connect();
  EXPECT_EQ(client.get("/hello", "X-Request-ID: mine-1:2.3_4\r\n").headers.at("x-request-id"),
            "mine-1:2.3_4");
  const std::string one = client.get("/hello").headers.at("x-request-id");
  const std::string two = client.get("/hello", "X-Request-Id: b\xc3\xa4 d\r\n").headers.at("x-request-id");
  EXPECT_EQ(one.size(), 32u);
  EXPECT_EQ(two.size(), 32u);
  EXPECT_NE(one, two);
  client.close();
  server.await_no_connections();
  const auto log = server.log();
  ASSERT_EQ(log.size(), 3u);
  EXPECT_EQ(log[0].id, "mine-1:2.3_4");
  EXPECT_EQ(log[0].method, "GET");
  EXPECT_EQ(log[0].target, "/hello");
  EXPECT_EQ(log[0].status, 200);
  EXPECT_EQ(log[0].bytes, 5);
  EXPECT_EQ(log[0].client.rfind("127.0.0.1:", 0), 0u);
}

}  // namespace
}  // namespace lmdeploy::testing
