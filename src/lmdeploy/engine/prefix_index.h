// Finds blocks whose keys and values were computed for the same first tokens.
//
// A hash chain: a block's entry is found by the hash of all tokens up to its end, and is taken only if its
// own tokens, its parent block's unique id and the salt are equal too, so that a hash collision is a miss,
// never a wrong answer. Entries are invalid as soon as the block's unique id changes. At most one entry a
// block of the pool. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "lmdeploy/engine/block_manager.h"

namespace lmdeploy {

/// How far a sequence's tokens are known to the index: the chain up to block `depth`.
struct PrefixCursor {
  int64_t depth = 0;    // blocks
  uint64_t hash = 0;    // of all tokens before `depth`
  uint64_t parent = 0;  // unique id of the indexed block at depth - 1
};

class PrefixIndex {
 public:
  /// `hash_mask` is for tests: with few bits every chain collides with others, and answers must not change.
  PrefixIndex(BlockManager& blocks, int64_t block_len, uint64_t hash_mask = ~uint64_t{0});

  /// Takes blocks for the longest indexed prefix of `tokens` that is at most `max_tokens` long, and appends
  /// those past the end of `list` to it. `list` holds the sequence's own first blocks already (all full).
  /// `salt` stands for all that keys and values depend on besides the tokens: adapter, images, rope table.
  void match(uint64_t salt, std::span<const int> tokens, int64_t max_tokens, BlockList& list);

  /// Makes the full blocks among the first `num_computed` tokens findable, from the cursor's depth on, and
  /// moves the cursor there. A block whose tokens are indexed already is left out.
  void publish(uint64_t salt, std::span<const int> tokens, int64_t num_computed, BlockList& list,
               PrefixCursor& cursor);

  /// Whether this content can be found through the index.
  bool contains(BlockKey key) const;
  /// Entries that still find a block.
  int64_t num_valid() const;

 private:
  struct Entry {  // of one block of the pool
    uint64_t unique_id = 0;
    uint64_t hash = 0;
    uint64_t parent = 0;
    uint64_t salt = 0;
    std::vector<int> tokens;  // [block_len]
  };
  uint64_t chain_hash(uint64_t salt, const PrefixCursor& at, std::span<const int> tokens) const;
  /// The entry for `tokens` (of one block) below `at`; unique_id 0 when there is none.
  BlockKey find(uint64_t hash, uint64_t salt, const PrefixCursor& at, std::span<const int> tokens) const;
  void insert(uint64_t hash, uint64_t salt, const PrefixCursor& at, std::span<const int> tokens,
              BlockKey key);

  BlockManager& blocks_;
  int64_t block_len_;
  uint64_t hash_mask_;
  std::vector<Entry> entries_;                     // by block id
  std::unordered_map<uint64_t, int32_t> by_hash_;  // chain hash -> block id
};

}  // namespace lmdeploy
