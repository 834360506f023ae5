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
  for (BlockList& list : sequence.blocks) {
    for (int64_t i = std::max(count, list.first()); i < list.end(); ++i)
      list[i].set_keep(findable(list[i].key(), store));
    list.truncate(count);
  }
}

// The blocks that the same prompt, asked again, would read are let go of like everything else.
void drop_passed(Sequence& sequence, const BlockStore& store) {
  const int64_t end = std::max<int64_t>(0, sequence.prompt_end - 1) / store.groups.block_len();
  for (size_t group = 0; group < sequence.blocks.size(); ++group) {
    BlockList& list = sequence.blocks[group];
    const int64_t first = store.groups.first_read(group, sequence.cache_len);
    const int64_t begin = store.groups.first_read(group, end * store.groups.block_len());
    for (int64_t i = list.first(); i < std::min(first, list.end()); ++i)
      if (i < begin || i >= end) list[i].let_pass();
    list.drop_before(first);
  }
}

// Up to the first one that is gone: what follows it is of no use.
void take_resting(const RestingBlocks& resting, BlockList& list, const BlockStore& store) {
  list.drop_before(resting.first);
  bool gone = false;
  for (const BlockKey key : resting.keys) {
    std::optional<BlockHandle> handle;
    if (!gone) handle = store.blocks.acquire(key);
    gone = !handle;
    const bool keep = findable(key, store);
    if (handle) {
      handle->set_keep(keep);
      list.append(std::move(*handle));
    } else if (!keep) {
      store.blocks.discard(key);
    }
  }
}

void take_resting_blocks(Sequence& sequence, const BlockStore& store) {
  sequence.blocks.clear();
  sequence.blocks.resize(store.groups.size());
  for (size_t group = 0; group < sequence.resting_blocks.size(); ++group)
    take_resting(sequence.resting_blocks[group], sequence.blocks[group], store);
  sequence.resting_blocks.clear();
}

// Whether all groups have what the token at `length` reads.
bool readable(const Sequence& sequence, int64_t length, const BlockStore& store) {
  for (size_t group = 0; group < sequence.blocks.size(); ++group) {
    const BlockList& list = sequence.blocks[group];
    const bool all_there = list.first() <= store.groups.first_read(group, length) &&
                           list.end() >= store.groups.blocks_for(length);
    if (!all_there) return false;
  }
  return true;
}

// A shorter part of a sequence needs earlier blocks: what is not readable up to its last block is not
// readable at all.
int64_t longest_readable(const Sequence& sequence, int64_t num_tokens, const BlockStore& store) {
  for (const BlockList& list : sequence.blocks)
    num_tokens = std::min(num_tokens, list.end() * store.groups.block_len());
  return readable(sequence, num_tokens, store) ? num_tokens : 0;
}

void keep_first(Sequence& sequence, int64_t num_tokens, const BlockStore& store) {
  sequence.cache_len = longest_readable(sequence, num_tokens, store);
  drop_after(sequence, store.groups.blocks_for(sequence.cache_len), store);
}

// The next token to compute must fall into blocks that nobody else reads: at a border it gets new ones,
// inside blocks that others may find, their part is computed again.
void own_last_blocks(Sequence& sequence, const BlockStore& store) {
  const int64_t last = sequence.cache_len / store.groups.block_len();
  if (sequence.cache_len % store.groups.block_len() == 0) return;
  if (std::ranges::any_of(sequence.blocks, [&](const BlockList& list) { return list[last].is_shared(); })) {
    keep_first(sequence, last * store.groups.block_len(), store);
    return;
  }
  for (BlockList& list : sequence.blocks) list[last].make_private();
}

}  // namespace

void take_blocks(Sequence& sequence, const BlockStore& store) {
  take_resting_blocks(sequence, store);
  const int64_t limit = std::min(sequence.length() - 1, sequence.rows_from);
  keep_first(sequence, std::min(sequence.cache_len, limit), store);
  own_last_blocks(sequence, store);
  sequence.published = {};
  if (store.index != nullptr && sequence.cache_len % store.groups.block_len() == 0) {
    store.index->match(sequence.prefix_salt, sequence.tokens, limit, sequence.blocks);
    sequence.cache_len = sequence.blocks[0].end() * store.groups.block_len();
  }
  drop_passed(sequence, store);
}

bool take_room(Sequence& sequence, int64_t count, const BlockStore& store) {
  const auto end_of = [&](size_t group) {
    const int64_t next = sequence.cache_len + count;
    return store.groups.blocks_for(store.groups.is_full(group) ? std::max(sequence.length(), next) : next);
  };
  int64_t missing = 0;
  for (size_t group = 0; group < sequence.blocks.size(); ++group)
    missing += std::max<int64_t>(0, end_of(group) - sequence.blocks[group].end());
  if (missing > store.blocks.num_available()) return false;
  for (size_t group = 0; group < sequence.blocks.size(); ++group)
    while (sequence.blocks[group].end() < end_of(group))
      sequence.blocks[group].append(std::move(*store.blocks.allocate()));
  return true;
}

void advance(Sequence& sequence, int64_t count, const BlockStore& store) {
  sequence.cache_len += count;
  if (store.index != nullptr)
    store.index->publish(sequence.prefix_salt, sequence.tokens, sequence.cache_len, sequence.blocks,
                         sequence.published);
  drop_passed(sequence, store);
}

void give_back_room(Sequence& sequence, const BlockStore& store) {
  drop_after(sequence, store.groups.blocks_for(sequence.length()), store);
}

void rest(Sequence& sequence, const BlockStore& store) {
  if (sequence.blocks.empty()) return;
  drop_after(sequence, store.groups.blocks_for(sequence.cache_len), store);
  std::vector<RestingBlocks> resting(sequence.blocks.size());
  for (size_t group = 0; group < resting.size(); ++group) {
    BlockList& list = sequence.blocks[group];
    resting[group].first = list.first();
    for (int64_t i = list.first(); i < list.end(); ++i) {
      list[i].set_keep(true);
      resting[group].keys.push_back(list[i].key());
    }
  }
  sequence.resting_blocks = std::move(resting);
  sequence.blocks.clear();
}

void drop_blocks(Sequence& sequence, const BlockStore& store) {
  drop_after(sequence, 0, store);
  sequence.blocks.clear();
  for (const RestingBlocks& resting : sequence.resting_blocks)
    for (const BlockKey key : resting.keys)
      if (!findable(key, store)) store.blocks.discard(key);
  sequence.resting_blocks.clear();
  sequence.cache_len = 0;
}

void spoil_blocks(Sequence& sequence, const BlockStore& store) {
  const int64_t first = sequence.prompt_begin / store.groups.block_len();
  if (store.index != nullptr) store.index->forget(sequence.prefix_salt, sequence.tokens, first);
  for (BlockList& list : sequence.blocks) {
    for (int64_t i = std::max(first, list.first()); i < list.end(); ++i) store.blocks.spoil(list[i].key());
    list.truncate(first);
  }
  for (RestingBlocks& resting : sequence.resting_blocks) {
    const auto kept = static_cast<size_t>(std::max<int64_t>(0, first - resting.first));
    for (size_t i = kept; i < resting.keys.size(); ++i) store.blocks.spoil(resting.keys[i]);
    resting.keys.resize(std::min(kept, resting.keys.size()));
  }
  sequence.cache_len = std::min(sequence.cache_len, first * store.groups.block_len());
}

void truncate(Sequence& sequence, int64_t length) {
  sequence.tokens.resize(static_cast<size_t>(length));
  sequence.cache_len = std::min(sequence.cache_len, length);
}

}  // namespace lmdeploy
