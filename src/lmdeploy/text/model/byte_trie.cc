// Builds the trie level by level, so that siblings become neighbours.
#include "lmdeploy/text/model/byte_trie.h"

#include <algorithm>

namespace lmdeploy {

ByteTrie::ByteTrie(std::vector<std::pair<std::string_view, int>> entries) : nodes_(1) {
  std::erase_if(entries, [](const auto& entry) { return entry.first.empty(); });
  std::stable_sort(entries.begin(), entries.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  struct Range {
    size_t begin, end;  // of the entries below a node
  };
  std::vector<Range> level = {{0, entries.size()}}, next_level;
  size_t first_of_level = 0;
  for (size_t depth = 0; !level.empty(); ++depth) {
    next_level.clear();
    const size_t first_of_next = nodes_.size();
    for (size_t i = 0; i < level.size(); ++i) {
      size_t at = level[i].begin;
      const size_t end = level[i].end;
      const auto child = static_cast<uint32_t>(nodes_.size());
      for (; at < end && entries[at].first.size() == depth; ++at)
        nodes_[first_of_level + i].value = entries[at].second;
      nodes_[first_of_level + i].first_child = child;
      while (at < end) {
        const auto byte = static_cast<uint8_t>(entries[at].first[depth]);
        const size_t begin = at;
        while (at < end && static_cast<uint8_t>(entries[at].first[depth]) == byte) ++at;
        nodes_[first_of_level + i].children[byte >> 6] |= uint64_t{1} << (byte & 63);
        next_level.push_back({begin, at});
        nodes_.emplace_back();
      }
      Node& node = nodes_[first_of_level + i];
      for (size_t word = 1; word < 4; ++word)
        node.children_before[word] =
            static_cast<uint8_t>(node.children_before[word - 1] + std::popcount(node.children[word - 1]));
    }
    first_of_level = first_of_next;
    level.swap(next_level);
  }
}

ByteTrie::Match ByteTrie::longest(std::string_view text) const {
  Match best;
  uint32_t node = kRoot;
  for (size_t at = 0; at < text.size(); ++at) {
    node = step(node, text[at]);
    if (node == kNone) break;
    if (value(node) >= 0) best = {at + 1, value(node)};
  }
  return best;
}

}  // namespace lmdeploy
