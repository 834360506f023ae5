// One request and the way to answer it.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "lmdeploy/http/message.h"
#include "lmdeploy/http/signal.h"
#include "lmdeploy/http/task.h"

namespace lmdeploy::http {

/// Ends a handler whose client has gone. Handlers let it through.
class ClientGone : public std::runtime_error {
 public:
  ClientGone() : std::runtime_error("the client has closed the connection") {}
};

/// Ends a handler that still waits when the server's time to drain is over. The server answers 503, unless
/// the handler does it better.
class ServerEnds : public std::runtime_error {
 public:
  ServerEnds() : std::runtime_error("the server is shutting down") {}
};

/// All of it is used on the connection's strand only.
class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual const Request& request() const = 0;
  virtual boost::asio::any_io_executor executor() const = 0;

  /// The whole answer, once.
  virtual Task<> respond(Response response) = 0;
  /// Instead of that: the head, pieces of the body as they come, and the end. A client that does not read
  /// lets write() wait; one that takes nothing for ServerOptions::write_timeout is gone.
  virtual Task<> begin_stream(Response head) = 0;
  virtual Task<> write(std::string_view piece) = 0;
  virtual Task<> finish() = 0;

  virtual bool answered() const = 0;  // respond() or begin_stream() has begun
  virtual bool client_gone() const = 0;
  /// The server waits no longer: what runs should say so and end.
  virtual bool server_ends() const = 0;
  /// Called once when one of the two comes true. One at a time; nullptr: nobody asks.
  virtual void set_on_gone(std::function<void()> on_gone) = 0;

  /// Waits until `signal` is set, or throws ClientGone or ServerEnds. false: `timeout` passed first.
  Task<bool> wait(const Signal& signal, std::optional<std::chrono::milliseconds> timeout = std::nullopt);
  /// Runs `work` on one of the server's worker threads: what takes longer than a millisecond should not hold
  /// up other connections. What it throws comes out here.
  virtual Task<> offload(std::function<void()> work) = 0;
};

}  // namespace lmdeploy::http
