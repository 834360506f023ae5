#include "lmdeploy/http/stream_connection.h"

namespace lmdeploy::http {

Task<> serve_plain(Socket socket, ServerContext& context) {
  const auto connection = std::make_shared<StreamConnection<Socket>>(std::move(socket), context);
  context.connections.add(connection);
  co_await connection->serve();
}

}  // namespace lmdeploy::http
