// The sockets of this room. Inside http/ only.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/stream.hpp>

namespace lmdeploy::http {

using Socket = boost::asio::basic_stream_socket<boost::asio::ip::tcp, boost::asio::any_io_executor>;
using TlsStream = boost::asio::ssl::stream<Socket>;

}  // namespace lmdeploy::http
