// The bytes of all tokens, as tries: what masks are made from.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lmdeploy/text/tokenizer.h"

namespace lmdeploy::grammar {

/// In preorder. Node i's children begin at i + 1; `end` is the first node after its subtree.
struct TrieNode {
  uint32_t end = 0;
  uint32_t ids_begin = 0;  // ids_begin of the next node is where the ids that end here stop
  uint16_t depth = 0;      // bytes before `byte`
  uint8_t byte = 0;
};
struct Trie {
  std::vector<TrieNode> nodes;  // and one past the end
  std::vector<int> ids;
};

/// A token is *plain* when it is whole characters, at most kMostPlain of them, none of them a quote, a
/// backslash or a control character: where the inside of a JSON string can stand, all of them can.
constexpr size_t kMostPlain = 32;

using Bits = std::vector<uint32_t>;  // bit id % 32 of word id / 32

/// Immutable; thread-safe.
class Vocabulary {
 public:
  /// `bytes` of each id; empty for those that no text has. Throws Error(kUnsupported) when no token is one of
  /// the bytes that JSON needs: then some texts cannot be spelled.
  explicit Vocabulary(std::vector<std::string> bytes, bool drops_first_space = false);
  static std::shared_ptr<const Vocabulary> of(const Tokenizer& tokenizer);

  size_t size() const { return bytes_.size(); }
  size_t num_words() const { return (size() + 31) / 32; }
  /// "" for ids without text and outside the vocabulary.
  std::string_view bytes(int id) const;
  /// A space that opens an answer is not part of its text (SentencePiece).
  bool drops_first_space() const { return drops_first_space_; }
  size_t longest() const { return longest_; }
  const Trie& all() const { return all_; }
  const Trie& not_plain() const { return not_plain_; }
  /// The plain tokens of at most `count` characters; more than kMostPlain: all of them.
  const Bits& plain(size_t count) const { return plain_[std::min(count, kMostPlain)]; }

 private:
  void check_bytes() const;

  std::vector<std::string> bytes_;
  bool drops_first_space_ = false;
  size_t longest_ = 0;
  Trie all_, not_plain_;
  std::array<Bits, kMostPlain + 1> plain_;
};

}  // namespace lmdeploy::grammar
