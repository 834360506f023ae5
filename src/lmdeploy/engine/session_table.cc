// Who rests, in which order.
#include "lmdeploy/engine/session_table.h"

#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/log.h"

namespace lmdeploy {

SessionTable::State SessionTable::state(uint64_t id) const {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return State::kUnknown;
  return found->second.sequence ? State::kResting : State::kBusy;
}

uint64_t SessionTable::request_of(uint64_t id) const {
  const auto found = sessions_.find(id);
  return found == sessions_.end() || found->second.sequence ? 0 : found->second.request_id;
}

void SessionTable::open(uint64_t id, uint64_t request_id) {
  std::list<uint64_t> place{id};
  const bool is_new = sessions_.try_emplace(id, Session{nullptr, place.begin(), request_id}).second;
  LMD_CHECK(is_new, "session ", id);
  busy_.splice(busy_.end(), place);
}

std::unique_ptr<Sequence> SessionTable::take(uint64_t id, uint64_t request_id) {
  Session& session = sessions_.at(id);
  LMD_CHECK(session.sequence != nullptr, "session ", id, " is busy");
  busy_.splice(busy_.end(), by_age_, session.place);
  session.request_id = request_id;
  return std::move(session.sequence);
}

void SessionTable::put_back(std::unique_ptr<Sequence> sequence) {
  const uint64_t id = sequence->session_id;
  Session& session = sessions_.at(id);
  session.sequence = std::move(sequence);
  by_age_.splice(by_age_.end(), busy_, session.place);
  if (static_cast<int64_t>(by_age_.size()) <= max_resting_) return;
  LMD_LOG(kInfo, "more than ", max_resting_, " idle sessions: forgetting session ", by_age_.front());
  erase(by_age_.front());
}

void SessionTable::erase(uint64_t id) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  Session& session = found->second;
  if (session.sequence) drop_blocks(*session.sequence, store_);
  (session.sequence ? by_age_ : busy_).erase(session.place);
  sessions_.erase(found);
}

}  // namespace lmdeploy
