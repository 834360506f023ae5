// A server whose handler has one route for each thing that a handler can do, good and bad.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "lmdeploy/http/server.h"
#include "raw_client.h"

namespace lmdeploy::testing {

/// /hello, /echo, /stream?n=3, /big?bytes=9, /flood (no end), /wait (until release()), /offload,
/// /none?status=204, /missing, and the broken ones: /throw, /bad_data, /throw_late, /throw_after,
/// /unanswered, /unfinished, /offload_throws, /inject.
class TestServer {
 public:
  explicit TestServer(http::ServerOptions options = {});
  ~TestServer();

  int port() const { return server_->port(); }
  RawClient connect() const { return RawClient(port()); }
  http::Server& server() { return *server_; }
  std::vector<http::AccessRecord> log() const;

  void release();
  /// Returns when so many handlers wait in /wait, or have waited there and ended with ClientGone.
  void await_waiting(int count) const { await(waiting_, count); }
  void await_gone(int count) const { await(gone_, count); }
  /// When nothing is open any more.
  void await_no_connections() const;

 private:
  http::Task<> handle(http::Exchange& exchange);
  http::Task<> wait(http::Exchange& exchange);
  http::Task<> stream(http::Exchange& exchange);
  void await(const std::atomic<int>& value, int count) const;

  std::atomic<int> waiting_ = 0, gone_ = 0;
  mutable std::mutex mutex_;
  bool released_ = false;
  std::vector<http::Signal> signals_;
  std::vector<http::AccessRecord> log_;
  std::unique_ptr<http::Server> server_;
};

}  // namespace lmdeploy::testing
