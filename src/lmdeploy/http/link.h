// A client's connection, plain or TLS. Inside http/ only.
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/system/error_code.hpp>
#include <memory>
#include <string>
#include <string_view>

#include "lmdeploy/http/socket.h"
#include "lmdeploy/http/task.h"

namespace lmdeploy::http {

/// Used by one coroutine at a time, on whatever executor that one runs.
class Link {
 public:
  virtual ~Link() = default;
  virtual Socket& socket() = 0;
  /// TLS: the server must have a certificate for `host`.
  virtual Task<boost::system::error_code> handshake(const std::string& host) = 0;
  virtual Task<boost::system::error_code> read(boost::asio::mutable_buffer buffer, size_t& size) = 0;
  virtual Task<boost::system::error_code> write(std::string_view bytes, size_t& size) = 0;
};

std::unique_ptr<Link> plain_link(const boost::asio::any_io_executor& executor);
std::unique_ptr<Link> tls_link(const boost::asio::any_io_executor& executor,
                               boost::asio::ssl::context& context);

/// While idle: nothing has come and the server has not closed.
bool is_quiet(Link& link);

}  // namespace lmdeploy::http
