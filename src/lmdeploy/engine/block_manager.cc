// Reference counts, the heap of free ids and the list of cached blocks.
#include "lmdeploy/engine/block_manager.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <unordered_set>
#include <utility>

#include "lmdeploy/core/error.h"

namespace lmdeploy {

BlockHandle::BlockHandle(BlockHandle&& other) noexcept
    : manager_(std::exchange(other.manager_, nullptr)), id_(std::exchange(other.id_, -1)) {}

BlockHandle& BlockHandle::operator=(BlockHandle&& other) noexcept {
  BlockHandle moved(std::move(other));
  std::swap(manager_, moved.manager_);
  std::swap(id_, moved.id_);
  return *this;
}

BlockHandle::~BlockHandle() {
  if (manager_ != nullptr) manager_->release(id_, /*passed=*/false);
}

void BlockHandle::let_pass() {
  std::exchange(manager_, nullptr)->release(std::exchange(id_, -1), /*passed=*/true);
}

BlockKey BlockHandle::key() const { return {id_, manager_->block(id_).unique_id}; }

void BlockHandle::set_keep(bool keep) { manager_->block(id_).keep = keep; }

bool BlockHandle::is_shared() const { return manager_->block(id_).use_count > 1; }

void BlockHandle::make_private() {
  LMD_CHECK(!is_shared(), "block ", id_, " has other users");
  manager_->block(id_).unique_id = ++manager_->last_unique_id_;
  manager_->block(id_).keep = false;
}

void BlockList::truncate(int64_t count) {
  while (num_held() > 0 && end() > count) handles_.pop_back();
  first_ = std::min(first_, count);
}

void BlockList::drop_before(int64_t i) {
  const int64_t count = std::clamp<int64_t>(i - first_, 0, num_held());
  handles_.erase(handles_.begin(), handles_.begin() + count);
  first_ = std::max(first_, i);
}

BlockManager::BlockManager(int64_t num_blocks)
    : blocks_(static_cast<size_t>(num_blocks)), free_ids_(static_cast<size_t>(num_blocks)) {
  std::iota(free_ids_.begin(), free_ids_.end(), 0);  // ascending is a heap already
}

std::optional<BlockHandle> BlockManager::allocate() {
  if (free_ids_.empty()) {
    const int32_t evicted = passed_.oldest != kNone ? passed_.oldest : kept_.oldest;
    if (evicted == kNone) return std::nullopt;
    unlink(evicted);
    set_free(evicted);
  }
  std::pop_heap(free_ids_.begin(), free_ids_.end(), std::greater<>());
  const int32_t id = free_ids_.back();
  free_ids_.pop_back();
  block(id) = {.unique_id = ++last_unique_id_, .use_count = 1};
  return BlockHandle(this, id);
}

std::optional<BlockHandle> BlockManager::acquire(BlockKey key) {
  if (!holds(key)) return std::nullopt;
  if (block(key.id).use_count++ == 0) unlink(key.id);
  block(key.id).found = true;
  return BlockHandle(this, key.id);
}

bool BlockManager::holds(BlockKey key) const {
  return key.unique_id != 0 && block(key.id).unique_id == key.unique_id;
}

void BlockManager::discard(BlockKey key) {
  if (!holds(key) || block(key.id).use_count > 0) return;
  unlink(key.id);
  set_free(key.id);
}

void BlockManager::spoil(BlockKey key) {
  discard(key);
  if (!holds(key)) return;
  block(key.id).unique_id = ++last_unique_id_;
  block(key.id).keep = false;
}

void BlockManager::release(int32_t id, bool passed) {
  Block& b = block(id);
  if (--b.use_count > 0) return;
  b.passed = passed && !b.found;
  if (b.keep) {
    link(id);
  } else {
    set_free(id);
  }
}

void BlockManager::set_free(int32_t id) {
  block(id) = {};
  free_ids_.push_back(id);  // within the capacity it was born with
  std::push_heap(free_ids_.begin(), free_ids_.end(), std::greater<>());
}

void BlockManager::link(int32_t id) {
  Line& line = line_of(block(id));
  block(id).older = line.newest;
  block(id).newer = kNone;
  (line.newest == kNone ? line.oldest : block(line.newest).newer) = id;
  line.newest = id;
  ++num_cached_;
}

void BlockManager::unlink(int32_t id) {
  const Block& b = block(id);
  Line& line = line_of(b);
  (b.older == kNone ? line.oldest : block(b.older).newer) = b.newer;
  (b.newer == kNone ? line.newest : block(b.newer).older) = b.older;
  --num_cached_;
}

void BlockManager::check_invariants() const {
  std::vector<int> places(blocks_.size(), 0);  // how many states claim each block
  for (const int32_t id : free_ids_) {
    LMD_CHECK(block(id).use_count == 0 && block(id).unique_id == 0, "free block ", id);
    ++places[static_cast<size_t>(id)];
  }
  for (const Line& line : {passed_, kept_}) {
    int32_t previous = kNone;
    for (int32_t id = line.oldest; id != kNone; id = block(id).newer) {
      LMD_CHECK(block(id).use_count == 0 && block(id).unique_id != 0 && block(id).older == previous,
                "cached block ", id);
      ++places[static_cast<size_t>(id)];
      previous = id;
    }
    LMD_CHECK(previous == line.newest, previous, " ends the line, not ", line.newest);
  }
  std::unordered_set<uint64_t> unique_ids;
  int64_t used = 0;
  for (size_t id = 0; id < blocks_.size(); ++id) {
    const Block& b = blocks_[id];
    LMD_CHECK(b.use_count >= 0, "block ", id, " is used ", b.use_count, " times");
    if (b.use_count > 0) ++places[id], ++used;
    LMD_CHECK(places[id] == 1, "block ", id, " is in ", places[id], " states");
    LMD_CHECK(b.unique_id == 0 || unique_ids.insert(b.unique_id).second, "unique id ", b.unique_id, " twice");
  }
  LMD_CHECK(num_free() + used + num_cached_ == num_total(), num_free(), " free, ", used, " used, ",
            num_cached_, " cached of ", num_total());
}

}  // namespace lmdeploy
