#include "lmdeploy/http/stream_connection.h"

namespace lmdeploy::http {

Task<> serve_tls(Socket socket, ServerContext& context) {
  const auto connection =
      std::make_shared<StreamConnection<TlsStream>>(TlsStream(std::move(socket), *context.tls), context);
  context.connections.add(connection);
  co_await connection->serve();
}

}  // namespace lmdeploy::http
