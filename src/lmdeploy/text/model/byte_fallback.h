// <0xHH> tokens, which stand for the bytes of text that has no other tokens.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lmdeploy/text/model/vocabulary.h"

namespace lmdeploy {

/// "<0x0A>" for 10.
std::string fallback_spelling(int byte);
/// The byte of "<0x0A>" or "<0x0a>"; nothing for any other text.
std::optional<char> fallback_byte(std::string_view token);

/// Immutable; thread-safe.
class ByteFallback {
 public:
  /// Without any token: append() never does.
  ByteFallback() { ids_.fill(-1); }
  explicit ByteFallback(const Vocabulary& vocabulary);

  /// Appends the tokens of all bytes of `text`; does nothing and says false when one of them has none.
  bool append(std::string_view text, std::vector<int>& ids) const;
  /// Whether each byte has a token.
  bool complete() const;

 private:
  std::array<int, 256> ids_;  // -1 for none
};

}  // namespace lmdeploy
