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

#include "lmdeploy/text/grammar/slices.h"
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

using Bits = std::vector<uint32_t>;  // bit id % 32 of word id / 32

/// Immutable; thread-safe.
class Vocabulary {
 public:
  /// `bytes` of each id; empty for those that no text has. Throws Error(kUnsupported) when no token is one of
  /// the bytes of ASCII's text.
  explicit Vocabulary(std::vector<std::string> bytes, bool drops_first_space = false);
  static std::shared_ptr<const Vocabulary> of(const Tokenizer& tokenizer);

  size_t size() const { return bytes_.size(); }
  size_t num_words() const { return (size() + 31) / 32; }
  /// "" for ids without text and outside the vocabulary.
  std::string_view bytes(int id) const;
  /// The longest token that `text` begins with; -1: none.
  int longest_at(std::string_view text) const;
  /// The bytes that some token is alone. Texts with other bytes are not part of any language here: who begins
  /// to spell them might not be able to go on.
  const std::array<bool, 256>& single_bytes() const { return has_byte_; }
  /// A space that opens an answer is not part of its text (SentencePiece).
  bool drops_first_space() const { return drops_first_space_; }
  size_t longest() const { return longest_; }
  const Trie& all() const { return all_; }
  /// The tokens of whole characters of a slice, at most `count` of them and at most kMostInSlice.
  const Bits& tokens_of(Slice slice, size_t count) const {
    return slices_[static_cast<size_t>(slice)].tokens[std::min(count, kMostInSlice)];
  }
  /// All others.
  const Trie& without(Slice slice) const { return slices_[static_cast<size_t>(slice)].others; }

 private:
  struct SliceTokens {
    std::array<Bits, kMostInSlice + 1> tokens;
    Trie others;
  };
  void note_bytes();
  bool can_spell(std::string_view bytes) const;
  SliceTokens make_slice(Slice slice, const std::vector<int>& ids) const;

  std::vector<std::string> bytes_;
  std::array<bool, 256> has_byte_{};
  bool drops_first_space_ = false;
  size_t longest_ = 0;
  Trie all_;
  std::array<SliceTokens, kNumSlices> slices_;
};

}  // namespace lmdeploy::grammar
