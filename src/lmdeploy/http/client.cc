#include "lmdeploy/http/client.h"

#include <netinet/tcp.h>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "lmdeploy/core/error.h"
#include "lmdeploy/http/deadline.h"
#include "lmdeploy/http/link.h"
#include "lmdeploy/http/signal.h"

namespace lmdeploy::http {

namespace asio = boost::asio;
namespace beast = boost::beast;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

class Client::Impl {
 public:
  explicit Impl(ClientOptions given) : options(std::move(given)) {}

  const ClientOptions options;

  /// One that is kept and still good, or nullptr.
  std::unique_ptr<Link> take(const std::string& server) {
    const std::lock_guard lock(mutex_);
    std::vector<Kept>& kept = kept_[server];
    while (!kept.empty()) {
      std::unique_ptr<Link> link = std::move(kept.back().link);
      kept.pop_back();
      if (is_quiet(*link)) return link;
    }
    return nullptr;
  }

  void keep(const std::string& server, std::unique_ptr<Link> link) {
    const std::lock_guard lock(mutex_);
    std::vector<Kept>& kept = kept_[server];
    if (!closed_ && kept.size() < options.max_kept) kept.push_back({std::move(link), Clock::now()});
  }

  std::unique_ptr<Link> make_link(const Url& url, const asio::any_io_executor& executor) {
    return url.tls ? tls_link(executor, tls_context()) : plain_link(executor);
  }

  size_t num_kept() const {
    const std::lock_guard lock(mutex_);
    size_t count = 0;
    for (const auto& [server, kept] : kept_) count += kept.size();
    return count;
  }

  void close_old() {
    const std::lock_guard lock(mutex_);
    const auto oldest = Clock::now() - options.keep_timeout;
    for (auto at = kept_.begin(); at != kept_.end();) {
      std::erase_if(at->second, [&](Kept& kept) { return kept.since < oldest || !is_quiet(*kept.link); });
      at = at->second.empty() ? kept_.erase(at) : std::next(at);
    }
  }

  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    kept_.clear();
  }

 private:
  struct Kept {
    std::unique_ptr<Link> link;
    Clock::time_point since;
  };

  asio::ssl::context& tls_context() {
    const std::lock_guard lock(mutex_);
    if (tls_) return *tls_;
    tls_.emplace(asio::ssl::context::tls_client);
    error_code error;
    if (options.trusted.empty())
      tls_->set_default_verify_paths(error);
    else
      tls_->load_verify_file(options.trusted, error);
    if (error) throw Error(ErrorCode::kIo, cat("certificates ", options.trusted, ": ", error.message()));
    return *tls_;
  }

  mutable std::mutex mutex_;
  bool closed_ = false;
  std::map<std::string, std::vector<Kept>> kept_;
  std::optional<asio::ssl::context> tls_;
};

Client::Client(ClientOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Client::~Client() = default;
const ClientOptions& Client::options() const { return impl_->options; }
size_t Client::num_kept() const { return impl_->num_kept(); }
void Client::close_old() { impl_->close_old(); }
void Client::close() { impl_->close(); }

namespace {

/// A server that has vanished without a word is noticed after a minute.
void set_options(Socket& socket) {
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  socket.set_option(asio::socket_base::keep_alive(true), ignored);
  const int fd = socket.native_handle();
  const auto set = [fd](int option, int value) {
    ::setsockopt(fd, IPPROTO_TCP, option, &value, sizeof(value));
  };
  set(TCP_KEEPIDLE, 30);
  set(TCP_KEEPINTVL, 10);
  set(TCP_KEEPCNT, 3);
  set(TCP_USER_TIMEOUT, 30'000);
}

bool is_harmless(std::string_view text) {
  return text.find_first_of(std::string_view("\r\n\0", 3)) == std::string_view::npos;
}

std::string request_head(const Url& url, const ClientRequest& request) {
  const std::string server = origin(url);
  std::string head =
      cat(request.method, " ", url.path, request.target,
          " HTTP/1.1\r\nHost: ", std::string_view(server).substr(server.find("//") + 2), "\r\n");
  for (const auto& [name, value] : request.headers.fields())
    if (is_harmless(name) && is_harmless(value)) head += cat(name, ": ", value, "\r\n");
  if (!request.body.empty() || request.method == "POST" || request.method == "PUT")
    head += cat("Content-Length: ", request.body.size(), "\r\n");
  return head + "\r\n";
}

}  // namespace

class Call::Impl {
 public:
  explicit Impl(Client::Impl& client) : client_(client) {}

  Task<> send(const Url& url, const ClientRequest& request) {
    executor_ = co_await asio::this_coro::executor;
    server_ = origin(url);
    link_ = client_.take(server_);
    if (link_) {
      const bool answered = co_await try_on_kept(url, request);
      if (answered) co_return;
    }
    co_await connect(url);
    co_await exchange(url, request);
  }

  int status() const { return static_cast<int>(parser_->get().result_int()); }
  const Headers& headers() const { return headers_; }
  bool sent() const { return sent_; }
  bool timed_out() const { return sent_ && timed_out_; }

  Task<bool> read(std::string& piece) {
    piece.clear();
    while (!parser_->is_done() && piece.empty()) {
      const bool moved = parse_body(piece);
      if (moved || parser_->is_done()) continue;
      co_await read_more(client_.options.piece_timeout, "reading the answer");
    }
    if (parser_->is_done()) give_back();
    co_return !piece.empty();
  }

  void cancel() {
    cancelled_ = true;
    resolved_.set();
    error_code ignored;
    if (link_) link_->socket().close(ignored);
  }

 private:
  using Parser = beast::http::response_parser<beast::http::buffer_body>;

  [[noreturn]] void fail(std::string_view doing, const std::string& why) {
    const bool late = deadline_ && deadline_->passed();
    deadline_.reset();
    throw Error(ErrorCode::kIo, cat(server_, ": ", doing, ": ",
                                    cancelled_ ? "cancelled"
                                    : late     ? "took too long"
                                               : why));
  }
  void check(error_code error, std::string_view doing) {
    if (error || cancelled_) fail(doing, error.message());
  }

  /// false: the server had closed the connection meanwhile.
  Task<bool> try_on_kept(const Url& url, const ClientRequest& request) {
    bool broke = false;
    try {
      co_await exchange(url, request);
    } catch (const Error&) {
      if (cancelled_ || num_received_ > 0 || timed_out_) throw;
      broke = true;
    }
    co_return !broke;
  }

  Task<std::vector<tcp::endpoint>> resolve(const Url& url) {
    error_code error;
    const auto address = asio::ip::make_address(url.host, error);
    const auto port = static_cast<unsigned short>(url.port);
    if (!error) co_return std::vector<tcp::endpoint>{{address, port}};
    struct Lookup {
      tcp::resolver resolver;
      error_code error = {};
      std::vector<tcp::endpoint> found = {};
    };
    // It may end long after its time, which nobody waits for.
    const auto lookup = std::make_shared<Lookup>(Lookup{tcp::resolver(executor_)});
    lookup->resolver.async_resolve(url.host, std::to_string(port),
                                   [lookup, done = resolved_](error_code failure, const auto& results) {
                                     lookup->error = failure;
                                     for (const auto& result : results)
                                       lookup->found.push_back(result.endpoint());
                                     done.set();
                                   });
    const auto timeout = client_.options.connect_timeout;
    const bool in_time = co_await resolved_.wait(timeout.count() > 0 ? std::optional(timeout) : std::nullopt);
    if (!in_time) fail("looking the name up", "took too long");
    check(lookup->error, "looking the name up");
    co_return lookup->found;
  }

  Task<> connect(const Url& url) {
    const std::vector<tcp::endpoint> endpoints = co_await resolve(url);
    error_code error = asio::error::host_not_found;
    for (const tcp::endpoint& endpoint : endpoints) {
      link_ = client_.make_link(url, executor_);
      start(client_.options.connect_timeout);
      error = {};
      co_await link_->socket().async_connect(endpoint, asio::redirect_error(asio::use_awaitable, error));
      if (!error || cancelled_ || deadline_->passed()) break;
    }
    check(error, "connecting");
    set_options(link_->socket());
    error = co_await link_->handshake(url.host);
    check(error, "TLS handshake");
    deadline_->stop();
  }

  Task<> exchange(const Url& url, const ClientRequest& request) {
    num_received_ = 0;
    sent_ = timed_out_ = false;
    buffer_.clear();
    const error_code unsent = co_await write_request(url, request);
    if (cancelled_ || timed_out_) fail("sending the request", "took too long");
    sent_ = !unsent;
    // A server that refuses a long body may answer and close before it has come.
    co_await read_head(request.method == "HEAD");
  }

  Task<error_code> write_request(const Url& url, const ClientRequest& request) {
    const std::string head = request_head(url, request);
    for (std::string_view rest : {std::string_view(head), request.body}) {
      while (!rest.empty()) {
        size_t size = 0;
        start(client_.options.write_timeout);
        const error_code error = co_await link_->write(rest, size);
        timed_out_ = deadline_->passed();
        if (error) co_return error;
        rest.remove_prefix(size);
      }
    }
    co_return error_code();
  }

  Task<> read_head(bool to_head_request) {
    do {  // before the answer there may be others: 100, 103
      parser_.emplace();
      parser_->header_limit(static_cast<uint32_t>(client_.options.max_head_bytes));
      parser_->body_limit(boost::none);
      parser_->eager(true);
      parser_->skip(to_head_request);
      co_await read_one_head();
    } while (status() < 200);
    headers_ = {};
    for (const auto& field : parser_->get())
      headers_.add(std::string(field.name_string()), std::string(field.value()));
  }

  Task<> read_one_head() {
    const char* const doing = "reading the answer's head";
    const auto end = Clock::now() + client_.options.head_timeout;
    while (true) {
      if (buffer_.size() > 0) parse(doing);
      if (parser_->is_header_done()) break;
      const bool begun = num_received_ > 0;
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
      co_await read_more(
          begun ? std::max(left, std::chrono::milliseconds(1)) : client_.options.answer_timeout, doing);
    }
    if (status() == 101) fail(doing, "switches to another protocol");
  }

  /// Whether anything was used up.
  bool parse(std::string_view doing) {
    error_code error;
    const size_t used = parser_->put(buffer_.data(), error);
    buffer_.consume(used);
    if (error == beast::http::error::need_more || error == beast::http::error::need_buffer) error = {};
    check(error, doing);
    return used > 0;
  }

  bool parse_body(std::string& piece) {
    if (buffer_.size() == 0) return false;
    piece.resize(16 << 10);
    parser_->get().body() = {piece.data(), piece.size(), true};
    const bool moved = parse("reading the answer");
    piece.resize(piece.size() - parser_->get().body().size);
    return moved;
  }

  Task<> read_more(std::chrono::milliseconds timeout, std::string_view doing) {
    size_t size = 0;
    start(timeout);
    error_code error = co_await link_->read(buffer_.prepare(16 << 10), size);
    timed_out_ = deadline_->passed();
    buffer_.commit(size);
    num_received_ += size;
    const bool ended = error == asio::error::eof || error == asio::ssl::error::stream_truncated;
    if (ended && !cancelled_ && parser_->got_some()) {
      error = {};
      parser_->put_eof(error);
    }
    check(error, doing);
    deadline_->stop();
  }

  void start(std::chrono::milliseconds timeout) {
    deadline_.emplace(link_->socket(), executor_);
    deadline_->start(timeout);
  }

  /// The answer is complete.
  void give_back() {
    deadline_.reset();
    if (link_ && sent_ && !cancelled_ && buffer_.size() == 0 && parser_->keep_alive())
      client_.keep(server_, std::move(link_));
    link_.reset();
  }

  Client::Impl& client_;
  asio::any_io_executor executor_;
  std::string server_;
  Signal resolved_;
  std::unique_ptr<Link> link_;
  std::optional<Deadline> deadline_;  // of link_
  beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  Headers headers_;
  size_t num_received_ = 0;
  bool cancelled_ = false, timed_out_ = false, sent_ = false;
};

Call::Call(Client& client) : impl_(std::make_unique<Impl>(*client.impl_)) {}
Call::~Call() = default;
Task<> Call::send(const Url& url, const ClientRequest& request) { return impl_->send(url, request); }
int Call::status() const { return impl_->status(); }
const Headers& Call::headers() const { return impl_->headers(); }
bool Call::sent() const { return impl_->sent(); }
bool Call::timed_out() const { return impl_->timed_out(); }
Task<bool> Call::read(std::string& piece) { return impl_->read(piece); }
void Call::cancel() { impl_->cancel(); }

Task<std::string> read_all(Call& call, size_t max_bytes) {
  std::string whole, piece;
  bool more = co_await call.read(piece);
  while (more) {
    if (whole.size() + piece.size() > max_bytes)
      throw Error(ErrorCode::kIo, cat("an answer has more than ", max_bytes, " bytes"));
    whole += piece;
    more = co_await call.read(piece);
  }
  co_return whole;
}

}  // namespace lmdeploy::http
