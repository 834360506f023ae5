#include "lmdeploy/jinja/text.h"

#include <algorithm>
#include <cstring>

#include "lmdeploy/core/error.h"

namespace lmdeploy::jinja {
namespace {

void check_size(size_t bytes) {
  if (bytes > kMaxTextBytes) throw Failure(cat("text of more than ", kMaxTextBytes >> 20, " MiB"));
}

void check_count(size_t pieces) {
  if (pieces > kMaxItems) throw Failure(cat("more than ", kMaxItems, " pieces of text"));
}

// "\n" and what else ends a line for Python.
bool ends_line(char32_t c) {
  return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

// First position from `at` on where a space begins (or ends, for `space` false).
size_t find_space(std::string_view text, size_t at, bool space) {
  while (at < text.size()) {
    const CodePoint c = decode_at(text, at);
    if (is_space(c.value) == space) break;
    at += c.bytes;
  }
  return at;
}

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (size_t at = find_space(text, 0, false); at < text.size();) {
    const size_t end = find_space(text, at, true);
    words.push_back(text.substr(at, end - at));
    check_count(words.size());
    at = find_space(text, end, false);
  }
  return words;
}

}  // namespace

bool all_of_class(std::string_view text, CharClass char_class) {
  return all_of(text, [&](char32_t c) { return is_class(c, char_class); });
}

bool is_cased_as(std::string_view text, CharClass char_class) {
  bool found = false;
  const bool no_other = text.empty() || all_of(text, [&](char32_t c) {
                          const bool right = is_class(c, char_class);
                          found |= right;
                          const bool cased = is_class(c, CharClass::kUpper) ||
                                             is_class(c, CharClass::kLower) || is_class(c, CharClass::kTitle);
                          return right || !cased;
                        });
  return no_other && found;
}

bool is_title_case(std::string_view text) {
  bool found = false, in_word = false;
  const bool valid = all_of(text, [&](char32_t c) {
    const bool capital = is_class(c, CharClass::kUpper) || is_class(c, CharClass::kTitle);
    const bool small = is_class(c, CharClass::kLower);
    const bool fits = (!capital || !in_word) && (!small || in_word);
    in_word = capital || small;
    found |= in_word;
    return fits;
  });
  return valid && found;
}

std::vector<std::string_view> split_on_space(std::string_view text, size_t max_splits, bool from_right) {
  std::vector<std::string_view> words = words_of(text);
  if (words.size() <= max_splits) return words;
  const auto position = [&](std::string_view word) { return static_cast<size_t>(word.data() - text.data()); };
  if (from_right) {  // the first piece is all before the last max_splits words
    const size_t kept = words.size() - max_splits;
    const size_t end = max_splits == 0 ? text.size() : position(words[kept]);
    const std::string_view head = strip_space(text.substr(0, end), Side::kRight);
    words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(kept - 1));
    words[0] = head;
  } else {  // the last piece is the rest, trailing space and all
    words[max_splits] = text.substr(position(words[max_splits]));
    words.resize(max_splits + 1);
  }
  return words;
}

size_t find_text(std::string_view text, std::string_view wanted, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  const void* found = memmem(text.data() + from, text.size() - from, wanted.data(), wanted.size());
  return found == nullptr ? std::string_view::npos
                          : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

std::vector<std::string_view> split_on(std::string_view text, std::string_view separator, size_t max_splits,
                                       bool from_right) {
  if (separator.empty()) throw Failure("empty separator");
  // From the right: the same walk over the text read backwards.
  std::string backwards;
  std::string wanted(separator);
  if (from_right) {
    backwards.assign(text.rbegin(), text.rend());
    std::reverse(wanted.begin(), wanted.end());
  }
  const std::string_view walked = from_right ? std::string_view(backwards) : text;
  const auto piece = [&](size_t begin, size_t end) {
    return from_right ? text.substr(text.size() - end, end - begin) : text.substr(begin, end - begin);
  };
  std::vector<std::string_view> pieces;
  size_t begin = 0;
  while (pieces.size() < max_splits) {
    const size_t at = find_text(walked, wanted, begin);
    if (at == std::string_view::npos) break;
    pieces.push_back(piece(begin, at));
    begin = at + wanted.size();
    check_count(pieces.size());
  }
  pieces.push_back(piece(begin, walked.size()));
  if (from_right) std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t start = 0;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = decode_at(text, at);
    const size_t line_end = at;
    at += c.bytes;
    if (!ends_line(c.value)) continue;
    if (c.value == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(start, (keep_ends ? at : line_end) - start));
    check_count(lines.size());
    start = at;
  }
  if (start < text.size()) lines.push_back(text.substr(start));
  return lines;
}

std::string replace_text(std::string_view text, std::string_view from, std::string_view to,
                         size_t max_count) {
  std::string out;
  size_t at = 0;
  for (size_t count = 0; count < max_count; ++count) {
    if (from.empty()) {  // Python puts `to` before each character and at the end
      out += to;
      if (at == text.size()) break;
      const size_t bytes = decode_at(text, at).bytes;
      out += text.substr(at, bytes);
      at += bytes;
    } else {
      const size_t found = find_text(text, from, at);
      if (found == std::string_view::npos) break;
      out += text.substr(at, found - at);
      out += to;
      at = found + from.size();
    }
    check_size(out.size());
  }
  out += text.substr(at);
  return out;
}

std::string join_texts(const std::vector<std::string>& pieces, std::string_view separator) {
  std::string out;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (i > 0) out += separator;
    out += pieces[i];
    check_size(out.size());
  }
  return out;
}

size_t missing_width(Int width, size_t length, size_t fill_bytes) {
  if (width <= static_cast<Int>(length)) return 0;
  if (width > static_cast<Int>(kMaxTextBytes)) check_size(kMaxTextBytes + 1);
  const size_t missing = static_cast<size_t>(width) - length;
  check_size(missing * fill_bytes);
  return missing;
}

std::string repeat_text(std::string_view text, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += text;
  return out;
}

}  // namespace lmdeploy::jinja
