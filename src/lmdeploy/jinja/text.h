// Algorithms on text behind Python's str methods and the text filters.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lmdeploy/jinja/unicode.h"
#include "lmdeploy/jinja/value.h"

namespace lmdeploy::jinja {

/// Every code point satisfies `predicate`, and there is at least one.
template <typename Predicate>
bool all_of(std::string_view text, Predicate predicate) {
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = decode_at(text, at);
    if (!predicate(c.value)) return false;
    at += c.bytes;
  }
  return !text.empty();
}
bool all_of_class(std::string_view text, CharClass char_class);
/// str.isupper(), str.islower(): all cased characters are of the class, and there is one.
bool is_cased_as(std::string_view text, CharClass char_class);
/// str.istitle()
bool is_title_case(std::string_view text);

/// Like string_view::find, but in linear time for every input.
size_t find_text(std::string_view text, std::string_view wanted, size_t from);

// Pieces are views into `text`. At most `max_splits` cuts, counted from the right when `from_right`.
std::vector<std::string_view> split_on_space(std::string_view text, size_t max_splits, bool from_right);
/// Throws Failure for an empty separator.
std::vector<std::string_view> split_on(std::string_view text, std::string_view separator, size_t max_splits,
                                       bool from_right);
/// str.splitlines()
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

// These throw Failure when the result would be longer than kMaxTextBytes.
std::string replace_text(std::string_view text, std::string_view from, std::string_view to, size_t max_count);
std::string join_texts(const std::vector<std::string>& pieces, std::string_view separator);
/// Fill characters that bring `length` up to `width`; 0 when it is there already.
size_t missing_width(Int width, size_t length, size_t fill_bytes);
std::string repeat_text(std::string_view text, size_t count);

}  // namespace lmdeploy::jinja
