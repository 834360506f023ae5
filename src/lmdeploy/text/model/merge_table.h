// Which two neighbouring tokens join into which, and how early: an open-addressing table for the inner loop.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "lmdeploy/core/random.h"

namespace lmdeploy {

/// A merge: rank (lower joins first) in the upper half, the joined token's id in the lower, so that comparing
/// merges compares ranks.
using Merge = uint64_t;
inline constexpr Merge kNoMerge = ~uint64_t{0};
inline Merge make_merge(uint32_t rank, int id) { return uint64_t{rank} << 32 | static_cast<uint32_t>(id); }
inline int merged_id(Merge merge) { return static_cast<int>(static_cast<uint32_t>(merge)); }

/// Immutable once filled; thread-safe then.
class MergeTable {
 public:
  explicit MergeTable(size_t max_merges = 0)
      : entries_(std::bit_ceil(max_merges + max_merges / 2 + 2)),
        mask_(entries_.size() - 1),
        hints_((entries_.size() * kHintsPerEntry + 63) / 64) {}

  /// At most `max_merges` different pairs. A pair that is there gets the new merge.
  void add(int left, int right, Merge merge) {
    const uint64_t key = key_of(left, right), hash = mix_bits(key);
    entries_[slot_of(key, hash)] = {key, merge};
    hints_[hint_of(hash) / 64] |= uint64_t{1} << hint_of(hash) % 64;
  }
  /// Begins to fetch what add() will look at.
  void prefetch(int left, int right) const {
    __builtin_prefetch(&entries_[mix_bits(key_of(left, right)) & mask_]);
  }
  /// kNoMerge when the two do not join.
  Merge find(int left, int right) const {
    const uint64_t key = key_of(left, right), hash = mix_bits(key);
    if (!(hints_[hint_of(hash) / 64] >> hint_of(hash) % 64 & 1)) return kNoMerge;
    return entries_[slot_of(key, hash)].merge;
  }

 private:
  struct Entry {
    uint64_t key = kFree;
    Merge merge = kNoMerge;
  };
  static constexpr uint64_t kFree = ~uint64_t{0};
  static constexpr size_t kHintsPerEntry = 8;
  static uint64_t key_of(int left, int right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  size_t slot_of(uint64_t key, uint64_t hash) const {
    size_t slot = hash & mask_;
    while (entries_[slot].key != key && entries_[slot].key != kFree) slot = (slot + 1) & mask_;
    return slot;
  }
  size_t hint_of(uint64_t hash) const { return hash >> 32 & (mask_ * kHintsPerEntry + kHintsPerEntry - 1); }

  std::vector<Entry> entries_;
  size_t mask_;
  /// One bit for each of many hashes: most pairs do not join, and this says so from a part of the memory.
  std::vector<uint64_t> hints_;
};

}  // namespace lmdeploy
