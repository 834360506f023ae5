#include "lmdeploy/http/server.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <thread>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/log.h"
#include "lmdeploy/http/connection.h"

namespace lmdeploy::http {

namespace asio = boost::asio;
using asio::ip::tcp;

void ConnectionList::add(const std::shared_ptr<Connection>& connection) {
  const std::lock_guard lock(mutex_);
  open_.emplace(connection.get(), connection);
}

void ConnectionList::remove(const Connection* connection) {
  const std::lock_guard lock(mutex_);
  open_.erase(connection);
}

std::vector<std::shared_ptr<Connection>> ConnectionList::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Connection>> all;
  for (const auto& entry : open_)
    if (std::shared_ptr<Connection> connection = entry.second.lock()) all.push_back(std::move(connection));
  return all;
}

size_t ConnectionList::size() const {
  const std::lock_guard lock(mutex_);
  return open_.size();
}

namespace {

void load_tls(ServerContext& context) {
  const TlsFiles& files = *context.options.tls;
  context.tls.emplace(asio::ssl::context::tls_server);
  context.tls->set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_sslv2 |
                           asio::ssl::context::no_sslv3 | asio::ssl::context::no_tlsv1 |
                           asio::ssl::context::no_tlsv1_1);
  boost::system::error_code error;
  // Otherwise OpenSSL would ask on the terminal.
  context.tls->set_password_callback(
      [](size_t, asio::ssl::context::password_purpose) { return std::string(); });
  context.tls->use_certificate_chain_file(files.certificate, error);
  if (error) throw Error(ErrorCode::kIo, cat("TLS certificate ", files.certificate, ": ", error.message()));
  context.tls->use_private_key_file(files.key, asio::ssl::context::pem, error);
  if (error) throw Error(ErrorCode::kIo, cat("TLS key ", files.key, ": ", error.message()));
}

tcp::endpoint resolve(asio::io_context& io, const ServerOptions& options) {
  boost::system::error_code error;
  tcp::resolver resolver(io);
  const auto found =
      resolver.resolve(options.address, std::to_string(options.port), tcp::resolver::passive, error);
  if (error || found.empty())
    throw Error(ErrorCode::kIo, cat("cannot listen on ", options.address, ": ", error.message()));
  return found.begin()->endpoint();
}

}  // namespace

class Server::Impl {
 public:
  Impl(ServerOptions options, Handler handler, ErrorResponse error_response,
       std::function<void(const AccessRecord&)> on_access)
      : acceptor_(asio::make_strand(context_.io)), work_(context_.io.get_executor()) {
    context_.options = std::move(options);
    context_.handler = std::move(handler);
    context_.error_response = std::move(error_response);
    context_.on_access = std::move(on_access);
    if (context_.options.tls) load_tls(context_);
    listen();
    context_.workers = std::make_unique<asio::thread_pool>(static_cast<size_t>(context_.options.num_workers));
    asio::co_spawn(acceptor_.get_executor(), accept(), asio::detached);
    for (int i = 0; i < context_.options.num_threads; ++i) threads_.emplace_back([this] { run(); });
  }

  int port() const { return port_; }
  ServerCounts counts() const {
    return {static_cast<int64_t>(context_.connections.size()), context_.num_requests.load()};
  }

  bool drain(std::chrono::milliseconds timeout) {
    context_.draining = true;
    close_acceptor();
    if (await_end(timeout)) return true;
    context_.ending = true;
    for (const auto& connection : context_.connections.all()) connection->end_request();
    await_end(context_.options.ending_timeout);
    return false;
  }

  void stop() {
    const std::lock_guard lock(stop_mutex_);
    if (threads_.empty()) return;
    context_.draining = true;
    close_acceptor();
    work_.reset();
    // A connection that was being accepted may come late: again until all are gone.
    while (true) {
      const auto open = context_.connections.all();
      for (const auto& connection : open) connection->abort();
      if (open.empty() && context_.io.stopped()) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    context_.workers->join();
  }

 private:
  /// Whether all connections are gone in time.
  bool await_end(std::chrono::milliseconds timeout) {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    while (true) {
      const auto open = context_.connections.all();
      if (open.empty() || context_.io.stopped()) return true;
      for (const auto& connection : open) connection->close_when_idle();
      if (std::chrono::steady_clock::now() >= deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

  /// Without memory something may throw outside all coroutines; the others go on.
  void run() {
    while (true) {
      try {
        context_.io.run();
        return;
      } catch (const std::exception& error) {
        LMD_LOG(kError, "HTTP server: ", describe(error));
      }
    }
  }

  void listen() {
    const ServerOptions& options = context_.options;
    const tcp::endpoint endpoint = resolve(context_.io, options);
    boost::system::error_code error;
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(4096, error);
    if (error) {
      const bool busy = error == asio::error::address_in_use;
      throw Error(ErrorCode::kIo,
                  cat("cannot listen on ", options.address, " port ", options.port, ": ", error.message(),
                      busy ? "; stop the program that uses it or choose another port" : ""));
    }
    port_ = acceptor_.local_endpoint().port();
  }

  void close_acceptor() {
    asio::post(acceptor_.get_executor(), [this] {
      boost::system::error_code ignored;
      acceptor_.close(ignored);
    });
  }

  /// When the system has no file handle left, clients wait in its queue until one is free.
  Task<> accept() {
    while (acceptor_.is_open()) {
      boost::system::error_code error;
      Socket socket(asio::any_io_executor(asio::make_strand(context_.io)));
      co_await acceptor_.async_accept(socket, asio::redirect_error(asio::use_awaitable, error));
      if (!error) {
        start(std::move(socket));
      } else if (acceptor_.is_open()) {
        LMD_LOG(kWarning, "accepting a connection failed: ", error.message());
        asio::steady_timer pause(acceptor_.get_executor(), std::chrono::milliseconds(50));
        co_await pause.async_wait(asio::use_awaitable);
      }
    }
  }

  void start(Socket socket) {
    boost::system::error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    // A slow reader is seen to move only when a part of this is free again. It also bounds what one costs.
    socket.set_option(tcp::socket::send_buffer_size(256 << 10), ignored);
    const asio::any_io_executor strand = socket.get_executor();
    const auto on_end = [](const std::exception_ptr& failure) {
      try {
        if (failure) std::rethrow_exception(failure);
      } catch (const std::exception& error) {
        LMD_LOG(kDebug, "a connection ended: ", describe(error));
      }
    };
    if (context_.tls)
      asio::co_spawn(strand, serve_tls(std::move(socket), context_), on_end);
    else
      asio::co_spawn(strand, serve_plain(std::move(socket), context_), on_end);
  }

  ServerContext context_;
  tcp::acceptor acceptor_;  // on a strand: it is closed from other threads
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  int port_ = 0;
  std::mutex stop_mutex_;
  std::vector<std::thread> threads_;
};

Server::Server(ServerOptions options, Handler handler, ErrorResponse error_response,
               std::function<void(const AccessRecord&)> on_access)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(handler), std::move(error_response),
                                   std::move(on_access))) {}

Server::~Server() { stop(); }

int Server::port() const { return impl_->port(); }
ServerCounts Server::counts() const { return impl_->counts(); }
bool Server::drain(std::chrono::milliseconds timeout) { return impl_->drain(timeout); }
void Server::stop() { impl_->stop(); }

}  // namespace lmdeploy::http
