// How blocks move between a sequence, the prefix index and the pool.
#include "lmdeploy/engine/sequence.h"

#include <algorithm>
#include <utility>

namespace lmdeploy {
namespace {

bool findable(BlockKey key, const BlockStore& store) {
  return store.index != nullptr && store.index->contains(key);
}

// Lets go of all but the first `count` blocks; only what the prefix index can find stays cached.
void drop_after(Sequence& sequence, int64_t count, const BlockStore& store) {
  for (int64_t i = count; i < sequence.blocks.size(); ++i)
    sequence.blocks[i].set_keep(findable(sequence.blocks[i].key(), store));
  sequence.blocks.truncate(count);
}

// Up to the first one that is gone: what follows it is of no use.
void take_resting_blocks(Sequence& sequence, const BlockStore& store) {
  bool gone = false;
  for (const BlockKey key : sequence.resting_blocks) {
    std::optional<BlockHandle> handle;
    if (!gone) handle = store.blocks.acquire(key);
    gone = !handle;
    if (handle) {
      sequence.blocks.append(std::move(*handle));
    } else if (!findable(key, store)) {
      store.blocks.discard(key);
    }
  }
  sequence.resting_blocks.clear();
}

// The next token to compute must fall into a block that nobody else reads: at a border it gets a new one,
// inside a block that others may find, the block's part is computed again.
void keep_first(Sequence& sequence, int64_t num_tokens, const BlockStore& store) {
  sequence.cache_len = std::min(num_tokens, sequence.blocks.size() * store.block_len);
  drop_after(sequence, store.blocks_for(sequence.cache_len), store);
  if (sequence.cache_len % store.block_len == 0) return;
  const int64_t last = sequence.blocks.size() - 1;
  if (sequence.blocks[last].make_private()) return;
  drop_after(sequence, last, store);
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
  drop_after(sequence, store.blocks_for(sequence.cache_len), store);
  for (int64_t i = 0; i < sequence.blocks.size(); ++i) {
    sequence.blocks[i].set_keep(true);
    sequence.resting_blocks.push_back(sequence.blocks[i].key());
  }
  sequence.blocks.truncate(0);
}

void drop_blocks(Sequence& sequence, const BlockStore& store) {
  drop_after(sequence, 0, store);
  for (const BlockKey key : sequence.resting_blocks)
    if (!findable(key, store)) store.blocks.discard(key);
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
