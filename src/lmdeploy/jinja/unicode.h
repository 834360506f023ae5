// Python's view of text: code points, character classes and case mapping, on UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "lmdeploy/core/utf8.h"

namespace lmdeploy::jinja {

struct CodePoint {
  char32_t value;
  size_t bytes;  // 1..4; a byte that begins no valid sequence is U+FFFD of one byte
};
/// The code point that begins at `text[at]`; `at` < text.size().
CodePoint decode_at(std::string_view text, size_t at);

size_t count_code_points(std::string_view text);
/// Byte offset of code point number `index`; text.size() when there are fewer.
size_t byte_offset(std::string_view text, size_t index);

/// What str.isalpha() and its like ask, for one code point.
enum class CharClass {
  kAlpha,
  kDecimal,
  kDigit,
  kNumeric,
  kPrintable,
  kSpace,
  kUpper,
  kLower,
  kTitle,
  kCased,
  kCaseIgnorable,
  kIdentifierStart,
  kIdentifierPart
};
bool is_class(char32_t code_point, CharClass char_class);
inline bool is_space(char32_t code_point) { return is_class(code_point, CharClass::kSpace); }

std::string to_lower(std::string_view text);
std::string to_upper(std::string_view text);
std::string fold_case(std::string_view text);
std::string swap_case(std::string_view text);
/// First character in title case, the rest in lower case.
std::string capitalize(std::string_view text);
/// str.title(): each run of cased characters begins with title case.
std::string title_case(std::string_view text);

enum class Side { kLeft, kRight, kBoth };
/// Without white space at the given side.
std::string_view strip_space(std::string_view text, Side side = Side::kBoth);
/// Without the characters of `chars` at the given side.
std::string_view strip_chars(std::string_view text, std::string_view chars, Side side = Side::kBoth);

}  // namespace lmdeploy::jinja
