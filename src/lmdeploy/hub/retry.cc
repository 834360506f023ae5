#include "lmdeploy/hub/retry.h"

#include <algorithm>

#include "lmdeploy/core/log.h"
#include "lmdeploy/hub/replies.h"

namespace lmdeploy {

bool is_passing_failure(const HttpReply& reply) {
  if (!reply.trouble.empty()) return true;
  return reply.status == 408 || reply.status == 429 || reply.status >= 500;
}

bool Retry::again(const HttpReply& reply, bool progress) {
  const bool hopeless = !reply.trouble.empty() && !reply.retryable;
  if (hopeless || !is_passing_failure(reply)) return false;
  tries_ = progress ? 1 : tries_ + 1;
  if (tries_ >= patience_.max_tries) return false;
  const int64_t backoff_ms = int64_t{patience_.first_pause_ms} << std::min(tries_ - 1, 20);
  const int64_t asked_ms = std::clamp<int64_t>(reply.retry_after_s, 0, 1'000'000) * 1000;
  if (asked_ms > patience_.longest_pause_ms) return false;
  const std::chrono::milliseconds due(
      std::max(asked_ms, std::min<int64_t>(backoff_ms, patience_.longest_pause_ms)));
  LMD_LOG(kInfo, describe_failure(reply), "; next try in ", due.count(), " ms");
  pause_(due);
  return true;
}

}  // namespace lmdeploy
