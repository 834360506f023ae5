// Who uses which block of the KV pool. Counts and ids only; the memory itself is KvPool's.
//
// A block is free (empty), used (held by one or more sequences) or cached (held by nobody, content kept until
// the block is needed). free + used + cached == total at any time. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace lmdeploy {

class BlockManager;

/// One particular content of a block. The id is recycled, the unique id never: a key whose unique id is no
/// longer the block's names content that is gone.
struct BlockKey {
  int32_t id = -1;
  uint64_t unique_id = 0;  // 0: no content
  bool operator==(const BlockKey&) const = default;
};

/// Owns one use of a block and ends it when destroyed.
class BlockHandle {
 public:
  BlockHandle() = default;
  BlockHandle(BlockHandle&& other) noexcept;
  BlockHandle& operator=(BlockHandle&& other) noexcept;
  ~BlockHandle();

  int32_t id() const { return id_; }
  BlockKey key() const;
  /// Whether the block becomes cached (true) or free (false) when its last user lets go.
  void set_keep(bool keep);
  /// Whether another sequence holds the block too.
  bool is_shared() const;
  /// Ends the use of a block that has left its sequence's window: if it becomes cached it is the first to go,
  /// unless somebody has found its content before. Leaves this empty.
  void let_pass();
  /// Makes the content of a block that nobody else holds unfindable by earlier keys, so that it may be
  /// written again.
  void make_private();

 private:
  friend class BlockManager;
  BlockHandle(BlockManager* manager, int32_t id) : manager_(manager), id_(id) {}

  BlockManager* manager_ = nullptr;
  int32_t id_ = -1;
};

/// The blocks of one sequence and one group of layers in token order: [first, end); those before `first` have
/// been let go of. Lets go from the tail, so that the head is used most recently and a chain of cached blocks
/// loses its tail first.
class BlockList {
 public:
  BlockList() = default;
  BlockList(BlockList&&) noexcept = default;
  BlockList& operator=(BlockList&&) = delete;
  ~BlockList() { truncate(0); }

  int64_t first() const { return first_; }
  int64_t end() const { return first_ + num_held(); }
  int64_t num_held() const { return static_cast<int64_t>(handles_.size()); }
  bool has(int64_t i) const { return i >= first_ && i < end(); }
  BlockHandle& operator[](int64_t i) { return handles_[static_cast<size_t>(i - first_)]; }
  const BlockHandle& operator[](int64_t i) const { return handles_[static_cast<size_t>(i - first_)]; }
  /// Becomes block end().
  void append(BlockHandle handle) { handles_.push_back(std::move(handle)); }
  /// Lets go of block `count` and those after it; end() is `count` at most.
  void truncate(int64_t count);
  /// Lets go of the blocks before `i`; first() is `i` at least.
  void drop_before(int64_t i);

 private:
  std::vector<BlockHandle> handles_;
  int64_t first_ = 0;
};

class BlockManager {
 public:
  explicit BlockManager(int64_t num_blocks);
  BlockManager(const BlockManager&) = delete;
  BlockManager& operator=(const BlockManager&) = delete;

  /// An empty block: the free one with the lowest id, else a cached one, whose content is forgotten: what has
  /// passed out of a window, then what was let go of longest ago. Nothing when all are used.
  std::optional<BlockHandle> allocate();
  /// One more use of content that is still there; nothing when it is gone.
  std::optional<BlockHandle> acquire(BlockKey key);
  bool holds(BlockKey key) const;
  /// Frees the block if it is cached with this content; otherwise nothing happens.
  void discard(BlockKey key);
  /// This content is not to be trusted: no key finds it any more and it will not be kept.
  void spoil(BlockKey key);

  int64_t num_total() const { return static_cast<int64_t>(blocks_.size()); }
  int64_t num_free() const { return static_cast<int64_t>(free_ids_.size()); }
  int64_t num_cached() const { return num_cached_; }
  int64_t num_used() const { return num_total() - num_free() - num_cached(); }
  /// Blocks that allocate() can give now.
  int64_t num_available() const { return num_free() + num_cached(); }
  bool is_free(int32_t id) const { return block(id).unique_id == 0; }
  int32_t use_count(int32_t id) const { return block(id).use_count; }

  /// Aborts unless every block is in exactly one of the three states and all links agree.
  void check_invariants() const;

 private:
  friend class BlockHandle;
  static constexpr int32_t kNone = -1;
  struct Block {
    uint64_t unique_id = 0;  // 0: free
    int32_t use_count = 0;
    bool keep = false;
    bool found = false;                    // this content has been acquired
    bool passed = false;                   // its line while cached
    int32_t older = kNone, newer = kNone;  // neighbours while cached
  };

  Block& block(int32_t id) { return blocks_[static_cast<size_t>(id)]; }
  const Block& block(int32_t id) const { return blocks_[static_cast<size_t>(id)]; }
  void release(int32_t id, bool passed);
  void set_free(int32_t id);
  void link(int32_t id);
  void unlink(int32_t id);

  std::vector<Block> blocks_;
  std::vector<int32_t> free_ids_;  // a heap, lowest id on top: pages of the pool are touched in order
  /// Cached blocks in the order in which they were let go of.
  struct Line {
    int32_t oldest = kNone, newest = kNone;
  };
  Line& line_of(const Block& block) { return block.passed ? passed_ : kept_; }
  Line passed_, kept_;
  int64_t num_cached_ = 0;
  uint64_t last_unique_id_ = 0;
};

}  // namespace lmdeploy
