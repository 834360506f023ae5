// Character classes, lower case and normalisation forms (utf8proc), each of the version of Unicode that the
// `tokenizers` library has for it.
#pragma once

#include <string>
#include <string_view>

namespace lmdeploy {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

/// `text` must be valid UTF-8. Characters newer than Unicode 9 stay as they are.
std::string normalize_unicode(std::string_view text, NormalForm form);

bool is_white_space(char32_t code);      // the White_Space property
bool is_punctuation(char32_t code);      // ASCII punctuation and symbols, and category P of Unicode 8
bool is_numeric(char32_t code);          // general category N of Unicode 17
bool is_mark(char32_t code);             // general category M of Unicode 9
bool is_nonspacing_mark(char32_t code);  // general category Mn of Unicode 8
bool is_control(char32_t code);          // category C of Unicode 8 but for unassigned code points
/// Letters, marks, decimal digits, connectors and joiners (UTS #18, annex C, \w).
bool is_word_char(char32_t code);
/// Full lower case of one code point, without regard to its neighbours.
void append_lower(std::string& out, char32_t code);

/// Bytes of the extended grapheme cluster (UAX #29) that valid UTF-8, not empty, begins with.
size_t grapheme_cluster_size(std::string_view text);
/// Bytes of white space at either end of valid UTF-8.
size_t leading_white_space(std::string_view text);
size_t trailing_white_space(std::string_view text);
/// First byte of the last character; `text` is valid UTF-8 and not empty.
size_t last_char_begin(std::string_view text);

}  // namespace lmdeploy
