// Spelling of bytes, and their ids.
#include "lmdeploy/text/model/byte_fallback.h"

#include <algorithm>

namespace lmdeploy {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

std::string fallback_spelling(int byte) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  return {'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 15], '>'};
}

std::optional<char> fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  const int high = hex_digit(token[3]), low = hex_digit(token[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<char>(high * 16 + low);
}

ByteFallback::ByteFallback(const Vocabulary& vocabulary) {
  for (int byte = 0; byte < 256; ++byte)
    ids_[static_cast<size_t>(byte)] = vocabulary.find(fallback_spelling(byte)).value_or(-1);
}

bool ByteFallback::append(std::string_view text, std::vector<int>& ids) const {
  const auto id_of = [&](char byte) { return ids_[static_cast<uint8_t>(byte)]; };
  if (std::any_of(text.begin(), text.end(), [&](char byte) { return id_of(byte) < 0; })) return false;
  for (const char byte : text) ids.push_back(id_of(byte));
  return true;
}

bool ByteFallback::complete() const { return std::count(ids_.begin(), ids_.end(), -1) == 0; }

}  // namespace lmdeploy
