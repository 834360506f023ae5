// A connection over a stream: reads requests one after another, runs the handler, writes the answers.
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
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <chrono>
#include <concepts>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/log.h"
#include "lmdeploy/http/connection.h"
#include "lmdeploy/http/deadline.h"
#include "lmdeploy/http/request_id.h"
#include "lmdeploy/http/response_head.h"

namespace lmdeploy::http {

namespace asio = boost::asio;
namespace beast = boost::beast;

template <typename Stream>
class StreamConnection final : public Connection,
                               public Exchange,
                               public std::enable_shared_from_this<StreamConnection<Stream>> {
 public:
  StreamConnection(Stream stream, ServerContext& context)
      : context_(context),
        stream_(std::move(stream)),
        deadline_(socket(), stream_.get_executor()),
        watch_timer_(stream_.get_executor()) {
    boost::system::error_code ignored;
    const auto peer = socket().remote_endpoint(ignored);
    client_ = cat(peer.address().to_string(), ":", peer.port());
  }
  ~StreamConnection() override { context_.connections.remove(this); }

  /// Until the connection ends. (g++ 12 miscompiles co_await inside larger conditions.)
  Task<> serve() {
    bool open = co_await handshake();
    while (open) {
      open = co_await read_request();
      if (!open) break;
      co_await handle_request();
      open = keep_alive_ && !context_.draining;
    }
    co_await close();
    close_socket();
  }

  void close_when_idle() override {
    on_strand([](StreamConnection& self) {
      if (self.idle_) self.close_socket();
    });
  }
  void end_request() override {
    on_strand([](StreamConnection& self) { self.wake_handler(); });
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
  bool server_ends() const override { return context_.ending; }
  void set_on_gone(std::function<void()> on_gone) override { on_gone_ = std::move(on_gone); }

  Task<> respond(Response response) override {
    begin_answer(response.status);
    std::string bytes =
        response_head(response, request_, context_.options.cors, {Framing::kLength, keep_alive_});
    if (has_body_) {
      bytes += response.body;
      record_.bytes = static_cast<int64_t>(response.body.size());
    }
    co_await send(bytes);
    finished_ = true;
  }

  Task<> begin_stream(Response head) override {
    begin_answer(head.status);
    framing_ = version_ >= 11 ? Framing::kChunked : Framing::kUntilClose;
    if (framing_ == Framing::kUntilClose) keep_alive_ = false;
    co_await send(response_head(head, request_, context_.options.cors, {framing_, keep_alive_}));
  }

  Task<> write(std::string_view piece) override {
    LMD_CHECK(answered_ && !finished_);
    if (piece.empty() || !has_body_) co_return;  // an empty chunk would be the end
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
    LMD_CHECK(answered_ && !finished_);
    if (framing_ == Framing::kChunked && has_body_) co_await send("0\r\n\r\n");
    finished_ = true;
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
  static constexpr bool kTls = std::same_as<Stream, TlsStream>;

  Socket& socket() {
    if constexpr (kTls)
      return stream_.next_layer();
    else
      return stream_;
  }

  template <typename Action>
  void on_strand(Action action) {
    // Not what keeps a connection alive: nothing runs this any more once all else has ended.
    asio::dispatch(stream_.get_executor(), [weak = this->weak_from_this(), action] {
      if (const auto self = weak.lock()) action(*self);
    });
  }

  void close_socket() {
    boost::system::error_code ignored;
    socket().close(ignored);
  }

  Task<bool> handshake() {
    boost::system::error_code error;
    if constexpr (kTls) {
      deadline_.start(context_.options.header_timeout);
      co_await stream_.async_handshake(asio::ssl::stream_base::server,
                                       asio::redirect_error(asio::use_awaitable, error));
      deadline_.stop();
      if (error) LMD_LOG(kDebug, client_, ": TLS handshake: ", error.message());
    }
    co_return !error;
  }

  /// false: no more requests come. What is malformed has been answered then.
  Task<bool> read_request() {
    begin_request();
    const bool came = co_await wait_for_first_byte();
    if (!came) co_return false;
    request_complete_ = false;
    boost::system::error_code error;
    deadline_.start(context_.options.header_timeout);
    co_await beast::http::async_read_header(stream_, buffer_, *parser_,
                                            asio::redirect_error(asio::use_awaitable, error));
    start_ = std::chrono::steady_clock::now();
    if (!error || error == beast::http::error::body_limit) take_head();
    if (!error) error = co_await read_body();
    if (error) co_await refuse(error);
    co_return !error;
  }

  void begin_request() {
    parser_.emplace();
    parser_->header_limit(static_cast<uint32_t>(context_.options.max_header_bytes));
    parser_->body_limit(context_.options.max_body_bytes);
    request_ = {};
    record_ = {client_, {}, {}, {}, 499, 0, 0};
    version_ = 11;
    framing_ = Framing::kLength;
    answered_ = finished_ = keep_alive_ = client_gone_ = false;
    request_complete_ = true;
  }

  Task<bool> wait_for_first_byte() {
    if (buffer_.size() > 0) co_return true;
    boost::system::error_code error;
    idle_ = true;
    deadline_.start(context_.options.idle_timeout);
    const size_t size = co_await stream_.async_read_some(buffer_.prepare(8192),
                                                         asio::redirect_error(asio::use_awaitable, error));
    deadline_.stop();
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
    request_.arrival = start_;
    for (const auto& field : head)
      request_.headers.add(std::string(field.name_string()), std::string(field.value()));
    request_.id = request_id(request_.headers);
    record_.id = request_.id;
    record_.method = request_.method;
    record_.target = request_.target;
  }

  /// The body grows as it comes, whatever length the head says.
  Task<boost::system::error_code> read_body() {
    namespace http = beast::http;
    // A body in a coding that nobody undoes would be taken for the next request (RFC 9112, 6.3).
    if (request_.headers.find("Transfer-Encoding") != nullptr && !parser_->chunked())
      co_return http::error::bad_transfer_encoding;
    if (const std::string* expect = request_.headers.find("Expect");
        expect != nullptr && version_ >= 11 && !parser_->is_done()) {
      if (!equals_ignoring_case(*expect, "100-continue")) co_return http::error::bad_value;
      co_await send("HTTP/1.1 100 Continue\r\n\r\n");
    }
    boost::system::error_code error;
    std::string piece;
    if (!parser_->is_done()) piece.resize(32 << 10);
    while (!error && !parser_->is_done()) {
      parser_->get().body() = {piece.data(), piece.size(), true};
      deadline_.start(context_.options.body_timeout);
      co_await http::async_read_some(stream_, buffer_, *parser_,
                                     asio::redirect_error(asio::use_awaitable, error));
      if (error == http::error::need_buffer) error = {};
      request_.body.append(piece.data(), piece.size() - parser_->get().body().size);
    }
    if (error) co_return error;
    deadline_.stop();
    keep_alive_ = parser_->keep_alive();
    request_complete_ = true;
    co_return error;
  }

  /// Answers what could not be read, when there is somebody to read it.
  Task<> refuse(boost::system::error_code error) {
    namespace http = beast::http;
    const ServerOptions& options = context_.options;
    int status = 400;
    std::string message = cat("malformed HTTP request: ", error.message());
    if (deadline_.passed()) {
      status = 408;
      message = "the request did not arrive in time";
    } else if (error == http::error::header_limit) {
      status = 431;
      message = cat("the request's headers have more than ", options.max_header_bytes, " bytes");
    } else if (error == http::error::body_limit) {
      status = 413;
      message = cat("the request's body has more than ", options.max_body_bytes,
                    " bytes, the most this server takes");
    } else if (error.category() != http::make_error_code(http::error::bad_value).category() ||
               error == http::error::end_of_stream || error == http::error::partial_message) {
      co_return;  // the connection broke
    }
    deadline_.stop();
    co_await respond(context_.error_response(request_, status, message));
    log_access();
  }

  /// While it lives, the client is watched and the request counted.
  class Handling {
   public:
    explicit Handling(StreamConnection& connection) : connection_(connection) {
      ++connection_.context_.num_requests;
      connection_.handling_ = true;
      connection_.watch_client();
    }
    ~Handling() {
      connection_.handling_ = false;
      connection_.watch_cancel_.emit(asio::cancellation_type::all);
      connection_.watch_timer_.cancel();
      connection_.on_gone_ = nullptr;
      --connection_.context_.num_requests;
    }
    Handling(const Handling&) = delete;
    Handling& operator=(const Handling&) = delete;

   private:
    StreamConnection& connection_;
  };

  struct Failure {
    int status = 500;
    std::string message;  // empty: none
  };

  Task<> handle_request() {
    {
      const Handling handling(*this);
      Failure failure;
      try {
        co_await answer();
        if (!finished_) failure.message = answered_ ? "the answer was not finished" : "there is no answer";
      } catch (const ClientGone&) {
        keep_alive_ = false;
      } catch (const ServerEnds& ends) {
        failure = {503, ends.what()};
      } catch (const Error& error) {
        failure = {error.code() == ErrorCode::kInvalidData ? 400 : 500, error.what()};
      } catch (const std::exception& error) {
        failure.message = describe(error);
      }
      if (!failure.message.empty()) co_await fail(failure);
    }
    log_access();
  }

  Task<> answer() {
    request_.url = parse_target(request_.target);
    if (is_preflight(request_))
      co_await respond(preflight_response(request_, context_.options.cors));
    else
      co_await context_.handler(*this);
  }

  Task<> fail(const Failure& failure) {
    if (failure.status == 500)
      LMD_LOG(kError, request_.method, " ", request_.url.path, " (", request_.id, "): ", failure.message);
    if (answered_) {
      keep_alive_ = false;  // the end of a broken answer is the end of the connection
      co_return;
    }
    try {
      co_await respond(context_.error_response(request_, failure.status, failure.message));
    } catch (const ClientGone&) {
      keep_alive_ = false;
    }
  }

  void begin_answer(int status) {
    LMD_CHECK(!answered_);
    answered_ = true;
    record_.status = status;
    has_body_ = request_.method != "HEAD" && may_have_body(status);
    if (context_.draining) keep_alive_ = false;
  }

  /// Each part that the client takes has its own deadline: a large answer may take its time as long as it
  /// moves.
  Task<> send(std::string_view bytes) {
    while (!bytes.empty()) {
      boost::system::error_code error;
      deadline_.start(context_.options.write_timeout);
      const size_t size = co_await stream_.async_write_some(asio::buffer(bytes.data(), bytes.size()),
                                                            asio::redirect_error(asio::use_awaitable, error));
      if (error) {
        close_socket();
        client_went();
        throw ClientGone();
      }
      bytes.remove_prefix(size);
    }
    deadline_.stop();
  }

  /// Readable while a handler runs: the client has closed, or sends its next request early.
  void watch_client() {
    auto on_readable = [self = this->shared_from_this()](boost::system::error_code error) {
      if (error || !self->handling_) return;
      if (self->peer_has_closed()) return self->client_went();
      self->watch_timer_.expires_after(std::chrono::milliseconds(200));
      self->watch_timer_.async_wait([self](boost::system::error_code stopped) {
        if (!stopped && self->handling_) self->watch_client();
      });
    };
    socket().async_wait(
        Socket::wait_read,
        asio::bind_cancellation_slot(watch_cancel_.slot(),
                                     asio::bind_executor(stream_.get_executor(), std::move(on_readable))));
  }

  bool peer_has_closed() {
    pollfd state = {socket().native_handle(), POLLRDHUP, 0};
    return ::poll(&state, 1, 0) > 0 && (state.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
  }

  /// Who waits for something else than the client is woken. What is written all the same reaches a client
  /// that has closed its own side only.
  void client_went() {
    client_gone_ = true;
    wake_handler();
  }

  void wake_handler() {
    if (const auto on_gone = std::exchange(on_gone_, nullptr)) on_gone();
  }

  void log_access() {
    if (!context_.on_access) return;
    record_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    context_.on_access(record_);
  }

  Task<> close() {
    if (!socket().is_open()) co_return;
    boost::system::error_code error;
    if constexpr (kTls) {  // tells the end from a cut
      deadline_.start(context_.options.linger_timeout);
      co_await stream_.async_shutdown(asio::redirect_error(asio::use_awaitable, error));
    }
    socket().shutdown(Socket::shutdown_send, error);
    if (!request_complete_ || buffer_.size() > 0 || socket().available(error) > 0) co_await drop_rest();
  }

  /// Bytes that nobody reads would make the system reset the connection, and the client lose the answer.
  Task<> drop_rest() {
    const auto end = std::chrono::steady_clock::now() + context_.options.body_timeout;
    boost::system::error_code error;
    std::string dropped(64 << 10, '\0');
    while (!error && std::chrono::steady_clock::now() < end) {
      deadline_.start(context_.options.linger_timeout);
      co_await socket().async_read_some(asio::buffer(dropped),
                                        asio::redirect_error(asio::use_awaitable, error));
    }
  }

  using Parser = beast::http::request_parser<beast::http::buffer_body>;

  ServerContext& context_;
  Stream stream_;
  Deadline deadline_;
  std::string client_;
  beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  Request request_;
  int version_ = 11;
  Framing framing_ = Framing::kLength;
  bool idle_ = true;               // no request has begun
  bool request_complete_ = true;   // nothing of it is on its way
  bool handling_ = false;          // the handler runs
  bool answered_ = false;          // an answer has begun
  bool has_body_ = true;           // it may have one
  bool finished_ = false;          // it is complete
  bool keep_alive_ = false;        // another request may follow
  bool client_gone_ = false;       // or has closed its side
  std::function<void()> on_gone_;  // wakes the handler
  asio::cancellation_signal watch_cancel_;
  asio::steady_timer watch_timer_;
  std::chrono::steady_clock::time_point start_;
  AccessRecord record_;
};

}  // namespace lmdeploy::http
