// Sequences that wait for their turn.
#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "lmdeploy/engine/sequence.h"

namespace lmdeploy {

/// In order of arrival (request_id), also when one comes back. Nothing here takes longer than O(log n), so
/// that a million waiting requests can be cancelled one by one. `Less` is for tests: it counts.
template <typename Less = std::less<>>
class BasicWaitingLine {
 public:
  bool empty() const { return entries_.empty(); }
  int64_t size() const { return static_cast<int64_t>(entries_.size()); }
  /// Tokens to compute before the last of each sequence, in all.
  int64_t prompt_tokens() const { return prompt_tokens_; }
  Sequence& front() const { return *entries_.begin()->second.sequence; }

  void insert(Sequence& sequence) {
    const int64_t tokens = sequence.num_pending() - 1;
    if (entries_.try_emplace(sequence.request_id, Entry{&sequence, tokens}).second) prompt_tokens_ += tokens;
  }
  /// Whether it was there. The sequence may have changed since. Needs no memory.
  bool remove(const Sequence& sequence) {
    const auto found = entries_.find(sequence.request_id);
    if (found == entries_.end() || found->second.sequence != &sequence) return false;
    prompt_tokens_ -= found->second.prompt_tokens;
    entries_.erase(found);
    return true;
  }

 private:
  struct Entry {
    Sequence* sequence = nullptr;
    int64_t prompt_tokens = 0;  // as counted
  };
  std::map<uint64_t, Entry, Less> entries_;
  int64_t prompt_tokens_ = 0;
};

using WaitingLine = BasicWaitingLine<>;

}  // namespace lmdeploy
