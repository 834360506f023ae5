// Handlers that break, and work done elsewhere.
#include <gtest/gtest.h>

#include "test_server.h"

namespace lmdeploy::testing {
namespace {

TEST(Handlers, WhatTheyThrowBeforeAnAnswerIsTheAnswer) {
  TestServer server;
  RawClient client = server.connect();
  const auto expect = [&](const char* path, int status, const char* body) {
    const RawReply reply = client.get(path);
    EXPECT_EQ(reply.status, status) << path;
    EXPECT_EQ(reply.body, body) << path;
  };
  expect("/throw", 500, "error: the handler broke");
  expect("/bad_data", 400, "error: the data is bad");
  expect("/offload_throws", 500, "error: the work broke");
  expect("/unanswered", 500, "error: there is no answer");
  expect("/hello", 200, "hello");  // all on one connection
}

/// A client must see that the answer is not whole.
TEST(Handlers, AnAnswerThatBreaksOffEndsTheConnection) {
  TestServer server;
  for (const char* path : {"/throw_late", "/unfinished"}) {
    RawClient client = server.connect();
    const RawReply reply = client.get(path);
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(reply.body, "part");
    EXPECT_FALSE(reply.complete) << path;
    EXPECT_EQ(client.read_some(), "");
  }
  RawClient client = server.connect();
  EXPECT_EQ(client.get("/throw_after").body, "whole");
  EXPECT_EQ(client.read_some(), "");
}

TEST(Handlers, OffloadRunsOnAnotherThread) {
  TestServer server;
  EXPECT_EQ(server.connect().get("/offload").body, "elsewhere");
}

}  // namespace
}  // namespace lmdeploy::testing
