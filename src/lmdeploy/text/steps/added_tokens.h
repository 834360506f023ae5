// Added tokens: texts that are tokens by themselves, found before the model sees the rest.
#pragma once

#include <bitset>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "lmdeploy/text/unicode/regex.h"

namespace lmdeploy {

struct AddedToken {
  std::string content;
  bool single_word = false;  // not inside a word
  bool lstrip = false;       // takes the white space to its left in
  bool rstrip = false;
  bool normalized = false;  // looked for in normalized text, in its own normalized form
  bool special = false;     // left out of decoded text on request
  bool operator==(const AddedToken&) const = default;
};

/// A part of a text: an added token (id >= 0) or text for the model (id < 0).
struct Section {
  Span span;
  int id = -1;
};

/// Finds the longest of many texts that stands at a place.
class TextTrie {
 public:
  void add(std::string_view text, int value);
  struct Match {
    size_t size = 0;  // 0: nothing found
    int value = 0;
  };
  /// The first place from `from` on where some text may begin, by its first byte; the text's end without one.
  size_t next_start(std::string_view text, size_t from) const;
  Match longest(std::string_view text, size_t at) const;

 private:
  struct Node {
    int32_t first_child = -1;
    int32_t next_sibling = -1;
    int32_t value = -1;  // -1: no text ends here
    uint8_t byte = 0;
  };
  int32_t child(int32_t node, uint8_t byte) const;
  std::vector<Node> nodes_;
  int32_t roots_[256];
  bool empty_ = true;
};

/// Immutable once filled; thread-safe then.
class AddedTokens {
 public:
  /// A later token with the same content replaces the earlier one's flags.
  void add(const AddedToken& token, int id);
  /// Call after the last add(). `normalize` gives the normalized form of a content.
  void build(const std::function<std::string(const std::string&)>& normalize);

  /// Cuts `text` at the added tokens that are looked for before (`normalized` false) or after normalization.
  /// With `parse_special` false the text of special tokens is plain text.
  std::vector<Section> split(std::string_view text, bool normalized, bool parse_special) const;

  const std::unordered_map<int, AddedToken>& by_id() const { return by_id_; }
  std::optional<int> find(std::string_view content) const;
  bool is_special(std::string_view content) const {
    return special_beginnings_[content.empty() ? 0 : static_cast<uint8_t>(content[0])] &&
           special_.contains(std::string(content));
  }
  int max_id() const { return max_id_; }  // -1 when there is none

 private:
  std::unordered_map<int, AddedToken> by_id_;
  std::unordered_map<std::string, int> by_content_;
  std::unordered_set<std::string> special_;
  std::bitset<256> special_beginnings_;  // first bytes of the special ones
  TextTrie raw_, normalized_;
  int max_id_ = -1;
};

}  // namespace lmdeploy
