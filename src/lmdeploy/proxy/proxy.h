// The request distributor: one address in front of several api_servers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lmdeploy/http/client.h"
#include "lmdeploy/http/server.h"
#include "lmdeploy/proxy/probes.h"
#include "lmdeploy/proxy/strategy.h"

namespace lmdeploy::proxy {

struct ProxyOptions {
  http::ServerOptions server;
  http::ClientOptions client;
  ProbeOptions probes;
  Strategy strategy = Strategy::kMinExpectedLatency;
  std::vector<std::string> api_keys;  // none: everybody may ask
  std::string node_file;              // where nodes are kept; empty: nowhere
};

class Proxy {
 public:
  /// Serves from now on. Throws Error(kIo) for an address, TLS file or node file that cannot be used. A node
  /// file with broken contents is kept beside as FILE.broken, and named in the log.
  explicit Proxy(ProxyOptions options);
  ~Proxy();  // stop()
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  int port() const;
  NodeTable& nodes();
  /// As of http::Server.
  bool drain(std::chrono::milliseconds timeout);
  void stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lmdeploy::proxy
