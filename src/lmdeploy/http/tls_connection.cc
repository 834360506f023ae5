#include <boost/beast/ssl/ssl_stream.hpp>

#include "lmdeploy/http/stream_connection.h"

namespace lmdeploy::http {

Task<> serve_tls(Socket socket, ServerContext& context) {
  using TlsStream = beast::ssl_stream<TcpStream>;
  TlsStream stream(TcpStream(std::move(socket)), *context.tls);
  beast::get_lowest_layer(stream).expires_after(context.options.header_timeout);
  co_await stream.async_handshake(asio::ssl::stream_base::server, asio::use_awaitable);
  const auto connection = std::make_shared<StreamConnection<TlsStream>>(std::move(stream), context);
  context.connections.add(connection);
  co_await connection->serve();
}

}  // namespace lmdeploy::http
