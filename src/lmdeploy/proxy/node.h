// What the proxy knows of an api_server, and its form as JSON.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "lmdeploy/core/json.h"

namespace lmdeploy::proxy {

struct NodeStatus {
  std::vector<std::string> models;
  int64_t unfinished = 0;      // requests in flight through this proxy
  std::deque<double> latency;  // seconds of the last 15 requests, oldest first
  std::optional<double> speed;
  std::string role = "Hybrid";
};

/// A node's own word for itself, or a file's: `where` begins the message of the Error(kInvalidData).
/// "unfinished" is checked and forgotten: nothing is in flight yet.
NodeStatus parse_status(const Json& value, const std::string& where);
JsonObject status_json(const NodeStatus& status);

/// The ids in an answer of /v1/models.
std::vector<std::string> parse_model_list(const Json& value, const std::string& where);

}  // namespace lmdeploy::proxy
