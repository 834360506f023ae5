#include "test_server.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>

#include "lmdeploy/core/error.h"

namespace lmdeploy::testing {
namespace {

using http::Exchange;
using http::Response;
using http::Task;

void poll_until(const char* what, const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) {
      ADD_FAILURE() << "never came: " << what;
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

Response text(std::string body) {
  Response response;
  response.content_type = "text/plain";
  response.body = std::move(body);
  return response;
}

Response error_response(const Request&, int status, const std::string& message) {
  Response response = text("error: " + message);
  response.status = status;
  return response;
}

size_t number(const http::Request& request, const char* name) {
  const std::string* value = request.url.find(name);
  return value == nullptr ? 0 : std::stoul(*value);
}

Task<> begin_and(Exchange& exchange, std::function<void()> then) {
  co_await exchange.begin_stream(text(""));
  co_await exchange.write("part");
  then();
}

Response inject() {
  Response response = text("body");
  response.content_type = "text/plain\r\nX-One: smuggled";
  response.headers.add("X-Mine", "a\nX-Two: smuggled");
  response.headers.add("X-Three\r\nX-Four", "smuggled");
  return response;
}

}  // namespace

TestServer::TestServer(http::ServerOptions options)
    : server_(std::make_unique<http::Server>(
          std::move(options), [this](Exchange& exchange) { return handle(exchange); }, error_response,
          [this](const http::AccessRecord& record) {
            const std::lock_guard lock(mutex_);
            log_.push_back(record);
          })) {}

TestServer::~TestServer() { server_->stop(); }

std::vector<http::AccessRecord> TestServer::log() const {
  const std::lock_guard lock(mutex_);
  return log_;
}

void TestServer::release() {
  const std::lock_guard lock(mutex_);
  released_ = true;
  for (const http::Signal& signal : signals_) signal.set();
}

void TestServer::await(const std::atomic<int>& value, int count) const {
  poll_until("handlers", [&] { return value >= count; });
}

void TestServer::await_no_connections() const {
  poll_until("the end of all connections", [&] { return server_->counts().connections == 0; });
}

Task<> TestServer::wait(Exchange& exchange) {
  const http::Signal signal;
  {
    const std::lock_guard lock(mutex_);
    signals_.push_back(signal);
    if (released_) signal.set();
  }
  ++waiting_;
  try {
    co_await exchange.wait(signal);
  } catch (const http::ClientGone&) {
    ++gone_;
    throw;
  }
  co_await exchange.respond(text("released"));
}

Task<> TestServer::stream(Exchange& exchange) {
  co_await exchange.begin_stream(text(""));
  for (size_t i = 0; i < number(exchange.request(), "n"); ++i)
    co_await exchange.write("piece " + std::to_string(i) + "\n");
  co_await exchange.finish();
}

Task<> TestServer::handle(Exchange& exchange) {
  const http::Request& request = exchange.request();
  const std::string& path = request.url.path;
  if (path == "/hello") co_await exchange.respond(text("hello"));
  if (path == "/echo") co_await exchange.respond(text(request.body));
  if (path == "/stream") co_await stream(exchange);
  if (path == "/big") co_await exchange.respond(text(std::string(number(request, "bytes"), 'b')));
  if (path == "/wait") co_await wait(exchange);
  if (path == "/none") {
    Response none = text("a body that must not be sent");
    none.status = static_cast<int>(number(request, "status"));
    co_await exchange.respond(none);
  }
  if (path == "/flood") {
    co_await exchange.begin_stream(text(""));
    const std::string piece(64 << 10, 'f');
    ++waiting_;
    try {
      while (true) co_await exchange.write(piece);
    } catch (const http::ClientGone&) {
      ++gone_;
      throw;
    }
  }
  if (path == "/offload") {
    const auto here = std::this_thread::get_id();
    bool elsewhere = false;
    co_await exchange.offload([&] { elsewhere = std::this_thread::get_id() != here; });
    co_await exchange.respond(text(elsewhere ? "elsewhere" : "here"));
  }
  if (path == "/throw") throw std::runtime_error("the handler broke");
  if (path == "/bad_data") throw Error(ErrorCode::kInvalidData, "the data is bad");
  if (path == "/throw_late") co_await begin_and(exchange, [] { throw std::runtime_error("broke late"); });
  if (path == "/throw_after") {
    co_await exchange.respond(text("whole"));
    throw std::runtime_error("broke after the answer");
  }
  if (path == "/unfinished") co_await begin_and(exchange, [] {});
  if (path == "/offload_throws")
    co_await exchange.offload([] { throw std::runtime_error("the work broke"); });
  if (path == "/inject") co_await exchange.respond(inject());
  if (!exchange.answered() && path == "/missing")
    co_await exchange.respond(error_response(exchange.request(), 404, "no such path"));
}

}  // namespace lmdeploy::testing
