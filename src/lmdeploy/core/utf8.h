// UTF-8: decoding, checking, and repair of bytes that arrive in pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lmdeploy {

inline constexpr std::string_view kReplacementChar = "\xEF\xBF\xBD";  // U+FFFD

struct Utf8Char {
  char32_t code = 0;
  size_t size = 0;  // bytes
};

/// The character at `at`. The text must be valid UTF-8 and `at` the first byte of a character.
inline Utf8Char decode_utf8(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[at + i]); };
  const auto tail = [&](size_t i) { return static_cast<char32_t>(byte(i) & 0x3F); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(static_cast<char32_t>(lead & 0x1F) << 6) | tail(1), 2};
  if (lead < 0xF0) return {(static_cast<char32_t>(lead & 0x0F) << 12) | (tail(1) << 6) | tail(2), 3};
  return {(static_cast<char32_t>(lead & 0x07) << 18) | (tail(1) << 12) | (tail(2) << 6) | tail(3), 4};
}
void append_utf8(std::string& out, char32_t code);
bool is_utf8(std::string_view text);
bool is_ascii(std::string_view text);
/// Each maximal invalid part becomes one U+FFFD (Unicode 15, section 3.9, "U+FFFD Substitution of Maximal
/// Subparts"), as in Rust's from_utf8_lossy and Python's errors="replace".
std::string repair_utf8(std::string_view bytes);

/// Repairs bytes that arrive in pieces; gives out whole characters only. All output joined equals repair_utf8
/// of all input.
class Utf8Assembler {
 public:
  void push(std::string_view bytes, std::string& out);
  void finish(std::string& out);

 private:
  std::string pending_;  // the beginning of a character: at most 3 bytes
};

}  // namespace lmdeploy
