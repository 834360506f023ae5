// Clients that leave, sleep, or are many.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <thread>

#include "test_server.h"

namespace lmdeploy::testing {
namespace {

using std::chrono::milliseconds;

TEST(Clients, WhoLeavesEndsTheHandlerThatWaits) {
  TestServer server;
  RawClient closes = server.connect(), resets = server.connect(), half = server.connect();
  for (RawClient* client : {&closes, &resets, &half}) client->send("GET /wait HTTP/1.1\r\n\r\n");
  server.await_waiting(3);
  EXPECT_EQ(server.server().counts().requests, 3);
  closes.close();
  resets.reset();
  half.close_sending();
  server.await_gone(3);
  server.await_no_connections();
  EXPECT_EQ(server.server().counts().requests, 0);
  for (const http::AccessRecord& record : server.log()) EXPECT_EQ(record.status, 499);
}

TEST(Clients, WhoLeavesAfterSendingAheadIsNoticedToo) {
  TestServer server;
  RawClient client = server.connect();
  client.send("GET /wait HTTP/1.1\r\n\r\n");
  server.await_waiting(1);
  client.send("GET /hello HTTP/1.1\r\n\r\n");
  std::this_thread::sleep_for(milliseconds(20));  // time to see the one before the other
  client.close();
  server.await_gone(1);
}

TEST(Clients, WhoOnlySendsAheadIsNotTakenAsGone) {
  TestServer server;
  RawClient client = server.connect();
  client.send("GET /wait HTTP/1.1\r\n\r\n");
  server.await_waiting(1);
  client.send("GET /hello HTTP/1.1\r\n\r\n");
  std::this_thread::sleep_for(milliseconds(20));  // time to get it wrong
  server.release();
  EXPECT_EQ(client.read_reply().body, "released");
  EXPECT_EQ(client.read_reply().body, "hello");
}

/// `printf ... | nc`: the requests are complete, the client still reads.
TEST(Clients, WhoClosesItsSideGetsTheAnswers) {
  TestServer server;
  for (int i = 0; i < 50; ++i) {
    RawClient client = server.connect();
    client.send("GET /hello HTTP/1.1\r\n\r\nGET /offload HTTP/1.1\r\n\r\nGET /stream?n=2 HTTP/1.1\r\n\r\n");
    client.close_sending();
    EXPECT_EQ(client.read_reply().body, "hello");
    EXPECT_EQ(client.read_reply().status, 200);
    EXPECT_TRUE(client.read_reply().complete);
    EXPECT_EQ(client.read_some(), "");
  }
}

TEST(Clients, WhoNeverReadsCostsOnlyItself) {
  http::ServerOptions options;
  options.num_threads = 1;
  options.write_timeout = milliseconds(100);
  TestServer server(options);
  RawClient sleeper = server.connect(), other = server.connect();
  sleeper.send("GET /flood HTTP/1.1\r\n\r\n");
  server.await_waiting(1);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(other.get("/hello").status, 200);
  server.await_gone(1);  // after write_timeout
  EXPECT_EQ(other.get("/hello").status, 200);
}

/// Slow is not the same as gone: each part taken buys more time.
TEST(Clients, WhoReadsSlowlyGetsTheWholeAnswer) {
  http::ServerOptions options;
  options.write_timeout = milliseconds(1500);
  TestServer server(options);
  RawClient client = server.connect();
  const int small = 16 << 10;
  setsockopt(client.fd(), SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
  client.send("GET /big?bytes=8000000 HTTP/1.1\r\n\r\n");
  std::string got;
  for (int i = 0; i < 20; ++i) {
    got += client.read_some();
    std::this_thread::sleep_for(milliseconds(100));
  }
  while (got.size() < 8'000'000 + got.find("\r\n\r\n") + 4) {
    const std::string more = client.read_some();
    if (more.empty()) break;
    got += more;
  }
  EXPECT_EQ(got.size() - got.find("\r\n\r\n") - 4, 8'000'000u);
}

TEST(Clients, ResetsInTheMiddleOfAStreamLeaveNothing) {
  TestServer server;
  const int files = num_open_files();
  for (int i = 0; i < 100; ++i) {
    RawClient client = server.connect();
    client.send("GET /flood HTTP/1.1\r\n\r\n");
    client.read_some();
    client.reset();
  }
  server.await_gone(100);
  server.await_no_connections();
  EXPECT_EQ(num_open_files(), files);
  EXPECT_EQ(server.server().counts().requests, 0);
}

/// Sets the limit of file handles for its life.
class FileLimit {
 public:
  explicit FileLimit(rlim_t limit) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit now{limit, before_.rlim_max};
    ok_ = ::setrlimit(RLIMIT_NOFILE, &now) == 0;
  }
  ~FileLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  bool ok() const { return ok_; }

 private:
  rlimit before_{};
  bool ok_ = false;
};

TEST(Clients, TwoThousandIdle) {
  const FileLimit limit(4500);
  if (!limit.ok()) GTEST_SKIP() << "this machine does not allow 4500 file handles";
  TestServer server;
  const int files = num_open_files();
  std::vector<RawClient> idle;
  for (int i = 0; i < 2000; ++i) {
    idle.push_back(server.connect());
    idle.back().send("GET /hello HTTP/1.1\r\n\r\n");
  }
  for (RawClient& client : idle) ASSERT_EQ(client.read_reply().status, 200);
  EXPECT_EQ(server.server().counts().connections, 2000);
  EXPECT_EQ(server.connect().get("/hello").status, 200);
  for (RawClient& client : idle) ASSERT_EQ(client.get("/hello").status, 200);
  idle.clear();
  server.await_no_connections();
  EXPECT_EQ(num_open_files(), files);
}

TEST(Clients, WaitWhenNoFileHandleIsLeft) {
  TestServer server;
  std::vector<RawClient> clients;
  for (int i = 0; i < 5; ++i) clients.push_back(server.connect());
  for (RawClient& client : clients) EXPECT_EQ(client.get("/hello").status, 200);
  RawClient late = [&] {
    // The next handle goes to the client; the server has none for its end.
    const FileLimit limit(static_cast<rlim_t>(num_open_files()));
    RawClient client = server.connect();
    client.send("GET /hello HTTP/1.1\r\n\r\n");
    for (RawClient& other : clients) EXPECT_EQ(other.get("/hello").status, 200);
    return client;
  }();
  EXPECT_EQ(late.read_reply().body, "hello");
}

}  // namespace
}  // namespace lmdeploy::testing
