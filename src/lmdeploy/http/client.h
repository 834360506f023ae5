// An HTTP/1.1 client of coroutines: one Call for each request; connections are kept for the next one.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "lmdeploy/http/message.h"
#include "lmdeploy/http/task.h"

namespace lmdeploy::http {

/// "https://host:8000/prefix"
struct Url {
  bool tls = false;
  std::string host;  // name or IP, without brackets
  int port = 80;
  std::string path;  // "/prefix", or empty; no slash at its end
};
/// Throws Error(kInvalidArgument) naming the URL, for anything but http(s)://host[:port][/path].
Url parse_url(std::string_view text);
/// "https://host:8000"
std::string origin(const Url& url);

struct ClientOptions {
  // 0: no limit.
  std::chrono::milliseconds connect_timeout{5'000};  // for name, connection and handshake together
  std::chrono::milliseconds write_timeout{30'000};   // without the server taking a byte
  std::chrono::milliseconds answer_timeout{0};       // until the answer's first byte
  std::chrono::milliseconds head_timeout{10'000};    // from there to the end of its headers
  std::chrono::milliseconds piece_timeout{0};        // without a byte of its body
  std::chrono::milliseconds keep_timeout{30'000};    // a connection without use
  size_t max_head_bytes = 64 << 10;
  size_t max_kept = 32;  // connections to one server
  std::string trusted;   // PEM file with certificates; empty: those of the system
};

/// What calls share. Thread-safe; outlives them.
class Client {
 public:
  explicit Client(ClientOptions options = {});
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  const ClientOptions& options() const;
  size_t num_kept() const;
  /// Closes connections kept for longer than keep_timeout.
  void close_old();
  /// Closes all that are kept, and keeps no more: before the io_context of the calls ends.
  void close();

 private:
  friend class Call;
  class Impl;
  std::unique_ptr<Impl> impl_;
};

struct ClientRequest {
  std::string method = "GET";
  std::string target = "/";  // after the path of the URL
  Headers headers;           // without Host and Content-Length
  std::string_view body;
};

/// One request and its answer, on the executor of the coroutine that sends it. All failures are Error(kIo)
/// that name the server; a connection kept from an earlier call that breaks before the first byte is replaced
/// by a new one.
class Call {
 public:
  explicit Call(Client& client);
  /// An answer that was not read to its end closes the connection.
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  /// Until the head of the answer is there. Once.
  Task<> send(const Url& url, const ClientRequest& request);
  int status() const;
  const Headers& headers() const;
  /// Whether the server has got all of the request, and whether it took too long over its answer.
  bool sent() const;
  bool timed_out() const;
  /// What has come of the body, at least a byte; false: it is complete.
  Task<bool> read(std::string& piece);
  /// Ends what waits: it throws. On the same executor.
  void cancel();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// The whole body; throws Error(kIo) when it has more than `max_bytes`.
Task<std::string> read_all(Call& call, size_t max_bytes);

}  // namespace lmdeploy::http
