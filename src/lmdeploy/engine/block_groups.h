// How the tokens of a sequence fall into blocks, in each group of layers.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "lmdeploy/models/model.h"

namespace lmdeploy {

/// A full group keeps the blocks of all tokens, a window group those that a token to come still reads.
class BlockGroups {
 public:
  static constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

  BlockGroups(int64_t block_len, std::span<const KvGroup> groups);

  size_t size() const { return windows_.size(); }
  int64_t num_windows() const { return num_windows_; }
  bool is_full(size_t group) const { return windows_[group] == 0; }
  int64_t block_len() const { return block_len_; }
  int64_t blocks_for(int64_t tokens) const { return (tokens + block_len_ - 1) / block_len_; }

  /// The first block of `group` that the token at `position`, or one after it, reads.
  int64_t first_read(size_t group, int64_t position) const;
  /// The most blocks that `group` holds while `length` tokens are computed, at most `chunk` of them in a
  /// step.
  int64_t most_held(size_t group, int64_t length, int64_t chunk) const;
  /// The fewest blocks with which `length` tokens can be computed: those of all groups, token by token.
  int64_t least_for(int64_t length) const;
  /// The longest sequence, in whole blocks, that `num_blocks` blocks suffice for; 0 when they are too few for
  /// any.
  int64_t longest(int64_t num_blocks) const;

 private:
  int64_t block_len_;
  std::vector<int64_t> windows_;  // 0: full
  int64_t num_windows_ = 0;
};

}  // namespace lmdeploy
