// A connection over a Beast stream: reads requests one after another, runs the handler, writes the answers.
// Two files compile it, one for each kind of stream.
#pragma once

#include <poll.h>

#include <array>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/stream_traits.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/log.h"
#include "lmdeploy/http/connection.h"
#include "lmdeploy/http/request_id.h"
#include "lmdeploy/http/response_head.h"

namespace lmdeploy::http {

namespace asio = boost::asio;
namespace beast = boost::beast;

using TcpStream = beast::basic_stream<asio::ip::tcp, asio::any_io_executor>;

template <typename Stream>
class StreamConnection final : public Connection,
                               public Exchange,
                               public std::enable_shared_from_this<StreamConnection<Stream>> {
 public:
  StreamConnection(Stream stream, ServerContext& context)
      : context_(context), stream_(std::move(stream)), watch_timer_(stream_.get_executor()) {
    boost::system::error_code ignored;
    const auto peer = tcp().socket().remote_endpoint(ignored);
    client_ = cat(peer.address().to_string(), ":", peer.port());
  }
  ~StreamConnection() override { context_.connections.remove(this); }

  /// After a handshake, if the stream needs one.
  Task<> serve() {
    while (co_await read_request()) {
      co_await handle_request();
      if (!keep_alive_ || client_gone_ || context_.draining) break;
    }
    co_await close();
  }

  void close_when_idle() override {
    on_strand([](StreamConnection& self) {
      if (self.idle_) self.close_socket();
    });
  }
  void abort() override {
    on_strand([](StreamConnection& self) {
      self.close_socket();
      self.client_went();
    });
  }

  const Request& request() const override { return request_; }
  asio::any_io_executor executor() const override { return const_cast<Stream&>(stream_).get_executor(); }
  bool answered() const override { return answered_; }
  bool client_gone() const override { return client_gone_; }
  void set_on_gone(std::function<void()> on_gone) override { on_gone_ = std::move(on_gone); }

  Task<> respond(Response response) override {
    LMD_CHECK(!answered_);
    begin_answer(response.status);
    std::string bytes =
        response_head(response, request_, context_.options.cors, {Framing::kLength, keep_alive_});
    if (request_.method != "HEAD") {
      bytes += response.body;
      record_.bytes = static_cast<int64_t>(response.body.size());
    }
    co_await send(bytes);
  }

  Task<> begin_stream(Response head) override {
    LMD_CHECK(!answered_);
    begin_answer(head.status);
    framing_ = version_ >= 11 ? Framing::kChunked : Framing::kUntilClose;
    if (framing_ == Framing::kUntilClose) keep_alive_ = false;
    co_await send(response_head(head, request_, context_.options.cors, {framing_, keep_alive_}));
  }

  Task<> write(std::string_view piece) override {
    if (piece.empty() || request_.method == "HEAD") co_return;  // an empty chunk would be the end
    record_.bytes += static_cast<int64_t>(piece.size());
    if (framing_ == Framing::kUntilClose) {
      co_await send(piece);
      co_return;
    }
    std::array<char, 24> size{};
    const int digits = std::snprintf(size.data(), size.size(), "%zx\r\n", piece.size());
    std::string chunk;
    chunk.reserve(piece.size() + static_cast<size_t>(digits) + 2);
    chunk.append(size.data(), static_cast<size_t>(digits)).append(piece).append("\r\n");
    co_await send(chunk);
  }

  Task<> finish() override {
    if (framing_ == Framing::kChunked && request_.method != "HEAD") co_await send("0\r\n\r\n");
  }

  Task<> offload(std::function<void()> work) override {
    co_await asio::co_spawn(
        context_.workers->get_executor(),
        [&work]() -> Task<> {
          work();
          co_return;
        },
        asio::use_awaitable);
  }

 private:
  TcpStream& tcp() { return beast::get_lowest_layer(stream_); }

  template <typename Action>
  void on_strand(Action action) {
    asio::dispatch(stream_.get_executor(), [self = this->shared_from_this(), action] { action(*self); });
  }

  void close_socket() {
    boost::system::error_code ignored;
    tcp().socket().close(ignored);
  }

  /// false: no more requests come. What is malformed has been answered then.
  Task<bool> read_request() {
    parser_.emplace();
    parser_->header_limit(static_cast<uint32_t>(context_.options.max_header_bytes));
    parser_->body_limit(context_.options.max_body_bytes);
    request_ = {};
    framing_ = Framing::kLength;
    answered_ = false;
    keep_alive_ = false;
    if (!co_await wait_for_first_byte()) co_return false;
    boost::system::error_code error;
    tcp().expires_after(context_.options.header_timeout);
    co_await beast::http::async_read_header(stream_, buffer_, *parser_,
                                            asio::redirect_error(asio::use_awaitable, error));
    start_ = std::chrono::steady_clock::now();
    record_ = {client_, {}, {}, {}, 499, 0, 0};
    if (!error) {
      take_head();
      error = co_await read_body();
    }
    if (error) co_await refuse(error);
    co_return !error;
  }

  Task<bool> wait_for_first_byte() {
    if (buffer_.size() > 0) co_return true;
    idle_ = true;
    boost::system::error_code error;
    tcp().expires_after(context_.options.idle_timeout);
    const size_t size = co_await stream_.async_read_some(buffer_.prepare(8192),
                                                         asio::redirect_error(asio::use_awaitable, error));
    idle_ = false;
    if (error) co_return false;
    buffer_.commit(size);
    co_return true;
  }

  void take_head() {
    const auto& head = parser_->get();
    version_ = static_cast<int>(head.version());
    request_.method = std::string(head.method_string());
    request_.target = std::string(head.target());
    request_.client = client_;
    for (const auto& field : head)
      request_.headers.add(std::string(field.name_string()), std::string(field.value()));
    request_.id = request_id(request_.headers);
    record_.id = request_.id;
    record_.method = request_.method;
    record_.target = request_.target;
  }

  Task<boost::system::error_code> read_body() {
    boost::system::error_code error;
    if (const std::string* expect = request_.headers.find("Expect");
        expect != nullptr && !parser_->is_done()) {
      if (!equals_ignoring_case(*expect, "100-continue")) co_return beast::http::error::bad_value;
      co_await send("HTTP/1.1 100 Continue\r\n\r\n");
    }
    while (!error && !parser_->is_done()) {
      tcp().expires_after(context_.options.body_timeout);
      co_await beast::http::async_read_some(stream_, buffer_, *parser_,
                                            asio::redirect_error(asio::use_awaitable, error));
    }
    if (error) co_return error;
    keep_alive_ = parser_->keep_alive();
    request_.body = std::move(parser_->get().body());
    co_return error;
  }

  /// Answers what could not be read, when there is somebody to read it.
  Task<> refuse(boost::system::error_code error) {
    namespace http = beast::http;
    int status = 400;
    std::string message = cat("malformed HTTP request: ", error.message());
    if (error == http::error::end_of_stream || error == asio::error::eof ||
        error == asio::error::connection_reset || error == asio::error::operation_aborted ||
        error == http::error::partial_message)
      co_return;
    if (error == http::error::header_limit) {
      status = 431;
      message = cat("the request's headers have more than ", context_.options.max_header_bytes, " bytes");
    } else if (error == http::error::body_limit) {
      status = 413;
      message = cat("the request's body has more than ", context_.options.max_body_bytes,
                    " bytes, the most this server takes");
    } else if (error == beast::error::timeout) {
      status = 408;
      message = "the request did not arrive in time";
    }
    keep_alive_ = false;
    tcp().expires_never();
    co_await respond(context_.error_response(status, message));
    log_access();
  }

  Task<> handle_request() {
    tcp().expires_never();
    ++context_.num_requests;
    watch_client();
    std::string failure;
    int status = 500;
    try {
      request_.url = parse_target(request_.target);
      if (is_preflight(request_)) {
        co_await respond(preflight_response(request_, context_.options.cors));
      } else {
        co_await context_.handler(*this);
        if (!answered_) failure = "the request was not answered";
      }
    } catch (const ClientGone&) {
      keep_alive_ = false;
    } catch (const Error& error) {
      status = error.code() == ErrorCode::kInvalidData ? 400 : 500;
      failure = error.what();
    } catch (const std::exception& error) {
      failure = describe(error);
    }
    if (!failure.empty()) co_await fail(status, failure);
    handling_ = false;
    watch_cancel_.emit(asio::cancellation_type::all);
    watch_timer_.cancel();
    on_gone_ = nullptr;
    --context_.num_requests;
    log_access();
  }

  Task<> fail(int status, const std::string& message) {
    if (status >= 500)
      LMD_LOG(kError, request_.method, " ", request_.url.path, " (", request_.id, "): ", message);
    keep_alive_ = keep_alive_ && !answered_;  // the end of a broken stream is the end of the connection
    if (answered_ || client_gone_) co_return;
    try {
      co_await respond(context_.error_response(status, message));
    } catch (const ClientGone&) {
      keep_alive_ = false;
    }
  }

  void begin_answer(int status) {
    answered_ = true;
    record_.status = status;
    if (context_.draining) keep_alive_ = false;
  }

  /// In slices, each with its own deadline: a large answer may take its time as long as it moves.
  Task<> send(std::string_view bytes) {
    constexpr size_t kSlice = 256 << 10;
    while (!bytes.empty() && !client_gone_) {
      const std::string_view slice = bytes.substr(0, kSlice);
      boost::system::error_code error;
      tcp().expires_after(context_.options.write_timeout);
      co_await asio::async_write(stream_, asio::buffer(slice.data(), slice.size()),
                                 asio::redirect_error(asio::use_awaitable, error));
      if (error) client_went();
      bytes.remove_prefix(slice.size());
    }
    if (client_gone_) throw ClientGone();
    tcp().expires_never();
  }

  /// Readable while a handler runs: the client has closed, or sends its next request early.
  void watch_client() {
    handling_ = true;
    watch_once();
  }
  void watch_once() {
    auto on_readable = [self = this->shared_from_this()](boost::system::error_code error) {
      if (error || !self->handling_) return;
      if (self->peer_has_closed()) return self->client_went();
      self->watch_timer_.expires_after(std::chrono::milliseconds(200));
      self->watch_timer_.async_wait([self](boost::system::error_code stopped) {
        if (!stopped && self->handling_) self->watch_once();
      });
    };
    tcp().socket().async_wait(
        Socket::wait_read,
        asio::bind_cancellation_slot(watch_cancel_.slot(),
                                     asio::bind_executor(stream_.get_executor(), std::move(on_readable))));
  }

  bool peer_has_closed() {
    pollfd state = {tcp().socket().native_handle(), POLLRDHUP, 0};
    return ::poll(&state, 1, 0) > 0 && (state.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
  }

  void client_went() {
    client_gone_ = true;
    if (const auto on_gone = std::exchange(on_gone_, nullptr)) on_gone();
  }

  void log_access() {
    if (!context_.on_access) return;
    record_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    context_.on_access(record_);
  }

  /// Bytes that nobody reads would make the system reset the connection, and the client lose the answer: they
  /// are read and dropped for a moment.
  Task<> close() {
    boost::system::error_code error;
    if (!client_gone_ && tcp().socket().is_open()) {
      tcp().socket().shutdown(Socket::shutdown_send, error);
      tcp().expires_after(std::chrono::seconds(2));
      std::array<char, 16384> dropped;
      for (size_t size = 0; !error && size < (32U << 20);)
        size += co_await tcp().async_read_some(asio::buffer(dropped),
                                               asio::redirect_error(asio::use_awaitable, error));
    }
    close_socket();
  }

  ServerContext& context_;
  Stream stream_;
  std::string client_;
  beast::flat_buffer buffer_;
  std::optional<beast::http::request_parser<beast::http::string_body>> parser_;
  Request request_;
  int version_ = 11;
  Framing framing_ = Framing::kLength;
  bool idle_ = true, handling_ = false, answered_ = false, keep_alive_ = false, client_gone_ = false;
  std::function<void()> on_gone_;
  asio::cancellation_signal watch_cancel_;
  asio::steady_timer watch_timer_;
  std::chrono::steady_clock::time_point start_;
  AccessRecord record_;
};

}  // namespace lmdeploy::http
