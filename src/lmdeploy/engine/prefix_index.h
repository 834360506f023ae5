// Finds blocks whose keys and values were computed for the same first tokens.
//
// A hash chain: a node stands for one block of tokens after all those before it and holds, for each group of
// layers, the key of the pool's block with their keys and values. A node is found by the hash of all tokens
// up to its end, and is taken only if its own tokens, its parent's id and the salt are equal too, so that a
// hash collision is a miss, never a wrong answer. A node outlives its blocks; its keys are invalid as soon as
// the block's unique id changes. One thread.
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>
#include <vector>

#include "lmdeploy/engine/block_groups.h"
#include "lmdeploy/engine/block_manager.h"

namespace lmdeploy {

/// How far a sequence's tokens are known to the index: the chain up to block `depth`.
struct PrefixCursor {
  int64_t depth = 0;  // blocks
  uint64_t hash = 0;  // of all tokens before `depth`
  uint64_t node = 0;  // id of the node at depth - 1
};

class PrefixIndex {
 public:
  /// Keeps at most `max_nodes` nodes, more than the pool has blocks; of those without any block left the one
  /// used longest ago goes first. `hash_mask` is for tests: with few bits every chain collides with others,
  /// and answers must not change.
  PrefixIndex(BlockManager& blocks, const BlockGroups& groups, int64_t max_nodes,
              uint64_t hash_mask = ~uint64_t{0});

  /// Takes blocks for the longest prefix of `tokens` that is at most `max_tokens` long and of which all that
  /// a token after it reads is there: everything in full groups, the last window in others. `lists`, one for
  /// each group, hold what the sequence has of its first blocks (all full, ending alike); when a longer
  /// prefix is found, the new blocks are appended and those that are not read any more let go of. `salt`
  /// stands for all that keys and values depend on besides the tokens: adapter, images, rope table.
  void match(uint64_t salt, std::span<const int> tokens, int64_t max_tokens, std::span<BlockList> lists);

  /// Makes the full blocks among the first `num_computed` tokens findable, from the cursor's depth on, and
  /// moves the cursor there. A block whose tokens are indexed already is left out.
  void publish(uint64_t salt, std::span<const int> tokens, int64_t num_computed, std::span<BlockList> lists,
               PrefixCursor& cursor);

  /// Spoils all that is indexed of `tokens`, from block `first` on. Needs no memory.
  void forget(uint64_t salt, std::span<const int> tokens, int64_t first);

  /// Whether this content can be found through the index.
  bool contains(BlockKey key) const;
  int64_t num_nodes() const { return static_cast<int64_t>(nodes_.size()); }

 private:
  struct Node {
    uint64_t id = 0;  // never used again
    uint64_t hash = 0;
    uint64_t salt = 0;
    PrefixCursor parent;
    std::vector<int> tokens;     // [block_len]
    std::vector<BlockKey> keys;  // [groups]
  };
  using Nodes = std::list<Node>;
  using Chain = std::vector<Nodes::iterator>;  // from the root on

  std::span<const int> block_tokens(std::span<const int> tokens, int64_t block) const;
  uint64_t chain_hash(uint64_t salt, const PrefixCursor& at, std::span<const int> tokens) const;
  /// The node for `tokens` (of one block) below `at`; end() when there is none.
  Nodes::iterator find(uint64_t hash, uint64_t salt, const PrefixCursor& at, std::span<const int> tokens);
  Nodes::iterator find_or_insert(uint64_t hash, uint64_t salt, const PrefixCursor& at,
                                 std::span<const int> tokens);
  /// Hands the nodes of the chain for `tokens` to `visit`, from the root on.
  template <typename Visit>
  void walk(uint64_t salt, std::span<const int> tokens, int64_t max_blocks, Visit&& visit);
  int64_t longest_usable(const Chain& chain, std::span<const BlockList> lists) const;
  void make_room();
  bool has_blocks(const Node& node) const;
  void touch(const Chain& chain);
  void touch(const PrefixCursor& cursor);

  BlockManager& blocks_;
  const BlockGroups& groups_;
  size_t max_nodes_;
  uint64_t hash_mask_;
  Nodes nodes_;  // the one used longest ago first, children before their parents
  std::unordered_map<uint64_t, Nodes::iterator> by_hash_;
  std::vector<uint64_t> hash_of_;  // by block id: of the node that last took the block
  uint64_t last_id_ = 0;
};

}  // namespace lmdeploy
