// What a server must refuse: clearly, and without harm to others.
#include <gtest/gtest.h>

#include "test_server.h"

namespace lmdeploy::testing {
namespace {

using std::chrono::milliseconds;

TEST(Refusals, MalformedHeads) {
  TestServer server;
  for (const std::string head :
       {"nonsense\r\n\r\n", "GET\r\n\r\n", "GET /hello\r\n\r\n", "GET /hello HTTP/9.9\r\n\r\n",
        "GET /hel lo HTTP/1.1\r\n\r\n", "G@T /hello HTTP/1.1\r\n\r\n",
        "GET /hello HTTP/1.1\r\nno colon\r\n\r\n", "GET /hello HTTP/1.1\r\n: empty\r\n\r\n",
        "GET /hello HTTP/1.1\r\nA B: c\r\n\r\n", "POST /echo HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        "POST /echo HTTP/1.1\r\nContent-Length: 1x\r\n\r\n",
        "POST /echo HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        "POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        "POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n"}) {
    RawClient client = server.connect();
    client.send(head);
    const RawReply reply = client.read_reply();
    EXPECT_EQ(reply.status, 400) << head;
    EXPECT_EQ(reply.body.rfind("error: malformed HTTP request", 0), 0u) << reply.body;
    EXPECT_EQ(reply.headers.at("connection"), "close");
    EXPECT_EQ(client.read_some(), "") << head;
  }
  EXPECT_EQ(server.connect().get("/hello").status, 200);
}

/// Where two servers could disagree on where a request ends, it is refused.
TEST(Refusals, NoRequestIsSmuggledBehindAnother) {
  TestServer server;
  for (const std::string fields :
       {"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Transfer-Encoding: gzip\r\n", "Transfer-Encoding: chunked, gzip\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "Transfer-Encoding: xchunked\r\n"}) {
    RawClient client = server.connect();
    client.send("POST /echo HTTP/1.1\r\n" + fields + "\r\n0\r\n\r\nGET /hello HTTP/1.1\r\n\r\n");
    EXPECT_EQ(client.read_reply().status, 400) << fields;
    EXPECT_EQ(client.read_to_end(), "") << fields;
  }
}

TEST(Refusals, HeadersOverTheLimit) {
  http::ServerOptions options;
  options.max_header_bytes = 1000;
  TestServer server(options);
  RawClient client = server.connect();
  EXPECT_EQ(client.get("/hello", "X-Long: " + std::string(800, 'x') + "\r\n").status, 200);
  const RawReply reply = client.get("/hello", "X-Long: " + std::string(100'000, 'x') + "\r\n");
  EXPECT_EQ(reply.status, 431);
  EXPECT_NE(reply.body.find("1000"), std::string::npos) << reply.body;
  EXPECT_EQ(client.read_some(), "");
}

TEST(Refusals, BodiesOverTheLimit) {
  http::ServerOptions options;
  options.max_body_bytes = 1000;
  TestServer server(options);
  RawClient client = server.connect();
  EXPECT_EQ(client.post("/echo", std::string(1000, 'x')).status, 200);
  const RawReply reply =
      client.post("/echo", std::string(1001, 'x'), "Origin: https://a\r\nX-Request-Id: big\r\n");
  EXPECT_EQ(reply.status, 413);
  EXPECT_NE(reply.body.find("1000 bytes"), std::string::npos) << reply.body;
  EXPECT_EQ(reply.headers.at("access-control-allow-origin"), "*");
  EXPECT_EQ(reply.headers.at("x-request-id"), "big");
  RawClient chunked = server.connect();
  chunked.send("POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n" + std::string(1001, 'x'));
  EXPECT_EQ(chunked.read_reply().status, 413);
}

/// Such a client reads the answer only after its last byte. A reset would take it away.
TEST(Refusals, AnsweredAlsoToAClientThatIsStillSending) {
  http::ServerOptions options;
  options.max_body_bytes = 1000;
  TestServer server(options);
  RawClient client = server.connect();
  EXPECT_TRUE(client.send("POST /echo HTTP/1.1\r\nContent-Length: 40000000\r\n\r\n"));
  EXPECT_TRUE(client.send(std::string(40'000'000, 'x')));
  EXPECT_EQ(client.read_reply().status, 413);
  EXPECT_EQ(client.read_some(), "");
  client.close();
  server.await_no_connections();
}

TEST(Refusals, HeadsAndBodiesThatDoNotArrive) {
  http::ServerOptions options;
  options.header_timeout = options.body_timeout = milliseconds(30);
  TestServer server(options);
  for (const std::string start :
       {"G", "GET /hello HTTP/1.1\r\nX: y\r\n", "POST /echo HTTP/1.1\r\nContent-Length: 5\r\n\r\n12",
        "POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n"}) {
    RawClient client = server.connect();
    client.send(start);
    const RawReply reply = client.read_reply();
    EXPECT_EQ(reply.status, 408) << start;
    EXPECT_EQ(reply.headers.at("connection"), "close");
    EXPECT_EQ(client.read_some(), "");
  }
}

/// A byte now and then does not buy more time for a head.
TEST(Refusals, HeadsInDrops) {
  http::ServerOptions options;
  options.header_timeout = milliseconds(50);
  TestServer server(options);
  RawClient client = server.connect();
  client.send("GET /hello HTTP/1.1\r\n");
  while (client.send("X: y\r\n") && server.server().counts().connections > 0)
    std::this_thread::sleep_for(milliseconds(5));
  server.await_no_connections();
}

TEST(Refusals, IdleConnectionsEnd) {
  http::ServerOptions options;
  options.idle_timeout = milliseconds(30);
  TestServer server(options);
  RawClient client = server.connect();
  RawClient silent = server.connect();
  EXPECT_EQ(client.get("/hello").status, 200);
  EXPECT_EQ(client.read_some(), "");
  EXPECT_EQ(silent.read_some(), "");
}

TEST(Refusals, NoHeaderIsSmuggledIntoAnAnswer) {
  TestServer server;
  const RawReply reply = server.connect().get("/inject");
  EXPECT_EQ(reply.body, "body");
  EXPECT_EQ(reply.headers.at("content-type"), "text/plain");
  EXPECT_EQ(reply.headers.at("x-mine"), "a");
  EXPECT_EQ(reply.head.find("smuggled"), std::string::npos) << reply.head;
}

/// What a client says is long is not allocated before it comes.
TEST(Refusals, LengthsThatAreOnlyClaimed) {
  http::ServerOptions options;
  options.max_body_bytes = size_t{1} << 50;
  TestServer server(options);
  std::vector<RawClient> clients;
  for (int i = 0; i < 20; ++i) {
    clients.push_back(server.connect());
    clients.back().send("POST /echo HTTP/1.1\r\nContent-Length: 1000000000000000\r\n\r\nx");
  }
  EXPECT_EQ(server.connect().get("/hello").status, 200);
}

}  // namespace
}  // namespace lmdeploy::testing
