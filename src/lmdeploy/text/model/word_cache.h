// Remembers the tokens of short words. Fixed size; one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "lmdeploy/core/random.h"

namespace lmdeploy {

/// Direct-mapped: a word has one slot of a cache line's size, and the latest word keeps it.
class WordCache {
 public:
  WordCache() : slots_(kNumSlots) {}

  /// Appends the word's ids, if they are there.
  bool find(std::string_view word, std::vector<int>& ids) const {
    if (word.size() > kMaxWord) return false;
    const Key key = key_of(word);
    const Slot& slot = slots_[index_of(key)];
    if (slot.size != word.size() || slot.key != key) return false;
    ids.insert(ids.end(), slot.ids, slot.ids + slot.num_ids);
    return true;
  }

  void put(std::string_view word, std::span<const int> ids) {
    if (word.empty() || word.size() > kMaxWord || ids.empty() || ids.size() > kMaxIds) return;
    const Key key = key_of(word);
    Slot& slot = slots_[index_of(key)];
    slot.key = key;
    slot.size = static_cast<uint8_t>(word.size());
    slot.num_ids = static_cast<uint8_t>(ids.size());
    std::memcpy(slot.ids, ids.data(), ids.size() * sizeof(int));
  }

 private:
  static constexpr size_t kNumSlots = size_t{1} << 15;  // 2 MiB
  static constexpr size_t kMaxWord = 24;                // bytes
  static constexpr size_t kMaxIds = 9;
  using Key = std::array<uint64_t, 3>;  // the word's bytes, then zeros
  struct alignas(64) Slot {
    Key key{};
    int ids[kMaxIds]{};
    uint8_t size = 0;  // 0: free
    uint8_t num_ids = 0;
  };
  static_assert(sizeof(Slot) == 64);

  static Key key_of(std::string_view word) {
    Key key{};
    std::memcpy(key.data(), word.data(), word.size());
    return key;
  }
  static size_t index_of(const Key& key) {
    return mix_bits(key[0] + mix_bits(key[1] + mix_bits(key[2]) * 3) * 5) & (kNumSlots - 1);
  }

  std::vector<Slot> slots_;
};

}  // namespace lmdeploy
