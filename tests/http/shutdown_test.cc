// Drain and stop.
#include <gtest/gtest.h>

#include <future>

#include "test_server.h"

namespace lmdeploy::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;

TEST(Shutdown, DrainLetsRequestsEnd) {
  TestServer server;
  RawClient idle = server.connect(), waits = server.connect();
  EXPECT_EQ(idle.get("/hello").status, 200);
  waits.send("GET /wait HTTP/1.1\r\n\r\n");
  server.await_waiting(1);
  auto drained = std::async(std::launch::async, [&] { return server.server().drain(minutes(1)); });
  EXPECT_EQ(idle.read_some(), "");  // closed at once
  server.release();
  const RawReply reply = waits.read_reply();
  EXPECT_EQ(reply.body, "released");
  EXPECT_EQ(reply.headers.at("connection"), "close");
  EXPECT_EQ(waits.read_some(), "");
  EXPECT_TRUE(drained.get());
}

TEST(Shutdown, HalfARequestDelaysNoDrain) {
  TestServer server;
  RawClient head = server.connect(), body = server.connect(), chunks = server.connect();
  head.send("POST /echo HTTP/1.1\r\nContent-");
  body.send("POST /echo HTTP/1.1\r\nContent-Length: 9\r\n\r\n1234");
  chunks.send("POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n");
  EXPECT_EQ(server.connect().get("/hello").status, 200);  // the others have been accepted
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(server.server().drain(minutes(1)));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5)) << "before any timeout";
  for (RawClient* client : {&head, &body, &chunks}) EXPECT_EQ(client->read_to_end(), "");
}

TEST(Shutdown, DrainGivesUpInTime) {
  http::ServerOptions options;
  options.ending_timeout = milliseconds(20);
  TestServer server(options);
  RawClient waits = server.connect(), streams = server.connect();
  waits.send("GET /wait HTTP/1.1\r\n\r\n");
  streams.send("GET /flood HTTP/1.1\r\n\r\n");
  server.await_waiting(2);
  EXPECT_FALSE(server.server().drain(milliseconds(30)));
  server.server().stop();
  server.await_gone(1);  // the stream; the other one has its answer
  EXPECT_EQ(server.server().counts().requests, 0);
  waits.read_to_end();
}

TEST(Shutdown, WhatADrainCutsOffGetsAStatus) {
  TestServer server;
  RawClient waits = server.connect();
  waits.send("GET /wait HTTP/1.1\r\n\r\n");
  server.await_waiting(1);
  EXPECT_FALSE(server.server().drain(milliseconds(30)));
  const RawReply reply = waits.read_reply();
  EXPECT_EQ(reply.status, 503);
  EXPECT_EQ(reply.body, "error: the server is shutting down");
  EXPECT_EQ(waits.read_some(), "");
  server.await_no_connections();
}

TEST(Shutdown, NobodyIsAcceptedWhileDraining) {
  http::ServerOptions options;
  options.linger_timeout = milliseconds(20);
  TestServer server(options);
  RawClient waits = server.connect(), idle = server.connect();
  EXPECT_EQ(idle.get("/hello").status, 200);
  waits.send("GET /wait HTTP/1.1\r\n\r\n");
  server.await_waiting(1);
  auto drained = std::async(std::launch::async, [&] { return server.server().drain(minutes(1)); });
  EXPECT_EQ(idle.read_some(), "");
  waits.send("GET /hello HTTP/1.1\r\n\r\n");  // sent ahead, too late
  server.release();
  EXPECT_EQ(waits.read_reply().body, "released");
  EXPECT_EQ(waits.read_to_end(), "");
  EXPECT_TRUE(drained.get());
}

TEST(Shutdown, StopEndsWhatADrainWaitsFor) {
  TestServer server;
  RawClient waits = server.connect();
  waits.send("GET /wait HTTP/1.1\r\n\r\n");
  server.await_waiting(1);
  auto drained = std::async(std::launch::async, [&] { return server.server().drain(minutes(10)); });
  server.server().stop();
  EXPECT_TRUE(drained.get());
  server.server().stop();
}

TEST(Shutdown, StopWithManyConnections) {
  for (int round = 0; round < 5; ++round) {
    TestServer server;
    std::vector<RawClient> clients;
    const char* const requests[] = {"GET /wait HTTP/1.1\r\n\r\n",
                                    "GET /flood HTTP/1.1\r\n\r\n",
                                    "GET /he",
                                    "POST /echo HTTP/1.1\r\nContent-Length: 9\r\n\r\n1",
                                    "",
                                    "GET /offload HTTP/1.1\r\n\r\n"};
    for (int i = 0; i < 120; ++i) {
      clients.push_back(server.connect());
      clients.back().send(requests[i % 6]);
    }
    if (round > 0) server.await_waiting(40);
    server.server().stop();
    EXPECT_EQ(server.server().counts().connections, 0);
    EXPECT_EQ(server.server().counts().requests, 0);
  }
}

TEST(Shutdown, ThePortIsFreeAtOnceAndBusyOnesAreNamed) {
  auto first = std::make_unique<TestServer>();
  http::ServerOptions options;
  options.port = first->port();
  RawClient client = first->connect();
  EXPECT_EQ(client.get("/hello").status, 200);
  try {
    TestServer second(options);
    ADD_FAILURE() << "two servers on one port";
  } catch (const std::exception& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find(std::to_string(options.port)), std::string::npos) << text;
    EXPECT_NE(text.find("another port"), std::string::npos) << text;
  }
  first.reset();
  TestServer second(options);
  EXPECT_EQ(second.connect().get("/hello").status, 200);
  options.address = "no.such.host.invalid";
  EXPECT_THROW(TestServer third(options), std::exception);
}

}  // namespace
}  // namespace lmdeploy::testing
