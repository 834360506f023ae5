#include "fake_node.h"

#include "lmdeploy/core/error.h"

namespace lmdeploy::testing {
namespace {

using http::Exchange;
using http::Response;
using http::Task;

Response reply(std::string body, int status = 200) {
  Response response;
  response.status = status;
  response.body = std::move(body);
  return response;
}

}  // namespace

FakeNode::FakeNode(FakeNodeOptions options) : options_(std::move(options)) { start(0); }

FakeNode::~FakeNode() { server_->stop(); }

void FakeNode::start(int port) {
  http::ServerOptions options;
  options.port = port;
  options.num_threads = 1;
  server_ = std::make_unique<http::Server>(
      options, [this](Exchange& exchange) { return handle(exchange); },
      [](const http::Request&, int status, const std::string& message) { return reply(message, status); });
  port_ = server_->port();
}

void FakeNode::kill() { server_->stop(); }

void FakeNode::restart() {
  server_->stop();
  start(port_);
}

http::Request FakeNode::last_request() const {
  const std::lock_guard lock(mutex_);
  return last_request_;
}

void FakeNode::let_go() {
  const std::lock_guard lock(mutex_);
  let_go_ = true;
  for (const http::Signal& signal : held_) signal.set();
  held_.clear();
}

void FakeNode::hold_after(int chunks) {
  const std::lock_guard lock(mutex_);
  let_go_ = false;
  hold_after_ = chunks;
}

std::string FakeNode::chunk(int index) {
  return "data: {\"text\": \"\xe4\xbd\xa0\xe5\xa5\xbd " + std::to_string(index) + "\"}\n\n";
}

Task<> FakeNode::hold(Exchange& exchange) {
  const http::Signal signal;
  {
    const std::lock_guard lock(mutex_);
    if (let_go_) co_return;
    held_.push_back(signal);
  }
  try {
    co_await exchange.wait(signal);
  } catch (const http::ClientGone&) {
    ++num_gone_;
    throw;
  }
}

Task<> FakeNode::stream(Exchange& exchange) {
  Response head;
  head.content_type = "text/event-stream";
  head.headers.add("X-Accel-Buffering", "no");
  if (hold_after_ == 0) co_await hold(exchange);
  co_await exchange.begin_stream(head);
  for (int i = 0; i < options_.chunks; ++i) {
    if (i == break_after_) throw std::runtime_error("broken on purpose");
    if (i == hold_after_ && i > 0) co_await hold(exchange);
    co_await exchange.write(chunk(i));
  }
  co_await exchange.write("data: [DONE]\n\n");
  co_await exchange.finish();
}

Task<> FakeNode::handle(Exchange& exchange) {
  const http::Request& request = exchange.request();
  const std::string& path = request.url.path;
  if (path == "/v1/models") {
    std::string cards;
    for (const std::string& model : options_.models)
      cards += (cards.empty() ? "" : ",") + ("{\"id\":\"" + model + "\"}");
    co_await exchange.respond(reply("{\"object\":\"list\",\"data\":[" + cards + "]}"));
    co_return;
  }
  if (path == "/terminate") ++num_terminated_;
  if (path == "/health" || path == "/terminate") {
    co_await exchange.respond(reply("", status_));
    co_return;
  }
  ++num_requests_;
  {
    const std::lock_guard lock(mutex_);
    last_request_ = request;
  }
  if (options_.milliseconds > 0) {
    const http::Signal never;
    co_await exchange.wait(never, std::chrono::milliseconds(options_.milliseconds));
  }
  if (status_ != 200) {
    Response refusal = reply("{\"error\": \"the node's own words\"}", status_);
    refusal.headers.add("Retry-After", "7");
    co_await exchange.respond(refusal);
  } else if (request.body.find("\"stream\": true") != std::string::npos) {
    co_await stream(exchange);
  } else {
    if (hold_after_ == 0) co_await hold(exchange);
    co_await exchange.respond(reply("{\"node\": \"" + url() + "\"}"));
  }
}

RawNode::RawNode(std::function<void(RawClient& connection)> serve)
    : thread_([this, serve = std::move(serve)] {
        while (true) {
          RawClient connection = listener_.accept();
          if (done_) return;
          serve(connection);
        }
      }) {}

RawNode::~RawNode() {
  done_ = true;
  RawClient wake(listener_.port());
  thread_.join();
}

}  // namespace lmdeploy::testing
