// An api_server as far as the proxy can see, which can be killed and started again.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "../http/raw_client.h"
#include "lmdeploy/http/server.h"

namespace lmdeploy::testing {

struct FakeNodeOptions {
  std::vector<std::string> models = {"m"};
  int milliseconds = 0;  // until an answer
  int chunks = 3;        // of a stream
};

/// Answers a request with {"stream": true} in chunks; the chunk after `pause_after` waits for let_go().
class FakeNode {
 public:
  explicit FakeNode(FakeNodeOptions options = {});
  ~FakeNode();

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  int port() const { return port_; }
  /// All its connections break.
  void kill();
  void restart();

  int num_requests() const { return num_requests_; }
  int num_gone() const { return num_gone_; }
  int num_terminated() const { return num_terminated_; }
  int num_connections() const { return static_cast<int>(server_->counts().connections); }
  http::Request last_request() const;
  /// What health and requests answer; 200 means normal answers.
  void set_status(int status) { status_ = status; }
  /// Streams stop after so many chunks until let_go(), which may come before they do.
  void hold_after(int chunks);
  void let_go();
  /// Streams break off after so many chunks.
  void break_after(int chunks) { break_after_ = chunks; }

  static std::string chunk(int index);

 private:
  void start(int port);
  http::Task<> handle(http::Exchange& exchange);
  http::Task<> stream(http::Exchange& exchange);
  http::Task<> hold(http::Exchange& exchange);

  const FakeNodeOptions options_;
  std::atomic<int> port_ = 0;
  std::atomic<int> num_requests_ = 0, num_gone_ = 0, num_terminated_ = 0, status_ = 200, hold_after_ = -1,
                   break_after_ = -1;
  mutable std::mutex mutex_;
  http::Request last_request_;
  std::vector<http::Signal> held_;  // with `let_go_` under mutex_
  bool let_go_ = false;
  std::unique_ptr<http::Server> server_;
};

/// A node of which a test says what becomes of each connection.
class RawNode {
 public:
  explicit RawNode(std::function<void(RawClient& connection)> serve);
  ~RawNode();

  std::string url() const { return listener_.url(); }

 private:
  RawListener listener_;
  std::atomic<bool> done_ = false;
  std::thread thread_;
};

}  // namespace lmdeploy::testing
