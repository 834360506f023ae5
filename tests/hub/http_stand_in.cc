// ThreadSanitizer does not know the fences of Asio, which blocking calls have no need of.
#define BOOST_ASIO_DISABLE_FENCED_BLOCK
#include "http_stand_in.h"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/read.hpp>
#include <list>
#include <mutex>
#include <thread>

namespace lmdeploy::testing {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using Tcp = asio::ip::tcp;

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

StandInRequest converted(const http::request<http::empty_body>& message) {
  StandInRequest request;
  request.method = std::string(message.method_string());
  request.target = std::string(message.target());
  for (const auto& field : message)
    request.headers[lower(std::string(field.name_string()))] = std::string(field.value());
  return request;
}

std::string head_of(const StandInReply& reply) {
  std::string head = "HTTP/1.1 " + std::to_string(reply.status) + " Said\r\n";
  for (const auto& [name, value] : reply.headers) head += name + ": " + value + "\r\n";
  if (reply.says_length) {
    head += "Content-Length: " + std::to_string(reply.body.size()) + "\r\n";
  } else {
    head += "Connection: close\r\n";
  }
  return head + "\r\n";
}

}  // namespace

class HttpStandIn::Impl {
 public:
  explicit Impl(Handler handler)
      : handler_(std::move(handler)), acceptor_(context_, {asio::ip::address_v4::loopback(), 0}) {
    accepting_ = std::thread([this] { accept(); });
  }

  ~Impl() {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
      boost::system::error_code ignored;
      for (Tcp::socket& socket : sockets_) socket.shutdown(Tcp::socket::shutdown_both, ignored);
    }
    wake_acceptor();
    accepting_.join();
    for (std::thread& thread : threads_) thread.join();
  }

  unsigned short port() const {
    const std::lock_guard lock(mutex_);
    return acceptor_.local_endpoint().port();
  }
  std::vector<StandInRequest> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  void wake_acceptor() {
    boost::system::error_code ignored;
    asio::io_context context;
    Tcp::socket socket(context);
    socket.connect(acceptor_.local_endpoint(), ignored);
  }

  void accept() {
    while (true) {
      Tcp::socket socket(context_);
      boost::system::error_code error;
      acceptor_.accept(socket, error);
      const std::lock_guard lock(mutex_);
      if (error || closing_) return;
      Tcp::socket& kept = sockets_.emplace_back(std::move(socket));
      threads_.emplace_back([this, &kept] { serve(kept); });
    }
  }

  void serve(Tcp::socket& socket) {
    boost::beast::flat_buffer buffer;
    bool go_on = true;
    while (go_on) {
      http::request<http::empty_body> message;
      boost::system::error_code error;
      http::read(socket, buffer, message, error);
      if (error) break;
      const StandInRequest request = converted(message);
      go_on = answer(socket, request, handle(request));
    }
    const std::lock_guard lock(mutex_);
    boost::system::error_code ignored;
    socket.shutdown(Tcp::socket::shutdown_both, ignored);
    socket.close(ignored);
  }

  StandInReply handle(const StandInRequest& request) {
    const std::lock_guard lock(mutex_);
    requests_.push_back(request);
    return handler_(request);
  }

  /// Whether the connection stays open.
  static bool answer(Tcp::socket& socket, const StandInRequest& request, const StandInReply& reply) {
    boost::system::error_code error;
    const bool cuts = reply.cut_after >= 0;
    if (reply.stall && !cuts) reply.stall();
    asio::write(socket, asio::buffer(head_of(reply)), error);
    if (error || request.method == "HEAD") return !error;
    const std::string sent = cuts ? reply.body.substr(0, static_cast<size_t>(reply.cut_after)) : reply.body;
    asio::write(socket, asio::buffer(sent), error);
    if (cuts && reply.stall) reply.stall();
    return !error && !cuts && reply.says_length;
  }

  Handler handler_;
  asio::io_context context_;
  Tcp::acceptor acceptor_;
  mutable std::mutex mutex_;
  bool closing_ = false;
  std::list<Tcp::socket> sockets_;
  std::list<std::thread> threads_;
  std::vector<StandInRequest> requests_;
  std::thread accepting_;
};

HttpStandIn::HttpStandIn(Handler handler) : impl_(std::make_unique<Impl>(std::move(handler))) {}
HttpStandIn::~HttpStandIn() = default;
std::string HttpStandIn::url() const { return "http://127.0.0.1:" + std::to_string(impl_->port()); }
std::vector<StandInRequest> HttpStandIn::requests() const { return impl_->requests(); }

}  // namespace lmdeploy::testing
