// Walks the double array. A unit holds: bits 0-7 the byte that leads to it, bit 8 whether a value hangs
// below, bit 9 and 10-31 the offset of its children; bit 31 marks a value, kept in the other bits.
#include "lmdeploy/text/steps/charsmap.h"

#include <bit>
#include <cstring>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/utf8.h"

namespace lmdeploy {
namespace {

static_assert(std::endian::native == std::endian::little);

uint32_t read_u32(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

size_t children_of(uint32_t unit) { return size_t{unit >> 10} << ((unit & (1u << 9)) >> 6); }
bool has_value(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t label(uint32_t unit) { return unit & (1u << 31 | 0xFF); }

}  // namespace

Charsmap::Charsmap(std::string_view bytes, const std::string& where) {
  const auto fail = [&](const std::string& what) {
    throw Error(ErrorCode::kInvalidData, cat(where, ": ", what));
  };
  if (bytes.size() < 4) fail(cat("the character map has ", bytes.size(), " bytes, expected at least 4"));
  const size_t trie_bytes = read_u32(bytes, 0);
  if (trie_bytes == 0 || trie_bytes % 4 != 0 || trie_bytes > bytes.size() - 4)
    fail(cat("the character map has ", bytes.size(), " bytes, but says that its trie has ", trie_bytes));
  units_.resize(trie_bytes / 4);
  std::memcpy(units_.data(), bytes.data() + 4, trie_bytes);
  replacements_ = bytes.substr(4 + trie_bytes);
  if (!is_utf8(replacements_)) fail("the character map's replacements are not UTF-8");
}

std::optional<Charsmap::Match> Charsmap::find(std::string_view text, bool first) const {
  std::optional<Match> best;
  size_t at = children_of(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    at ^= byte;
    if (byte == 0 || at >= units_.size() || label(units_[at]) != byte) break;
    const uint32_t unit = units_[at];
    at ^= children_of(unit);
    if (at >= units_.size()) break;
    if (!has_value(unit)) continue;
    const size_t offset = units_[at] & 0x7FFFFFFF;
    const size_t end = offset < replacements_.size() ? replacements_.find('\0', offset) : offset;
    if (end == std::string::npos || offset >= replacements_.size()) continue;
    const std::string_view replacement = std::string_view(replacements_).substr(offset, end - offset);
    if (!is_utf8(replacement)) continue;  // a value that points into a character
    best = Match{i + 1, replacement};
    if (first) break;
  }
  return best;
}

}  // namespace lmdeploy
