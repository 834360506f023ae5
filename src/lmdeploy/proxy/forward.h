// A request passed on to a node, and the node's answer passed back.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "lmdeploy/http/client.h"
#include "lmdeploy/http/exchange.h"
#include "lmdeploy/proxy/node_table.h"

namespace lmdeploy::proxy {

struct ForwardContext {
  NodeTable& table;
  http::Client& client;
  const std::string name;                // of this proxy among all, for "Via"
  bool tls = false;                      // towards clients
  std::atomic<int64_t> num_retries = 0;  // at another node
  std::atomic<int64_t> num_broken = 0;   // streams that a node broke off
};

/// Answers `exchange` through a node that has the model of its body. Until a byte of the answer's body has
/// come, a node that fails or is too busy (503) is replaced by another one; from then on what it sends is
/// passed on at once and unchanged. Throws Error(kInvalidData) for a body that is no request.
http::Task<> forward(http::Exchange& exchange, ForwardContext& context);

}  // namespace lmdeploy::proxy
