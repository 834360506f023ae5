// The hash chain and its entries.
#include "lmdeploy/engine/prefix_index.h"

#include <algorithm>
#include <utility>

#include "lmdeploy/core/random.h"

namespace lmdeploy {

PrefixIndex::PrefixIndex(BlockManager& blocks, int64_t block_len, uint64_t hash_mask)
    : blocks_(blocks),
      block_len_(block_len),
      hash_mask_(hash_mask),
      entries_(static_cast<size_t>(blocks.num_total())) {}

uint64_t PrefixIndex::chain_hash(uint64_t salt, const PrefixCursor& at, std::span<const int> tokens) const {
  uint64_t hash = at.depth == 0 ? mix_bits(salt + 1) : at.hash;
  for (const int token : tokens) hash = mix_bits(hash ^ static_cast<uint64_t>(token)) + 1;
  return hash & hash_mask_;
}

void PrefixIndex::match(uint64_t salt, std::span<const int> tokens, int64_t max_tokens, BlockList& list) {
  PrefixCursor at;
  while ((at.depth + 1) * block_len_ <= max_tokens) {
    const auto part =
        tokens.subspan(static_cast<size_t>(at.depth * block_len_), static_cast<size_t>(block_len_));
    const uint64_t hash = chain_hash(salt, at, part);
    const BlockKey key = find(hash, salt, at, part);
    if (key.unique_id == 0) return;
    if (at.depth >= list.size()) list.append(std::move(*blocks_.acquire(key)));
    at = {at.depth + 1, hash, key.unique_id};
  }
}

void PrefixIndex::publish(uint64_t salt, std::span<const int> tokens, int64_t num_computed, BlockList& list,
                          PrefixCursor& cursor) {
  while ((cursor.depth + 1) * block_len_ <= num_computed) {
    const auto part =
        tokens.subspan(static_cast<size_t>(cursor.depth * block_len_), static_cast<size_t>(block_len_));
    const uint64_t hash = chain_hash(salt, cursor, part);
    BlockKey key = find(hash, salt, cursor, part);
    if (key.unique_id == 0) {
      BlockHandle& own = list[cursor.depth];
      key = own.key();
      own.set_keep(true);
      insert(hash, salt, cursor, part, key);
    }
    cursor = {cursor.depth + 1, hash, key.unique_id};
  }
}

BlockKey PrefixIndex::find(uint64_t hash, uint64_t salt, const PrefixCursor& at,
                           std::span<const int> tokens) const {
  const auto found = by_hash_.find(hash);
  if (found == by_hash_.end()) return {};
  const Entry& entry = entries_[static_cast<size_t>(found->second)];
  const BlockKey key = {found->second, entry.unique_id};
  const bool same =
      entry.salt == salt && entry.parent == at.parent && std::ranges::equal(entry.tokens, tokens);
  return same && blocks_.holds(key) ? key : BlockKey{};
}

void PrefixIndex::insert(uint64_t hash, uint64_t salt, const PrefixCursor& at, std::span<const int> tokens,
                         BlockKey key) {
  Entry& entry = entries_[static_cast<size_t>(key.id)];
  // The block's former content leaves the map, unless another block has taken its place there.
  const auto former = by_hash_.find(entry.hash);
  if (entry.unique_id != 0 && former != by_hash_.end() && former->second == key.id) by_hash_.erase(former);
  entry.unique_id = key.unique_id;
  entry.hash = hash;
  entry.parent = at.parent;
  entry.salt = salt;
  entry.tokens.assign(tokens.begin(), tokens.end());
  by_hash_[hash] = key.id;
}

bool PrefixIndex::contains(BlockKey key) const {
  const Entry& entry = entries_[static_cast<size_t>(key.id)];
  if (key.unique_id == 0 || entry.unique_id != key.unique_id) return false;
  const auto found = by_hash_.find(entry.hash);
  return found != by_hash_.end() && found->second == key.id;
}

int64_t PrefixIndex::num_valid() const {
  return std::ranges::count_if(by_hash_, [&](const auto& item) {
    return blocks_.holds({item.second, entries_[static_cast<size_t>(item.second)].unique_id});
  });
}

}  // namespace lmdeploy
