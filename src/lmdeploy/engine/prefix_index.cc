// The hash chain and its nodes.
#include "lmdeploy/engine/prefix_index.h"

#include <algorithm>
#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/random.h"

namespace lmdeploy {

PrefixIndex::PrefixIndex(BlockManager& blocks, const BlockGroups& groups, int64_t max_nodes,
                         uint64_t hash_mask)
    : blocks_(blocks),
      groups_(groups),
      max_nodes_(static_cast<size_t>(max_nodes)),
      hash_mask_(hash_mask),
      hash_of_(static_cast<size_t>(blocks.num_total())) {
  LMD_CHECK(max_nodes > blocks.num_total(), max_nodes, " nodes for ", blocks.num_total(), " blocks");
}

std::span<const int> PrefixIndex::block_tokens(std::span<const int> tokens, int64_t block) const {
  const auto block_len = static_cast<size_t>(groups_.block_len());
  return tokens.subspan(static_cast<size_t>(block) * block_len, block_len);
}

uint64_t PrefixIndex::chain_hash(uint64_t salt, const PrefixCursor& at, std::span<const int> tokens) const {
  uint64_t hash = at.depth == 0 ? mix_bits(salt + 1) : at.hash;
  for (const int token : tokens) hash = mix_bits(hash ^ static_cast<uint64_t>(token)) + 1;
  return hash & hash_mask_;
}

PrefixIndex::Nodes::iterator PrefixIndex::find(uint64_t hash, uint64_t salt, const PrefixCursor& at,
                                               std::span<const int> tokens) {
  const auto found = by_hash_.find(hash);
  if (found == by_hash_.end()) return nodes_.end();
  const Node& node = *found->second;
  const bool same =
      node.salt == salt && node.parent.node == at.node && std::ranges::equal(node.tokens, tokens);
  return same ? found->second : nodes_.end();
}

// A node with the same hash and other content gives way; its children are not reached any more.
PrefixIndex::Nodes::iterator PrefixIndex::find_or_insert(uint64_t hash, uint64_t salt, const PrefixCursor& at,
                                                         std::span<const int> tokens) {
  const auto known = find(hash, salt, at, tokens);
  if (known != nodes_.end()) return known;
  Nodes one;
  one.push_back({.id = ++last_id_,
                 .hash = hash,
                 .salt = salt,
                 .parent = at,
                 .tokens = {tokens.begin(), tokens.end()},
                 .keys = std::vector<BlockKey>(groups_.size())});
  const auto [place, is_new] = by_hash_.try_emplace(hash, one.begin());
  if (!is_new) nodes_.erase(std::exchange(place->second, one.begin()));
  nodes_.splice(nodes_.end(), one);
  if (nodes_.size() > max_nodes_) make_room();
  return std::prev(nodes_.end());
}

// The pool's blocks are shared among fewer nodes than there are, so that one without any is found.
void PrefixIndex::make_room() {
  while (has_blocks(nodes_.front())) nodes_.splice(std::prev(nodes_.end()), nodes_, nodes_.begin());
  by_hash_.erase(nodes_.front().hash);
  nodes_.pop_front();
}

bool PrefixIndex::has_blocks(const Node& node) const {
  return std::ranges::any_of(node.keys, [&](BlockKey key) { return blocks_.holds(key); });
}

template <typename Visit>
void PrefixIndex::walk(uint64_t salt, std::span<const int> tokens, int64_t max_blocks, Visit&& visit) {
  for (PrefixCursor at; at.depth < max_blocks;) {
    const auto part = block_tokens(tokens, at.depth);
    const uint64_t hash = chain_hash(salt, at, part);
    const auto node = find(hash, salt, at, part);
    if (node == nodes_.end()) return;
    visit(node);
    at = {at.depth + 1, hash, node->id};
  }
}

// The longest part of the chain, in blocks, after which each group has all that the next token reads.
int64_t PrefixIndex::longest_usable(const Chain& chain, std::span<const BlockList> lists) const {
  int64_t best = 0;
  std::vector<int64_t> unbroken(groups_.size(), 0);  // since which block all are there
  for (int64_t depth = 1; depth <= static_cast<int64_t>(chain.size()); ++depth) {
    const Node& node = *chain[static_cast<size_t>(depth - 1)];
    bool usable = true;
    for (size_t group = 0; group < groups_.size(); ++group) {
      if (!lists[group].has(depth - 1) && !blocks_.holds(node.keys[group])) unbroken[group] = depth;
      usable &= unbroken[group] <= groups_.first_read(group, depth * groups_.block_len());
    }
    if (usable) best = depth;
  }
  return best;
}

void PrefixIndex::match(uint64_t salt, std::span<const int> tokens, int64_t max_tokens,
                        std::span<BlockList> lists) {
  Chain chain;
  walk(salt, tokens, max_tokens / groups_.block_len(), [&](auto node) { chain.push_back(node); });
  const int64_t depth = longest_usable(chain, lists);
  chain.resize(static_cast<size_t>(depth));
  touch(chain);
  if (depth <= lists[0].end()) return;
  for (size_t group = 0; group < groups_.size(); ++group) {
    BlockList& list = lists[group];
    list.drop_before(groups_.first_read(group, depth * groups_.block_len()));
    while (list.end() < depth)
      list.append(std::move(*blocks_.acquire(chain[static_cast<size_t>(list.end())]->keys[group])));
  }
}

void PrefixIndex::publish(uint64_t salt, std::span<const int> tokens, int64_t num_computed,
                          std::span<BlockList> lists, PrefixCursor& cursor) {
  const int64_t num_blocks = num_computed / groups_.block_len();
  if (cursor.depth >= num_blocks) return;
  while (cursor.depth < num_blocks) {
    const auto part = block_tokens(tokens, cursor.depth);
    const uint64_t hash = chain_hash(salt, cursor, part);
    Node& node = *find_or_insert(hash, salt, cursor, part);
    for (size_t group = 0; group < groups_.size(); ++group) {
      if (!lists[group].has(cursor.depth) || blocks_.holds(node.keys[group])) continue;
      BlockHandle& own = lists[group][cursor.depth];
      node.keys[group] = own.key();
      hash_of_[static_cast<size_t>(own.id())] = hash;
      own.set_keep(true);
    }
    cursor = {cursor.depth + 1, hash, node.id};
  }
  touch(cursor);
}

void PrefixIndex::forget(uint64_t salt, std::span<const int> tokens, int64_t first) {
  int64_t depth = 0;
  walk(salt, tokens, static_cast<int64_t>(tokens.size()) / groups_.block_len(), [&](auto node) {
    if (depth++ < first) return;
    for (BlockKey& key : node->keys) blocks_.spoil(std::exchange(key, {}));
  });
}

bool PrefixIndex::contains(BlockKey key) const {
  if (key.unique_id == 0) return false;
  const auto found = by_hash_.find(hash_of_[static_cast<size_t>(key.id)]);
  return found != by_hash_.end() && std::ranges::find(found->second->keys, key) != found->second->keys.end();
}

// From the tail, so that a chain loses its tail first.
void PrefixIndex::touch(const Chain& chain) {
  for (auto node = chain.rbegin(); node != chain.rend(); ++node) nodes_.splice(nodes_.end(), nodes_, *node);
}

void PrefixIndex::touch(const PrefixCursor& cursor) {
  PrefixCursor at = cursor;
  while (at.depth > 0) {
    const auto found = by_hash_.find(at.hash);
    if (found == by_hash_.end() || found->second->id != at.node) return;
    nodes_.splice(nodes_.end(), nodes_, found->second);
    at = found->second->parent;
  }
}

}  // namespace lmdeploy
