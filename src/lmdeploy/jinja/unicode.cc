#include "lmdeploy/jinja/unicode.h"

#include <algorithm>
#include <span>

namespace lmdeploy::jinja {
namespace {

struct CodePointRange {
  char32_t first, last;
};
// Code points first, first + step, ..., last map to themselves plus delta.
struct CaseRun {
  char32_t first, last;
  uint32_t step;
  int32_t delta;
};
// A mapping to several code points.
struct CaseSpecial {
  char32_t from;
  const char* to;
};

#include "lmdeploy/jinja/unicode_table.inc"

std::span<const CodePointRange> ranges_of(CharClass char_class) {
  switch (char_class) {
    case CharClass::kAlpha:
      return kAlphaRanges;
    case CharClass::kDecimal:
      return kDecimalRanges;
    case CharClass::kDigit:
      return kDigitRanges;
    case CharClass::kNumeric:
      return kNumericRanges;
    case CharClass::kPrintable:
      return kPrintableRanges;
    case CharClass::kSpace:
      return kSpaceRanges;
    case CharClass::kUpper:
      return kUpperRanges;
    case CharClass::kLower:
      return kLowerRanges;
    case CharClass::kTitle:
      return kTitleRanges;
    case CharClass::kCased:
      return kCasedRanges;
    case CharClass::kCaseIgnorable:
      return kCaseIgnorableRanges;
    case CharClass::kIdentifierStart:
      return kIdentifierStartRanges;
    case CharClass::kIdentifierPart:
      return kIdentifierPartRanges;
  }
  return {};
}

void append_mapped(std::string& out, char32_t c, std::span<const CaseRun> runs,
                   std::span<const CaseSpecial> specials) {
  const char32_t folded = c | 0x20;
  if (c < 0x80 && (folded < 'a' || folded > 'z')) {  // ASCII without case: the most frequent by far
    out += static_cast<char>(c);
    return;
  }
  const auto special = std::lower_bound(specials.begin(), specials.end(), c,
                                        [](const CaseSpecial& s, char32_t value) { return s.from < value; });
  if (special != specials.end() && special->from == c) {
    out += special->to;
    return;
  }
  const auto run = std::lower_bound(runs.begin(), runs.end(), c,
                                    [](const CaseRun& r, char32_t value) { return r.last < value; });
  const bool mapped = run != runs.end() && run->first <= c && (c - run->first) % run->step == 0;
  append_utf8(out, mapped ? static_cast<char32_t>(static_cast<int32_t>(c) + run->delta) : c);
}

void append_upper(std::string& out, char32_t c) { append_mapped(out, c, kToUpper, kToUpperSpecial); }
void append_title(std::string& out, char32_t c) { append_mapped(out, c, kToTitle, kToTitleSpecial); }

// The code point that ends `text`, which is not empty.
CodePoint last_code_point(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && text.size() - at < 4 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
  const CodePoint c = decode_at(text, at);
  return at + c.bytes == text.size() ? c : CodePoint{0xfffd, 1};  // else: a stray continuation byte
}

// A capital sigma ends a word when a cased letter stands before it and none after it, case-ignorable
// characters aside (Unicode 3.13, Final_Sigma).
bool is_final_sigma(std::string_view text, size_t at) {
  constexpr size_t kSigmaBytes = 2;
  for (std::string_view before = text.substr(0, at);;) {
    if (before.empty()) return false;
    const CodePoint c = last_code_point(before);
    if (!is_class(c.value, CharClass::kCaseIgnorable)) {
      if (!is_class(c.value, CharClass::kCased)) return false;
      break;
    }
    before.remove_suffix(c.bytes);
  }
  for (size_t i = at + kSigmaBytes; i < text.size();) {
    const CodePoint c = decode_at(text, i);
    if (!is_class(c.value, CharClass::kCaseIgnorable)) return !is_class(c.value, CharClass::kCased);
    i += c.bytes;
  }
  return true;
}

// Lower case of the code point at text[at]; `text` gives the context for sigma.
void append_lower(std::string& out, char32_t c, std::string_view text, size_t at) {
  constexpr char32_t kCapitalSigma = 0x3a3, kFinalSigma = 0x3c2;
  if (c == kCapitalSigma && is_final_sigma(text, at))
    append_utf8(out, kFinalSigma);
  else
    append_mapped(out, c, kToLower, kToLowerSpecial);
}

template <typename Body>
void for_each_code_point(std::string_view text, Body body) {
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = decode_at(text, at);
    body(c.value, at);
    at += c.bytes;
  }
}

template <typename Drop>
std::string_view strip_if(std::string_view text, Side side, Drop drop) {
  while (side != Side::kRight && !text.empty()) {
    const CodePoint c = decode_at(text, 0);
    if (!drop(c.value)) break;
    text.remove_prefix(c.bytes);
  }
  while (side != Side::kLeft && !text.empty()) {
    const CodePoint c = last_code_point(text);
    if (!drop(c.value)) break;
    text.remove_suffix(c.bytes);
  }
  return text;
}

}  // namespace

CodePoint decode_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t bytes = lead >= 0xf0 && lead < 0xf5 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc2 ? 2 : 0;
  if (bytes == 0 || lead >= 0xf5 || at + bytes > text.size()) return {0xfffd, 1};
  char32_t value = lead & (0x7fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {0xfffd, 1};
    value = value << 6 | (byte(i) & 0x3fu);
  }
  constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = value >= 0xd800 && value <= 0xdfff;
  if (value < kSmallest[bytes] || value > 0x10ffff || surrogate) return {0xfffd, 1};
  return {value, bytes};
}

size_t count_code_points(std::string_view text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size(); ++count) at += decode_at(text, at).bytes;
  return count;
}

size_t byte_offset(std::string_view text, size_t index) {
  size_t at = 0;
  for (; index > 0 && at < text.size(); --index) at += decode_at(text, at).bytes;
  return at;
}

bool is_class(char32_t c, CharClass char_class) {
  if (char_class == CharClass::kSpace && c < 0x80)
    return c == ' ' || (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x1f);
  const auto ranges = ranges_of(char_class);
  const auto range = std::lower_bound(ranges.begin(), ranges.end(), c,
                                      [](const CodePointRange& r, char32_t value) { return r.last < value; });
  return range != ranges.end() && range->first <= c;
}

std::string to_lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for_each_code_point(text, [&](char32_t c, size_t at) { append_lower(out, c, text, at); });
  return out;
}

std::string to_upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for_each_code_point(text, [&](char32_t c, size_t) { append_upper(out, c); });
  return out;
}

std::string fold_case(std::string_view text) {
  std::string out;
  for_each_code_point(text, [&](char32_t c, size_t) { append_mapped(out, c, kToFold, kToFoldSpecial); });
  return out;
}

std::string swap_case(std::string_view text) {
  std::string out;
  for_each_code_point(text, [&](char32_t c, size_t at) {
    if (is_class(c, CharClass::kUpper))
      append_lower(out, c, text, at);
    else
      append_upper(out, c);
  });
  return out;
}

std::string capitalize(std::string_view text) {
  std::string out;
  for_each_code_point(text, [&](char32_t c, size_t at) {
    if (at == 0)
      append_title(out, c);
    else
      append_lower(out, c, text, at);
  });
  return out;
}

std::string title_case(std::string_view text) {
  std::string out;
  bool in_word = false;
  for_each_code_point(text, [&](char32_t c, size_t at) {
    if (in_word)
      append_lower(out, c, text, at);
    else
      append_title(out, c);
    in_word = is_class(c, CharClass::kCased);
  });
  return out;
}

std::string_view strip_space(std::string_view text, Side side) { return strip_if(text, side, is_space); }

std::string_view strip_chars(std::string_view text, std::string_view chars, Side side) {
  return strip_if(text, side, [&](char32_t c) {
    for (size_t at = 0; at < chars.size();) {
      const CodePoint other = decode_at(chars, at);
      if (other.value == c) return true;
      at += other.bytes;
    }
    return false;
  });
}

}  // namespace lmdeploy::jinja
