#include "lmdeploy/serve/request_registry.h"

#include "lmdeploy/serve/api_error.h"

namespace lmdeploy {

RequestRegistry::Entry RequestRegistry::add(int64_t session_id, const http::Signal& signal) {
  const auto abort = std::make_shared<AbortSwitch>(signal);
  const std::lock_guard lock(mutex_);
  if (session_id < 0) {
    while (running_.contains(next_id_)) ++next_id_;
    session_id = next_id_++;
  }
  if (!running_.emplace(session_id, abort).second)
    refuse_field("session_id", cat("The session_id ", session_id, " is occupied."));
  return Entry(*this, session_id, abort);
}

bool RequestRegistry::abort(int64_t session_id) {
  const std::lock_guard lock(mutex_);
  const auto found = running_.find(session_id);
  if (found == running_.end()) return false;
  found->second->set();
  return true;
}

void RequestRegistry::abort_all() {
  const std::lock_guard lock(mutex_);
  for (const auto& entry : running_) entry.second->set();
}

void RequestRegistry::remove(int64_t id) {
  const std::lock_guard lock(mutex_);
  running_.erase(id);
}

}  // namespace lmdeploy
