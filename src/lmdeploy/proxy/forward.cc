#include "lmdeploy/proxy/forward.h"

#include <boost/json.hpp>
#include <charconv>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/log.h"
#include "lmdeploy/proxy/inquiry.h"
#include "lmdeploy/proxy/passed_headers.h"
#include "lmdeploy/proxy/replies.h"
#include "lmdeploy/proxy/stream_end.h"

namespace lmdeploy::proxy {
namespace {

using http::Exchange;
using http::Response;
using http::Task;

constexpr size_t kLongBody = 64 << 10;    // parsed elsewhere
constexpr size_t kWholeAnswer = 1 << 20;  // shorter answers are passed on as a whole
constexpr int kMaxBroken = 3;             // nodes that one request may break

/// While it lives, a client that goes away and the end of the server end the call.
class CancelWhenGone {
 public:
  CancelWhenGone(Exchange& exchange, http::Call& call) : exchange_(exchange) {
    exchange.set_on_gone([&call] { call.cancel(); });
    if (exchange.client_gone() || exchange.server_ends()) call.cancel();
  }
  ~CancelWhenGone() { exchange_.set_on_gone(nullptr); }
  CancelWhenGone(const CancelWhenGone&) = delete;
  CancelWhenGone& operator=(const CancelWhenGone&) = delete;

 private:
  Exchange& exchange_;
};

size_t length_of(const http::Headers& headers) {
  size_t length = SIZE_MAX;
  if (const std::string* text = headers.find("Content-Length"))
    std::from_chars(text->data(), text->data() + text->size(), length);
  return length;
}

Response head_of(const http::Call& call) {
  Response response;
  response.status = call.status();
  response.headers = headers_to_client(call.headers());
  const std::string* type = call.headers().find("Content-Type");
  response.content_type = type == nullptr ? "" : *type;
  return response;
}

bool is_event_stream(const http::Call& call) {
  const std::string* type = call.headers().find("Content-Type");
  return type != nullptr && type->rfind("text/event-stream", 0) == 0;
}

/// One request at one node after another.
class Forwarding {
 public:
  Forwarding(Exchange& exchange, ForwardContext& context, Inquiry inquiry)
      : exchange_(exchange), context_(context), inquiry_(std::move(inquiry)) {
    const http::Request& request = exchange.request();
    request_.method = request.method;
    request_.target = request.target;
    request_.headers = headers_to_node(request, context.tls, context.name);
    request_.body = request.body;
  }

  Task<> run() {
    bool done = false;
    while (!done && num_broken_ < kMaxBroken) {
      const auto dispatch = context_.table.dispatch(inquiry_, tried_);
      if (!dispatch) break;
      if (!tried_.empty()) ++context_.num_retries;
      tried_.insert(dispatch->id());
      done = co_await attempt(*dispatch);
    }
    if (!done) co_await give_up();
  }

 private:
  /// Whether the exchange has been answered.
  Task<bool> attempt(NodeTable::Dispatch& dispatch) {
    http::Call call(context_.client);
    const CancelWhenGone guard(exchange_, call);
    std::string begin;
    bool more = false;
    std::string failure;
    try {
      co_await call.send(dispatch.where(), request_);
      more = co_await read_begin(call, begin);
    } catch (const Error& error) {
      failure = error.what();
    }
    if (exchange_.client_gone()) throw http::ClientGone();
    if (exchange_.server_ends() && !failure.empty()) throw http::ServerEnds();
    if (!failure.empty()) co_return note_failure(dispatch, call, failure);
    if (call.status() == 503 || call.status() == 508) {
      busy_ = head_of(call);
      busy_->body = begin;
      if (!more) co_return false;
    }
    co_await pass_on(dispatch, call, std::move(begin), more);
    co_return true;
  }

  /// The first bytes; all of an answer that is short. Whether more may come.
  Task<bool> read_begin(http::Call& call, std::string& begin) {
    const bool whole = length_of(call.headers()) <= kWholeAnswer;
    bool more = co_await call.read(begin);
    std::string piece;
    while (whole && more) {
      more = co_await call.read(piece);
      begin += piece;
    }
    co_return more;
  }

  bool note_failure(NodeTable::Dispatch& dispatch, const http::Call& call, const std::string& failure) {
    LMD_LOG(kInfo, "request ", exchange_.request().id, ": ", failure);
    if (call.timed_out()) {  // it is at work: another node would not be faster
      num_broken_ = kMaxBroken;
      too_slow_ = true;
      return false;
    }
    if (call.sent()) ++num_broken_;
    dispatch.fail();
    return false;
  }

  Task<> pass_on(NodeTable::Dispatch& dispatch, http::Call& call, std::string begin, bool more) {
    Response head = head_of(call);
    if (!more) {
      head.body = std::move(begin);
      if (call.status() < 500) dispatch.finish();
      co_await exchange_.respond(std::move(head));
      co_return;
    }
    co_await exchange_.begin_stream(std::move(head));
    std::string piece = std::move(begin), failure;
    StreamEnd end(exchange_.request());
    const bool events = is_event_stream(call);
    while (more) {
      co_await exchange_.write(piece);
      if (events) end.see(piece);
      try {
        more = co_await call.read(piece);
      } catch (const Error& error) {
        failure = error.what();
        more = false;
      }
    }
    if (exchange_.client_gone() && !failure.empty()) throw http::ClientGone();
    if (failure.empty()) {
      dispatch.finish();
      co_await exchange_.finish();
      co_return;
    }
    co_await break_off(dispatch, call, failure, end);
  }

  /// An event stream ends with an event that says so; of all else the missing end does.
  Task<> break_off(NodeTable::Dispatch& dispatch, const http::Call& call, const std::string& failure,
                   const StreamEnd& end) {
    const bool own_end = exchange_.server_ends();
    ++context_.num_broken;
    if (!call.timed_out() && !own_end) dispatch.fail();
    if (!is_event_stream(call)) throw Error(ErrorCode::kIo, failure);
    LMD_LOG(kWarning, "request ", exchange_.request().id, ": a stream was broken off: ", failure);
    const std::string last = own_end ? end.broken(503, http::ServerEnds().what())
                                     : end.broken(502, "the node broke off its answer");
    co_await exchange_.write(last);
    co_await exchange_.finish();
  }

  Task<> give_up() {
    const http::Request& request = exchange_.request();
    if (busy_) {
      co_await exchange_.respond(std::move(*busy_));
    } else if (tried_.empty()) {
      co_await exchange_.respond(node_error_reply(
          request, 404, kModelGone, cat("The model `", inquiry_.model, "` does not exist any more.")));
    } else if (too_slow_) {
      co_await exchange_.respond(
          node_error_reply(request, 504, kNodeFailed, "the node did not answer in time"));
    } else {
      co_await exchange_.respond(node_error_reply(
          request, 503, kNodeFailed, cat("no node for the model `", inquiry_.model, "` answers")));
    }
  }

  Exchange& exchange_;
  ForwardContext& context_;
  const Inquiry inquiry_;
  http::ClientRequest request_;
  std::set<uint64_t> tried_;
  int num_broken_ = 0;
  bool too_slow_ = false;
  std::optional<Response> busy_;  // the last node's 503 or 508
};

std::string joined(const std::set<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "none" : text;
}

}  // namespace

Task<> forward(Exchange& exchange, ForwardContext& context) {
  Inquiry inquiry;
  const http::Request& request = exchange.request();
  const std::string& body = request.body;
  if (body.size() <= kLongBody)
    inquiry = read_inquiry(body);
  else
    co_await exchange.offload([&] { inquiry = read_inquiry(body); });
  const std::set<std::string> models = context.table.models();
  if (inquiry.model.empty() && models.size() == 1) inquiry.model = *models.begin();
  if (models.empty()) {
    co_await exchange.respond(node_error_reply(request, 503, kNodeFailed, "no node has been added yet"));
    co_return;
  }
  if (inquiry.model.empty()) {
    co_await exchange.respond(error_reply(
        request, 400, cat("\"model\" is missing; the nodes serve: ", joined(models)), "", "model"));
    co_return;
  }
  if (models.count(inquiry.model) == 0) {
    co_await exchange.respond(
        error_reply(request, 404,
                    cat("The model `", inquiry.model, "` does not exist. The nodes serve: ", joined(models)),
                    "model_not_found", "model"));
    co_return;
  }
  Forwarding forwarding(exchange, context, std::move(inquiry));
  co_await forwarding.run();
}

}  // namespace lmdeploy::proxy
