#include "lmdeploy/http/link.h"

#include <sys/socket.h>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>

namespace lmdeploy::http {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

template <typename Stream>
class StreamLink : public Link {
 public:
  template <typename... Args>
  explicit StreamLink(Args&&... args) : stream_(std::forward<Args>(args)...) {}

  Socket& socket() override {
    if constexpr (std::is_same_v<Stream, Socket>)
      return stream_;
    else
      return stream_.next_layer();
  }
  Task<error_code> handshake(const std::string&) override { co_return error_code(); }
  Task<error_code> read(asio::mutable_buffer buffer, size_t& size) override {
    error_code error;
    size = co_await stream_.async_read_some(buffer, asio::redirect_error(asio::use_awaitable, error));
    co_return error;
  }
  Task<error_code> write(std::string_view bytes, size_t& size) override {
    error_code error;
    size = co_await stream_.async_write_some(asio::buffer(bytes.data(), bytes.size()),
                                             asio::redirect_error(asio::use_awaitable, error));
    co_return error;
  }

 protected:
  Stream stream_;
};

class TlsLink final : public StreamLink<TlsStream> {
 public:
  using StreamLink::StreamLink;

  Task<error_code> handshake(const std::string& host) override {
    error_code error;
    asio::ip::make_address(host, error);
    if (error) SSL_set_tlsext_host_name(stream_.native_handle(), host.c_str());  // a name, not an address
    stream_.set_verify_mode(asio::ssl::verify_peer);
    stream_.set_verify_callback(asio::ssl::host_name_verification(host));
    error = {};
    co_await stream_.async_handshake(asio::ssl::stream_base::client,
                                     asio::redirect_error(asio::use_awaitable, error));
    co_return error;
  }
};

}  // namespace

std::unique_ptr<Link> plain_link(const asio::any_io_executor& executor) {
  return std::make_unique<StreamLink<Socket>>(executor);
}

std::unique_ptr<Link> tls_link(const asio::any_io_executor& executor, asio::ssl::context& context) {
  return std::make_unique<TlsLink>(executor, context);
}

bool is_quiet(Link& link) {
  char byte = 0;
  return ::recv(link.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
         (errno == EAGAIN || errno == EWOULDBLOCK);
}

}  // namespace lmdeploy::http
