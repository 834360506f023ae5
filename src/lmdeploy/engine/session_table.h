// Sessions between their requests.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>

#include "lmdeploy/engine/sequence.h"

namespace lmdeploy {

/// Keeps at most `max_resting` resting sessions: token ids and block keys, at most session_len * 4 bytes
/// each. Beyond that the one unused for longest is forgotten. One thread.
class SessionTable {
 public:
  enum class State { kUnknown, kResting, kBusy };

  SessionTable(int64_t max_resting, const BlockStore& store) : max_resting_(max_resting), store_(store) {}

  State state(uint64_t id) const;
  const Sequence& resting(uint64_t id) const { return *sessions_.at(id).sequence; }
  /// The request that a session is busy with; 0 when it is not.
  uint64_t request_of(uint64_t id) const;
  /// Marks an unknown session as busy.
  void open(uint64_t id, uint64_t request_id);
  /// The sequence of a resting session, which becomes busy.
  std::unique_ptr<Sequence> take(uint64_t id, uint64_t request_id);
  /// A busy session rests; its sequence has let go of its blocks. Needs no memory.
  void put_back(std::unique_ptr<Sequence> sequence);
  /// Forgets a session; of a resting one the blocks too. Unknown ids are ignored.
  void erase(uint64_t id);

  /// Resting and busy.
  int64_t size() const { return static_cast<int64_t>(sessions_.size()); }

 private:
  struct Session {
    std::unique_ptr<Sequence> sequence;   // nullptr: busy
    std::list<uint64_t>::iterator place;  // in by_age_ while resting, else in busy_
    uint64_t request_id = 0;              // while busy
  };

  int64_t max_resting_;
  BlockStore store_;
  std::unordered_map<uint64_t, Session> sessions_;
  std::list<uint64_t> by_age_;  // resting sessions, the one unused for longest first
  std::list<uint64_t> busy_;    // places to come back to
};

}  // namespace lmdeploy
