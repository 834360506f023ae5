// An HTTP/1.1 server: connections, limits, timeouts, TLS, CORS. What the answers are is the handler's
// business.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lmdeploy/http/exchange.h"
#include "lmdeploy/http/task.h"

namespace lmdeploy::http {

struct TlsFiles {
  std::string certificate, key;  // PEM
};

/// What pages of other origins may do (Fetch standard, "CORS protocol"). "*": all.
struct CorsOptions {
  std::vector<std::string> origins = {"*"}, methods = {"*"}, headers = {"*"};
  bool credentials = false;
};

struct ServerOptions {
  std::string address = "127.0.0.1";  // name or IP
  int port = 0;                       // 0: any free one
  int num_threads = 2;                // for connections
  int num_workers = 2;                // for Exchange::offload
  std::optional<TlsFiles> tls;
  CorsOptions cors;
  size_t max_header_bytes = 64 << 10;
  size_t max_body_bytes = 64 << 20;
  std::chrono::milliseconds header_timeout{10'000};  // from a request's first byte to the end of its headers
  std::chrono::milliseconds body_timeout{20'000};    // without a byte of the body
  std::chrono::milliseconds idle_timeout{75'000};    // between requests
  std::chrono::milliseconds write_timeout{60'000};   // without the client taking a byte
  // After an answer to half a request: without a byte of the rest, which is dropped, body_timeout in all.
  std::chrono::milliseconds linger_timeout{2'000};
  // After a drain in vain: for handlers to say that they end.
  std::chrono::milliseconds ending_timeout{2'000};
};

/// Errors that no handler sees (malformed head, too large a body, a handler that threw) are answered by this.
/// Of the request there is what had been read.
using ErrorResponse = std::function<Response(const Request& request, int status, const std::string& message)>;

/// Called for each request. What it throws becomes a 500 through ErrorResponse, Error(kInvalidData) a 400; a
/// handler that returns without an answer is a 500 too. When the answer had begun, the connection is closed.
using Handler = std::function<Task<>(Exchange&)>;

/// One line for the log of each request that ended.
struct AccessRecord {
  std::string client, id, method, target;
  int status = 0;      // 499: the client was gone before an answer began
  int64_t bytes = 0;   // of the answer's body
  double seconds = 0;  // from the end of the headers to the end of the answer
};

struct ServerCounts {
  int64_t connections = 0;  // open
  int64_t requests = 0;     // being handled
};

/// All methods are thread-safe.
class Server {
 public:
  /// Binds the port and starts to serve. Throws Error(kIo) naming address and port, or the TLS file at fault.
  Server(ServerOptions options, Handler handler, ErrorResponse error_response,
         std::function<void(const AccessRecord&)> on_access = {});
  ~Server();  // stop()
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  int port() const;
  ServerCounts counts() const;
  /// No new connections; those without a request are closed, the others after their answer. Returns when all
  /// are gone. After `timeout` handlers that wait see ServerEnds and get ending_timeout to say so; then it
  /// is false.
  bool drain(std::chrono::milliseconds timeout);
  /// Closes all connections: their handlers see ClientGone. Joins the threads.
  void stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lmdeploy::http
