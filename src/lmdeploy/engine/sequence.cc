// How blocks move between a sequence, the prefix index and the pool.
#include "lmdeploy/engine/sequence.h"

#include <algorithm>
#include <utility>

namespace lmdeploy {
namespace {

void take_resting_blocks(Sequence& sequence, const BlockStore& store) {
  for (const BlockKey key : sequence.resting_blocks) {
    std::optional<BlockHandle> handle = store.blocks.acquire(key);
    if (!handle) break;
    sequence.blocks.append(std::move(*handle));
  }
  sequence.resting_blocks.clear();
}

// The next token to compute must fall into a block that nobody else reads: at a border it gets a new one,
// inside a block that others may find, the block's part is computed again.
void keep_first(Sequence& sequence, int64_t num_tokens, const BlockStore& store) {
  sequence.cache_len = std::min(num_tokens, sequence.blocks.size() * store.block_len);
  sequence.blocks.truncate(store.blocks_for(sequence.cache_len));
  if (sequence.cache_len % store.block_len == 0) return;
  const int64_t last = sequence.blocks.size() - 1;
  if (sequence.blocks[last].make_private()) return;
  sequence.blocks.truncate(last);
  sequence.cache_len = last * store.block_len;
}

}  // namespace

void take_blocks(Sequence& sequence, const BlockStore& store) {
  take_resting_blocks(sequence, store);
  const int64_t limit = std::min(sequence.length() - 1, sequence.rows_from);
  keep_first(sequence, std::min(sequence.cache_len, limit), store);
  sequence.published = {};
  if (store.index == nullptr || sequence.cache_len % store.block_len != 0) return;
  store.index->match(sequence.prefix_salt, sequence.tokens, limit, sequence.blocks);
  sequence.cache_len = sequence.blocks.size() * store.block_len;
}

void publish_blocks(Sequence& sequence, const BlockStore& store) {
  if (store.index == nullptr) return;
  store.index->publish(sequence.prefix_salt, sequence.tokens, sequence.cache_len, sequence.blocks,
                       sequence.published);
}

void rest(Sequence& sequence, const BlockStore& store) {
  sequence.blocks.truncate(store.blocks_for(sequence.cache_len));
  for (int64_t i = 0; i < sequence.blocks.size(); ++i) {
    sequence.blocks[i].set_keep(true);
    sequence.resting_blocks.push_back(sequence.blocks[i].key());
  }
  sequence.blocks.truncate(0);
}

void drop_blocks(Sequence& sequence, const BlockStore& store) {
  const auto findable = [&](BlockKey key) { return store.index != nullptr && store.index->contains(key); };
  for (int64_t i = 0; i < sequence.blocks.size(); ++i)
    sequence.blocks[i].set_keep(findable(sequence.blocks[i].key()));
  sequence.blocks.truncate(0);
  for (const BlockKey key : sequence.resting_blocks)
    if (!findable(key)) store.blocks.discard(key);
  sequence.resting_blocks.clear();
  sequence.cache_len = 0;
}

void spoil_blocks(Sequence& sequence, const BlockStore& store) {
  const int64_t first = sequence.prompt_begin / store.block_len;
  for (int64_t i = first; i < sequence.blocks.size(); ++i) sequence.blocks[i].spoil();
  sequence.blocks.truncate(first);
  sequence.cache_len = std::min(sequence.cache_len, first * store.block_len);
}

void truncate(Sequence& sequence, int64_t length) {
  sequence.tokens.resize(static_cast<size_t>(length));
  sequence.cache_len = std::min(sequence.cache_len, length);
}

}  // namespace lmdeploy
