// Asks the nodes for their health, on a thread of its own.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "lmdeploy/proxy/node_table.h"

namespace lmdeploy::proxy {

struct ProbeOptions {
  std::chrono::milliseconds interval{90'000};    // of nodes that are up
  std::chrono::milliseconds first_retry{200};    // of one that is out: doubled each time
  std::chrono::milliseconds last_retry{10'000};  // up to this
  std::chrono::milliseconds timeout{5'000};      // of an answer
};

/// `options` with the time limits of a probe.
http::ClientOptions limited(http::ClientOptions options, const ProbeOptions& probe);

/// GET /health: 200 is up; 404 too, of servers that have no such route. Everything else, and silence, is out.
class Probes {
 public:
  /// `proxy_name`: for "Via". `each_round` is called now and then, twice a minute at least.
  Probes(NodeTable& table, http::ClientOptions client_options, ProbeOptions options, std::string proxy_name,
         std::function<void()> each_round);
  ~Probes();
  Probes(const Probes&) = delete;
  Probes& operator=(const Probes&) = delete;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lmdeploy::proxy
