// The server: HTTP in front, a Service behind, requests to routes.
#pragma once

#include <chrono>
#include <memory>

#include "lmdeploy/http/server.h"
#include "lmdeploy/serve/service.h"

namespace lmdeploy {

/// Answers from the start; until set_ready() with 503.
class ApiServer {
 public:
  /// Throws as http::Server does.
  ApiServer(http::ServerOptions http_options, ServiceOptions options);
  ~ApiServer();  // stop()

  int port() const { return server_->port(); }
  Service& service() { return service_; }
  http::ServerCounts counts() const { return server_->counts(); }
  /// Takes no more requests and waits for those that run, at most that long. Whether all have ended.
  bool drain(std::chrono::milliseconds timeout);
  /// Ends what still runs.
  void stop();

 private:
  http::Task<> handle(http::Exchange& exchange);
  http::Task<> dispatch(http::Exchange& exchange);

  Service service_;
  std::unique_ptr<http::Server> server_;
};

}  // namespace lmdeploy
