// What a component of tokenizer.json looks for in text: a literal, a regular expression or a kind of
// character.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lmdeploy/text/files/json_fields.h"
#include "lmdeploy/text/unicode/regex.h"

namespace lmdeploy {

/// Immutable; thread-safe.
class Pattern {
 public:
  virtual ~Pattern() = default;
  /// Appends the matches in valid UTF-8, from the left, without overlap.
  virtual void find_all(std::string_view text, std::vector<Span>& matches) const = 0;
};

std::unique_ptr<Pattern> make_literal_pattern(std::string literal);
std::unique_ptr<Pattern> make_regex_pattern(const std::string& regex);
/// Each single character that the function takes is a match.
std::unique_ptr<Pattern> make_char_pattern(bool (*takes)(char32_t code));
/// Runs of one script, as the pre-tokenizer "UnicodeScripts" sees them: Han takes the kana in; spaces and
/// unassigned characters belong to the run before them, and to no run at the beginning of the text.
std::unique_ptr<Pattern> make_script_pattern();
/// From {"String": "..."} or {"Regex": "..."} in the field "pattern".
std::unique_ptr<Pattern> read_pattern(const JsonFields& component);

/// `text` with each match replaced by `content`.
std::string replace_all(std::string_view text, const Pattern& pattern, std::string_view content);
std::string replace_matches(std::string_view text, const std::vector<Span>& matches,
                            std::string_view content);

}  // namespace lmdeploy
