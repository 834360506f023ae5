// Counting blocks.
#include "lmdeploy/engine/block_groups.h"

#include <algorithm>

#include "lmdeploy/core/error.h"

namespace lmdeploy {

BlockGroups::BlockGroups(int64_t block_len, std::span<const KvGroup> groups) : block_len_(block_len) {
  LMD_CHECK(block_len > 0 && !groups.empty(), block_len, " tokens a block, ", groups.size(), " groups");
  for (const KvGroup& group : groups) {
    LMD_CHECK(group.window >= 0, "a window of ", group.window);
    windows_.push_back(group.window);
    if (group.window > 0) ++num_windows_;
  }
}

int64_t BlockGroups::first_read(size_t group, int64_t position) const {
  if (is_full(group)) return 0;
  return std::max<int64_t>(0, position - windows_[group] + 1) / block_len_;
}

int64_t BlockGroups::most_held(size_t group, int64_t length, int64_t chunk) const {
  const int64_t all = blocks_for(length);
  if (is_full(group) || windows_[group] >= length) return all;
  const int64_t tokens = windows_[group] - 1 + std::min(chunk, length);  // in a row, wherever they begin
  return std::min(all, (tokens + block_len_ - 2) / block_len_ + 1);
}

int64_t BlockGroups::least_for(int64_t length) const {
  int64_t blocks = 0;
  for (size_t group = 0; group < size(); ++group) blocks += most_held(group, length, /*chunk=*/1);
  return blocks;
}

int64_t BlockGroups::longest(int64_t num_blocks) const {
  if (least_for(std::numeric_limits<int32_t>::max()) <= num_blocks) return kUnlimited;
  int64_t fits = 0, too_long = num_blocks + 1;  // blocks of tokens
  while (too_long - fits > 1) {
    const int64_t middle = fits + (too_long - fits) / 2;
    (least_for(middle * block_len_) <= num_blocks ? fits : too_long) = middle;
  }
  return fits * block_len_;
}

}  // namespace lmdeploy
