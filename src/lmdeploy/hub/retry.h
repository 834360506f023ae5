// When to ask a server again, and how long to wait before.
#pragma once

#include <chrono>
#include <functional>

#include "lmdeploy/hub/config.h"
#include "lmdeploy/hub/http_client.h"

namespace lmdeploy {

/// The tries of one request.
class Retry {
 public:
  using Pause = std::function<void(std::chrono::milliseconds)>;
  Retry(const HubPatience& patience, Pause pause) : patience_(patience), pause_(std::move(pause)) {}

  /// Whether to send the request again, after the pause that is due. `progress`: bytes of the file came,
  /// which begins the counting anew.
  bool again(const HttpReply& reply, bool progress = false);

 private:
  const HubPatience& patience_;
  Pause pause_;
  int tries_ = 0;
};

/// A reply that says "not now": 408, 429 and 5xx, or none at all.
bool is_passing_failure(const HttpReply& reply);

}  // namespace lmdeploy
