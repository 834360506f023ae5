// Character classes and normal forms on top of utf8proc.
#include "lmdeploy/text/unicode/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/utf8.h"
#include "lmdeploy/text/unicode/unicode_additions.h"

namespace lmdeploy {
namespace {

// Upper and lower case that Unicode 16 and 17 added (UnicodeData.txt); utf8proc knows the older ones.
constexpr std::pair<char32_t, char32_t> kAddedLower[] = {{0x1C89, 0x1C8A}, {0xA7CB, 0x264},  {0xA7CC, 0xA7CD},
                                                         {0xA7CE, 0xA7CF}, {0xA7D2, 0xA7D3}, {0xA7D4, 0xA7D5},
                                                         {0xA7DA, 0xA7DB}, {0xA7DC, 0x19B}};

char32_t lower(char32_t code) {
  for (const auto& [upper, its_lower] : kAddedLower)
    if (upper == code) return its_lower;
  if (code >= 0x10D50 && code <= 0x10D65) return code + 0x20;  // Garay
  if (code >= 0x16EA0 && code <= 0x16EB8) return code + 0x1B;  // Beria Erfe
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code)));
}

// Blocks whose characters neither change under NFC nor combine with what stands before them. Covers most text
// of the world; everything else goes through utf8proc.
bool surely_nfc(char32_t code) {
  return code < 0x300 || (code >= 0x400 && code <= 0x482) || (code >= 0x48A && code <= 0x52F) ||
         (code >= 0x2010 && code <= 0x206F) || (code >= 0x3001 && code <= 0x3029) ||
         (code >= 0x3041 && code <= 0x3096) || (code >= 0x30A0 && code <= 0x30FF) ||
         (code >= 0x3400 && code <= 0x9FFF) || (code >= 0xAC00 && code <= 0xD7A3) ||
         (code >= 0xFF01 && code <= 0xFFEE) || (code >= 0x1F300 && code <= 0x1F64F);
}

bool surely_nfc(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    if (!surely_nfc(c.code)) return false;
    at += c.size;
  }
  return true;
}

utf8proc_option_t options_for(NormalForm form) {
  switch (form) {
    case NormalForm::kNfc:
      return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    case NormalForm::kNfd:
      return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
    case NormalForm::kNfkc:
      return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
    case NormalForm::kNfkd:
      return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
  }
  return UTF8PROC_STABLE;
}

// What the tables of the `tokenizers` library do not know (Unicode 9) stays as it is and parts its
// neighbours, as an unassigned code point does. So does U+11A7, which utf8proc 2.8 takes for a final
// consonant.
bool is_inert(char32_t code) { return code == 0x11A7 || newer_than_unicode(9, code); }

std::string normalize_known(std::string_view text, NormalForm form) {
  if (is_ascii(text)) return std::string(text);
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &mapped, options_for(form));
  if (size < 0)
    throw Error(ErrorCode::kResourceExhausted,
                cat("Unicode normalisation of ", text.size(), " bytes failed: ", utf8proc_errmsg(size)));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
  return {reinterpret_cast<const char*>(mapped), static_cast<size_t>(size)};
}

}  // namespace

std::string normalize_unicode(std::string_view text, NormalForm form) {
  if (is_ascii(text) || (form == NormalForm::kNfc && surely_nfc(text))) return std::string(text);
  std::string out;
  size_t from = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    if (is_inert(c.code)) {
      out.append(normalize_known(text.substr(from, at - from), form)).append(text.substr(at, c.size));
      from = at + c.size;
    }
    at += c.size;
  }
  return out.append(normalize_known(text.substr(from), form));
}

bool is_white_space(char32_t code) {
  return (code >= 0x9 && code <= 0xD) || code == 0x20 || code == 0x85 || code == 0xA0 || code == 0x1680 ||
         (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F ||
         code == 0x205F || code == 0x3000;
}

bool is_punctuation(char32_t code) {
  if (code < 0x80) {
    return (code >= 0x21 && code <= 0x2F) || (code >= 0x3A && code <= 0x40) ||
           (code >= 0x5B && code <= 0x60) || (code >= 0x7B && code <= 0x7E);
  }
  const int found = category_in_unicode(8, code);
  return found >= UTF8PROC_CATEGORY_PC && found <= UTF8PROC_CATEGORY_PO;
}

bool is_numeric(char32_t code) {
  const int found = general_category(code);
  return (found >= UTF8PROC_CATEGORY_ND && found <= UTF8PROC_CATEGORY_NO) ||
         (code >= 0x11DE0 && code <= 0x11DE9) || (code >= 0x16FF4 && code <= 0x16FF6);  // of Unicode 17
}

bool is_mark(char32_t code) {
  const int found = category_in_unicode(9, code);
  return found >= UTF8PROC_CATEGORY_MN && found <= UTF8PROC_CATEGORY_ME;
}

bool is_nonspacing_mark(char32_t code) { return category_in_unicode(8, code) == UTF8PROC_CATEGORY_MN; }

bool is_control(char32_t code) {
  return category_in_unicode(8, code) >= UTF8PROC_CATEGORY_CC;  // the last ones
}

bool is_word_char(char32_t code) {
  const int found = general_category(code);
  const bool circled_letter = (code >= 0x24B6 && code <= 0x24E9) || (code >= 0x1F130 && code <= 0x1F149) ||
                              (code >= 0x1F150 && code <= 0x1F169) || (code >= 0x1F170 && code <= 0x1F189);
  return (found >= UTF8PROC_CATEGORY_LU && found <= UTF8PROC_CATEGORY_ND) ||  // letters, marks, digits
         found == UTF8PROC_CATEGORY_NL || found == UTF8PROC_CATEGORY_PC || code == 0x200C || code == 0x200D ||
         circled_letter;
}

void append_lower(std::string& out, char32_t code) {
  if (code == 0x130) {  // İ: the only code point whose full lower case is longer (SpecialCasing.txt)
    out.append("i\xCC\x87");
  } else {
    append_utf8(out, lower(code));
  }
}

namespace {

struct Range {
  char32_t first, last;
};
// Marks of Unicode 16 and 17 that stay with the character before them (GraphemeBreakProperty.txt);
// utf8proc 2.8 does not have them.
constexpr Range kNewMarks[] = {
    {0x897, 0x897},     {0x1ACF, 0x1ADD},   {0x1AE0, 0x1AEB},   {0x10D69, 0x10D6D}, {0x10EFA, 0x10EFC},
    {0x113B8, 0x113C0}, {0x113C2, 0x113C2}, {0x113C5, 0x113C5}, {0x113C7, 0x113CA}, {0x113CC, 0x113D0},
    {0x113D2, 0x113D2}, {0x113E1, 0x113E2}, {0x11B60, 0x11B67}, {0x11F5A, 0x11F5A}, {0x1611E, 0x1612F},
    {0x1E5EE, 0x1E5EF}, {0x1E6E3, 0x1E6E3}, {0x1E6E6, 0x1E6E6}, {0x1E6EE, 0x1E6EF}, {0x1E6F5, 0x1E6F5}};

// What utf8proc is asked about.
utf8proc_int32_t grapheme_twin(char32_t code) {
  constexpr char32_t kExtend = 0x301, kPrepend = 0x600, kOther = 0x4E00;
  if (code < kNewMarks[0].first) return static_cast<utf8proc_int32_t>(code);
  if (code == 0x113D1) return kPrepend;  // new
  if (code == 0x11A3A) return kOther;    // Prepend no longer
  const auto* run = std::lower_bound(std::begin(kNewMarks), std::end(kNewMarks), code,
                                     [](const Range& range, char32_t c) { return range.last < c; });
  const bool is_new = run != std::end(kNewMarks) && run->first <= code;
  return static_cast<utf8proc_int32_t>(is_new ? kExtend : code);
}

}  // namespace

size_t grapheme_cluster_size(std::string_view text) {
  Utf8Char left = decode_utf8(text, 0);
  size_t at = left.size;
  for (utf8proc_int32_t state = 0; at < text.size(); at += left.size) {
    const Utf8Char right = decode_utf8(text, at);
    if (left.code < 0x300 && right.code < 0x300 && left.code != '\r') break;
    if (utf8proc_grapheme_break_stateful(grapheme_twin(left.code), grapheme_twin(right.code), &state)) break;
    left = right;
  }
  return at;
}

size_t leading_white_space(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Char c = decode_utf8(text, at);
    if (!is_white_space(c.code)) break;
    at += c.size;
  }
  return at;
}

size_t last_char_begin(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

size_t trailing_white_space(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    const size_t begin = last_char_begin(text.substr(0, end));
    if (!is_white_space(decode_utf8(text, begin).code)) break;
    end = begin;
  }
  return text.size() - end;
}

}  // namespace lmdeploy
