// Characters of Unicode 15 and 16, which the tables of PCRE2 10.42 and utf8proc 2.8 do not have yet.
#pragma once

#include <string>
#include <string_view>

namespace lmdeploy {

/// A character's general category as utf8proc_category_t counts them.
int general_category(char32_t code);
/// For an added character, an older one of the same general category and UTF-8 length; otherwise `code`.
char32_t older_twin(char32_t code);
/// Whether that version of Unicode, 8 or 9, has no such character. Some tables of the `tokenizers` library
/// are that old.
bool newer_than_unicode(int version, char32_t code);
/// The general category that a character had in that version, 8 or 9; unassigned when it was none yet.
int category_in_unicode(int version, char32_t code);
/// Whether valid UTF-8 holds an added character.
bool holds_additions(std::string_view text);
/// `text` with each added character replaced by its older twin: as long as before, and cut by a regular
/// expression at the same places.
std::string with_older_twins(std::string_view text);

}  // namespace lmdeploy
