// What the server knows of a connection, and what connections know of their server. Inside http/ only.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/thread_pool.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "lmdeploy/http/server.h"
#include "lmdeploy/http/socket.h"

namespace lmdeploy::http {

/// Its methods are called from any thread; they act on the connection's strand.
class Connection {
 public:
  virtual ~Connection() = default;
  virtual void close_when_idle() = 0;
  /// Wakes the handler: ServerContext::ending is set.
  virtual void end_request() = 0;
  virtual void abort() = 0;
};

/// The connections that are open.
class ConnectionList {
 public:
  void add(const std::shared_ptr<Connection>& connection);
  void remove(const Connection* connection);
  std::vector<std::shared_ptr<Connection>> all() const;
  size_t size() const;

 private:
  mutable std::mutex mutex_;
  std::map<const Connection*, std::weak_ptr<Connection>> open_;
};

/// Outlives all connections: they may last until `io` is destroyed, which therefore comes after what they
/// use.
struct ServerContext {
  ServerOptions options;
  Handler handler;
  ErrorResponse error_response;
  std::function<void(const AccessRecord&)> on_access;
  std::optional<boost::asio::ssl::context> tls;
  ConnectionList connections;
  std::atomic<bool> draining = false;
  std::atomic<bool> ending = false;  // the time for draining is over
  std::atomic<int64_t> num_requests = 0;
  boost::asio::io_context io;
  std::unique_ptr<boost::asio::thread_pool> workers;
};

/// Serve until the connection ends.
Task<> serve_plain(Socket socket, ServerContext& context);
Task<> serve_tls(Socket socket, ServerContext& context);

}  // namespace lmdeploy::http
