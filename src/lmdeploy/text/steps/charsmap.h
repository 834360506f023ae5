// SentencePiece's precompiled character map: which texts become which, found by prefix.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lmdeploy {

/// Layout (builder.cc of SentencePiece): u32 size of the trie in bytes; the trie, a double array of u32 as
/// darts-clone writes it, from text to an offset; replacements, each ended by a zero byte. Little endian.
/// Immutable; thread-safe. No content of the map makes a lookup leave it.
class Charsmap {
 public:
  /// `where` begins the message of Error(kInvalidData), thrown when sizes do not fit.
  Charsmap(std::string_view bytes, const std::string& where);

  struct Match {
    size_t size = 0;               // bytes of the text that are replaced
    std::string_view replacement;  // valid UTF-8
  };
  /// The longest or the shortest entry that `text` begins with.
  std::optional<Match> longest(std::string_view text) const { return find(text, /*first=*/false); }
  std::optional<Match> shortest(std::string_view text) const { return find(text, /*first=*/true); }

 private:
  std::optional<Match> find(std::string_view text, bool first) const;
  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace lmdeploy
