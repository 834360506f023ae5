// The HTTP boundary: bytes into a server's connection, into a client's, and into what both parse. Nothing may
// crash, hang or keep a connection.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "lmdeploy/core/error.h"
#include "lmdeploy/http/client.h"
#include "lmdeploy/http/server.h"
#include "lmdeploy/proxy/inquiry.h"
#include "lmdeploy/proxy/node.h"
#include "lmdeploy/proxy/passed_headers.h"

namespace {

using namespace lmdeploy;
using std::chrono::milliseconds;

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

void require(bool condition) {
  if (!condition) std::abort();
}

void send_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

/// Until the other end closes, which it must.
void read_to_end(int fd) {
  char bytes[65536];
  pollfd state{fd, POLLIN, 0};
  ssize_t size = 1;
  while (size > 0) {
    require(::poll(&state, 1, 20'000) > 0);
    size = ::recv(fd, bytes, sizeof(bytes), 0);
  }
}

http::Server& server() {
  static http::Server* const running = [] {
    http::ServerOptions options;
    options.num_threads = options.num_workers = 1;
    options.max_header_bytes = 4096;
    options.max_body_bytes = 65536;
    options.header_timeout = options.body_timeout = options.idle_timeout = milliseconds(2000);
    options.linger_timeout = milliseconds(20);
    return new http::Server(
        options,
        [](http::Exchange& exchange) -> http::Task<> {
          http::Response response;
          response.headers = proxy::headers_to_node(exchange.request(), false, "fuzz");
          response.body = exchange.request().body + exchange.request().url.path;
          co_await exchange.respond(std::move(response));
        },
        [](const http::Request&, int status, const std::string& message) {
          http::Response response;
          response.status = status;
          response.body = message;
          return response;
        });
  }();
  return *running;
}

void into_server(std::string_view bytes) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in address = loopback(server().port());
  require(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  send_all(fd, bytes);
  ::shutdown(fd, SHUT_WR);
  read_to_end(fd);
  ::close(fd);
}

/// A listening socket whose one connection gets `bytes` as the answer.
class Answering {
 public:
  Answering() : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = loopback(0);
    socklen_t size = sizeof(address);
    require(::bind(fd_, reinterpret_cast<const sockaddr*>(&address), size) == 0 && ::listen(fd_, 8) == 0);
    ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    port = ntohs(address.sin_port);
  }
  void answer(std::string_view bytes) const {
    const int connection = ::accept(fd_, nullptr, nullptr);
    send_all(connection, bytes);
    ::shutdown(connection, SHUT_WR);
    waiting_ = connection;
  }
  void close() const { ::close(waiting_); }
  int port = 0;

 private:
  int fd_;
  mutable int waiting_ = -1;
};

http::Task<> call(http::Client& client, int port) {
  http::Call call(client);
  const http::Url url{false, "127.0.0.1", port, ""};
  const http::ClientRequest request;
  try {
    co_await call.send(url, request);
    require(call.status() >= 200);
    proxy::headers_to_client(call.headers());
    co_await http::read_all(call, 1 << 20);
  } catch (const Error&) {
  }
}

void into_client(std::string_view bytes) {
  static const Answering* const listener = new Answering;
  http::ClientOptions options;
  options.max_head_bytes = 4096;
  options.answer_timeout = options.piece_timeout = milliseconds(2000);
  http::Client client(options);
  boost::asio::io_context io;
  boost::asio::co_spawn(io, call(client, listener->port), boost::asio::detached);
  io.poll();  // connects
  listener->answer(bytes.substr(0, 100'000));
  io.run();
  listener->close();
  client.close();
}

template <typename Parse>
void attempt(Parse parse) {
  try {
    parse();
  } catch (const Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  attempt([&] { http::parse_target(text); });
  attempt([&] {
    const http::Url url = http::parse_url(text);
    require(url.port > 0 && !url.host.empty() && url.path.find('\n') == std::string::npos);
  });
  attempt([&] { proxy::read_inquiry(text); });
  attempt([&] { proxy::parse_status(parse_json(text, "input"), "input"); });
  attempt([&] { proxy::parse_model_list(parse_json(text, "input"), "input"); });
  into_server(text);
  into_client(text);
  return 0;
}
