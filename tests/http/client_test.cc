// The client, against our server and against bytes that no server should send.
#include "lmdeploy/http/client.h"

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <thread>

#include "lmdeploy/core/expect_error.h"
#include "test_server.h"
#include "tls_client.h"

namespace lmdeploy::testing {
namespace {

namespace asio = boost::asio;
using http::Call;
using http::Client;
using http::ClientRequest;
using http::Task;
using std::chrono::milliseconds;

/// Runs coroutines until they have ended; what they throw comes out.
void run(asio::io_context& io, std::function<Task<>()> coroutine) {
  std::exception_ptr failure;
  asio::co_spawn(io, std::move(coroutine), [&](std::exception_ptr thrown) { failure = thrown; });
  io.restart();
  io.run();
  if (failure) std::rethrow_exception(failure);
}

struct Got {
  int status = 0;
  http::Headers headers;
  std::string body;
};

class ClientTest : public ::testing::Test {
 protected:
  ~ClientTest() override { client_->close(); }

  void set_options(http::ClientOptions options) {
    client_->close();
    client_ = std::make_unique<Client>(std::move(options));
  }

  Got fetch(const std::string& url, const std::string& target, const std::string& body = "",
            const std::string& method = "") {
    Got got;
    run(io_, [&]() -> Task<> {
      Call call(*client_);
      ClientRequest request;
      request.method = !method.empty() ? method : body.empty() ? "GET" : "POST";
      request.target = target;
      request.body = body;
      co_await call.send(http::parse_url(url), request);
      got.status = call.status();
      got.headers = call.headers();
      got.body = co_await http::read_all(call, 100 << 20);
    });
    return got;
  }

  /// One answer to one request; then the connection is closed.
  Got fetch_bytes(const std::string& bytes, const std::string& method = "GET") {
    RawListener server;
    std::thread thread([&] {
      RawClient connection = server.accept();
      connection.read_head();
      connection.send(bytes);
    });
    try {
      const Got got = fetch(server.url(), "/", "", method);
      thread.join();
      return got;
    } catch (...) {
      thread.join();
      throw;
    }
  }

  void expect_failure(const std::string& bytes, const std::vector<std::string>& words) {
    expect_error(ErrorCode::kIo, words, [&] { fetch_bytes(bytes); });
  }

  asio::io_context io_;
  std::unique_ptr<Client> client_ = std::make_unique<Client>();
};

std::string url_of(const TestServer& server) { return "http://127.0.0.1:" + std::to_string(server.port()); }

TEST(Urls, Parts) {
  const http::Url url = http::parse_url("https://[::1]:8000/a/b//");
  EXPECT_TRUE(url.tls);
  EXPECT_EQ(url.host, "::1");
  EXPECT_EQ(url.port, 8000);
  EXPECT_EQ(url.path, "/a/b");
  EXPECT_EQ(http::origin(url), "https://[::1]:8000");
  EXPECT_EQ(http::parse_url("HTTP://h").port, 80);
  EXPECT_EQ(http::parse_url("https://h/").port, 443);
  EXPECT_EQ(http::parse_url("https://h/").path, "");
}

TEST(Urls, BadInput) {
  for (const char* url : {"", "host:80", "ftp://h", "http://", "http://:80", "http://h:0", "http://h:65536",
                          "http://h:x", "http://h:", "http://u:p@h", "http://h/?a", "http://h/#a",
                          "http://h/ b", "http://h\r\nX: y", "http://[::1", "http://a]b"})
    expect_error(ErrorCode::kInvalidArgument, {"URL", "expected http://HOST:PORT"},
                 [&] { http::parse_url(url); });
}

TEST_F(ClientTest, KeepsItsConnection) {
  TestServer server;
  EXPECT_EQ(fetch(url_of(server), "/hello").body, "hello");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(fetch(url_of(server), "/echo", "a body").body, "a body");
  EXPECT_EQ(fetch(url_of(server), "/stream?n=3").body, "piece 0\npiece 1\npiece 2\n");
  EXPECT_EQ(fetch(url_of(server), "/hello", "", "HEAD").body, "");
  EXPECT_EQ(fetch(url_of(server), "/none?status=204").status, 204);
  EXPECT_EQ(fetch(url_of(server) + "/hello/", "").body, "hello");
  EXPECT_EQ(server.server().counts().connections, 1);
  EXPECT_EQ(client_->num_kept(), 1u);
  EXPECT_EQ(fetch(url_of(server), "/echo", std::string(5'000'000, 'x')).body, std::string(5'000'000, 'x'));
  client_->close();
  server.await_no_connections();
}

TEST_F(ClientTest, AConnectionThatTheServerClosedIsReplaced) {
  http::ServerOptions options;
  options.idle_timeout = milliseconds(10);
  TestServer server(options);
  EXPECT_EQ(fetch(url_of(server), "/hello").body, "hello");
  server.await_no_connections();
  EXPECT_EQ(fetch(url_of(server), "/hello").body, "hello");
  server.await_no_connections();
  client_->close_old();
  EXPECT_EQ(client_->num_kept(), 0u);
}

/// The same, noticed only after the request was sent.
TEST_F(ClientTest, OrBreaksWhenItIsUsed) {
  RawListener server;
  std::jthread thread([&] {
    {
      RawClient first = server.accept();
      first.read_head();
      first.send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1");
      first.read_head();
    }
    RawClient second = server.accept();
    second.read_head();
    second.send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n2");
  });
  EXPECT_EQ(fetch(server.url(), "/").body, "1");
  EXPECT_EQ(fetch(server.url(), "/").body, "2");
  thread.join();
}

TEST_F(ClientTest, FramesOfAllKinds) {
  EXPECT_EQ(fetch_bytes("HTTP/1.1 200 OK\r\n\r\nto the end").body, "to the end");
  EXPECT_EQ(fetch_bytes("HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabcdef").body, "abc");
  EXPECT_EQ(
      fetch_bytes("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nA: b\r\n\r\n")
          .body,
      "abc");
  EXPECT_EQ(fetch_bytes("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nA: b\r\n\r\nHTTP/1.1 201 "
                        "OK\r\nContent-Length: 0\r\n\r\n")
                .status,
            201);
  EXPECT_EQ(fetch_bytes("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "HEAD").body, "");
  EXPECT_EQ(fetch_bytes("HTTP/1.1 304 No\r\n\r\nx").body, "");
}

TEST_F(ClientTest, BadInput_Answers) {
  expect_failure("", {"http://127.0.0.1:", "reading the answer's head"});
  expect_failure("HTTP/1.1 200 OK\r\nContent-Le", {"reading the answer's head", "partial"});
  expect_failure("garbage\r\n\r\n", {"reading the answer's head"});
  expect_failure("HTTP/1.1 99 No\r\n\r\n", {"reading the answer's head"});
  expect_failure("HTTP/1.1 101 Switching Protocols\r\n\r\n", {"another protocol"});
  expect_failure("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc", {"reading the answer", "partial"});
  expect_failure("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", {"Content-Length"});
  expect_failure("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
                 {"reading the answer", "partial"});
  expect_failure("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
                 {"reading the answer", "chunk"});
  expect_failure("HTTP/1.1 200 OK\r\nA: " + std::string(100'000, 'x'),
                 {"reading the answer's head", "limit"});
  std::string endless = "HTTP/1.1 200 OK\r\n";
  for (int i = 0; i < 20'000; ++i) endless += "A: b\r\n";
  expect_failure(endless, {"reading the answer's head", "limit"});
}

TEST_F(ClientTest, ServersThatAreNotThere) {
  int free_port = 0;
  free_port = RawListener().port();
  const std::string url = "http://127.0.0.1:" + std::to_string(free_port);
  expect_error(ErrorCode::kIo, {url, "connecting", "refused"}, [&] { fetch(url, "/"); });
  expect_error(ErrorCode::kIo, {"http://no.such.host.invalid:80", "looking the name up"},
               [&] { fetch("http://no.such.host.invalid", "/"); });
}

TEST_F(ClientTest, EveryWaitHasItsTime) {
  http::ClientOptions options;
  options.answer_timeout = options.head_timeout = options.piece_timeout = options.write_timeout =
      milliseconds(30);
  set_options(options);
  const auto expect_late = [&](const std::string& bytes, const char* doing, const std::string& body = "") {
    RawListener server;
    expect_error(ErrorCode::kIo, {server.url(), doing, "took too long"}, [&] {
      std::optional<RawClient> connection;
      std::thread thread([&] {
        connection.emplace(server.accept());
        connection->send(bytes);
      });
      try {
        fetch(server.url(), "/", body);
      } catch (...) {
        thread.join();
        throw;
      }
      thread.join();
    });
  };
  expect_late("", "head");
  expect_late("HTTP/1.1 200 OK\r\nA", "head");
  expect_late("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\na", "reading the answer");
  expect_late("", "sending the request", std::string(50'000'000, 'x'));
}

TEST_F(ClientTest, CancelEndsWhatWaits) {
  TestServer server;
  const auto cancelled = [&](const std::string& url, const std::string& target,
                             const std::function<void()>& when) {
    expect_error(ErrorCode::kIo, {"cancelled"}, [&] {
      run(io_, [&]() -> Task<> {
        Call call(*client_);
        std::thread other([&] {
          when();
          asio::post(io_, [&] { call.cancel(); });
        });
        std::exception_ptr failure;
        try {
          ClientRequest request;
          request.target = target;
          co_await call.send(http::parse_url(url), request);
          std::string piece;
          bool more = true;
          while (more) more = co_await call.read(piece);
        } catch (...) {
          failure = std::current_exception();
        }
        other.join();
        if (failure) std::rethrow_exception(failure);
      });
    });
  };
  cancelled(url_of(server), "/wait", [&] { server.await_waiting(1); });
  server.await_gone(1);
  cancelled(url_of(server), "/flood", [&] { server.await_waiting(2); });
  server.await_gone(2);
  server.await_no_connections();
}

TEST_F(ClientTest, AnAnswerThatIsNotReadClosesTheConnection) {
  TestServer server;
  run(io_, [&]() -> Task<> {
    Call call(*client_);
    ClientRequest request;
    request.target = "/flood";
    co_await call.send(http::parse_url(url_of(server)), request);
  });
  server.await_gone(1);
  EXPECT_EQ(client_->num_kept(), 0u);
}

TEST_F(ClientTest, Tls) {
  const SelfSigned files = make_self_signed("client");
  http::ServerOptions server_options;
  server_options.tls = http::TlsFiles{files.certificate, files.key};
  TestServer server(server_options);
  const std::string port = std::to_string(server.port());
  http::ClientOptions options;
  options.trusted = files.certificate;
  set_options(options);
  for (const char* host : {"https://localhost:", "https://127.0.0.1:"}) {
    EXPECT_EQ(fetch(host + port, "/hello").body, "hello");
    EXPECT_EQ(fetch(host + port, "/echo", "body").body, "body");
  }
  EXPECT_EQ(client_->num_kept(), 2u);
  set_options({});  // does not know the certificate
  expect_error(ErrorCode::kIo, {"https://localhost:" + port, "TLS handshake", "certificate"},
               [&] { fetch("https://localhost:" + port, "/hello"); });
}

TEST_F(ClientTest, NothingIsSmuggledIntoARequest) {
  RawListener server;
  std::string head;
  std::jthread thread([&] {
    RawClient connection = server.accept();
    head = connection.read_head();
    connection.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  });
  run(io_, [&]() -> Task<> {
    Call call(*client_);
    ClientRequest request;
    request.headers.add("X-Good", "yes");
    request.headers.add("X-Bad", "a\r\nX-Smuggled: b");
    co_await call.send(http::parse_url(server.url()), request);
  });
  thread.join();
  EXPECT_EQ(head,
            "GET / HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(server.port()) + "\r\nX-Good: yes\r\n\r\n");
}

}  // namespace
}  // namespace lmdeploy::testing
