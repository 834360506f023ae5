// A trie over bytes for finding all tokens that begin at a place in a text.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace lmdeploy {

/// Children of a node lie side by side, and a bit set says which bytes have one, so that a step costs a bit
/// count. Immutable; thread-safe.
class ByteTrie {
 public:
  ByteTrie() : nodes_(1) {}
  /// Texts (not empty; others are left out) and their values (>= 0). Of equal texts the last one counts.
  explicit ByteTrie(std::vector<std::pair<std::string_view, int>> entries);

  static constexpr uint32_t kRoot = 0;
  static constexpr uint32_t kNone = ~uint32_t{0};

  /// The node one byte further; kNone when no text goes on so.
  uint32_t step(uint32_t node, char byte) const {
    const Node& n = nodes_[node];
    const auto index = static_cast<uint8_t>(byte);
    const uint64_t word = n.children[index >> 6];
    const uint64_t bit = uint64_t{1} << (index & 63);
    if ((word & bit) == 0) return kNone;
    return n.first_child + n.children_before[index >> 6] +
           static_cast<uint32_t>(std::popcount(word & (bit - 1)));
  }
  /// The value of the text that ends at the node; -1 when none does.
  int value(uint32_t node) const { return nodes_[node].value; }

  struct Match {
    size_t size = 0;  // 0: nothing found
    int value = -1;
  };
  /// The longest text that `text` begins with.
  Match longest(std::string_view text) const;

 private:
  struct Node {
    std::array<uint64_t, 4> children{};        // bit b: there is a child for byte b
    std::array<uint8_t, 4> children_before{};  // in the words of `children` to the left
    uint32_t first_child = 0;
    int32_t value = -1;
  };
  std::vector<Node> nodes_;
};

}  // namespace lmdeploy
