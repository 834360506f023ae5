#include "lmdeploy/formats/turbomind/yaml.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/utf8.h"
#include "lmdeploy/formats/quote.h"
#include "lmdeploy/formats/turbomind/ini.h"

namespace lmdeploy {
namespace {

constexpr int kDeepest = 16;

struct Line {
  int64_t number = 0;
  size_t indent = 0;
  std::string text;  // without indentation, comment and blanks at its end
};

[[noreturn]] void fail(std::string_view where, int64_t line, const std::string& what) {
  throw Error(ErrorCode::kInvalidData, cat(where, ": line ", line, ": ", what));
}

// The end of a quoted text that begins at `begin`: one past its closing quote, or npos.
size_t quoted_end(std::string_view text, size_t begin) {
  const char quote_mark = text[begin];
  for (size_t i = begin + 1; i < text.size(); ++i) {
    if (quote_mark == '"' && text[i] == '\\') {
      ++i;
    } else if (text[i] == quote_mark) {
      if (quote_mark == '"' || i + 1 >= text.size() || text[i + 1] != '\'') return i + 1;
      ++i;  // '' stands for one
    }
  }
  return text.npos;
}

bool begins_quoted(std::string_view text, size_t at) {
  const bool mark = text[at] == '"' || text[at] == '\'';
  return mark && (at == 0 || std::string_view(" [{,:-").find(text[at - 1]) != std::string_view::npos);
}

// The first place outside of quotes where `stop(i)` holds; the length of the text when there is none.
template <typename Stop>
size_t find_outside_quotes(std::string_view text, const Stop& stop) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (begins_quoted(text, i)) {
      const size_t end = quoted_end(text, i);
      if (end == text.npos) return text.size();
      i = end - 1;
    } else if (stop(i)) {
      return i;
    }
  }
  return text.size();
}

std::string_view without_comment(std::string_view text) {
  return text.substr(0, find_outside_quotes(text, [&](size_t i) {
                       return text[i] == '#' && (i == 0 || text[i - 1] == ' ');
                     }));
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(' ');
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(' ') + 1 - begin);
}

std::vector<Line> split_lines(std::string_view text, std::string_view where) {
  std::vector<Line> lines;
  for (int64_t number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!is_utf8(line)) fail(where, number, "the text is no UTF-8");
    const std::string_view content = trimmed(without_comment(line));
    if (content.empty() || (content == "---" && lines.empty())) continue;
    if (content.find('\t') != content.npos) fail(where, number, "there is a tab; YAML indents with blanks");
    if (content == "---" || content == "...") fail(where, number, "a second document is not supported");
    lines.push_back({number, line.find_first_not_of(' '), std::string(content)});
  }
  return lines;
}

// The text of "..." or '...'.
std::string unquoted(std::string_view text, std::string_view where, int64_t line) {
  if (quoted_end(text, 0) != text.size()) fail(where, line, cat(text, " is no quoted text"));
  if (text[0] == '"') {  // the escapes of JSON are those that matter
    const Json value = parse_json(text, cat(where, ": line ", line));
    return std::string(value.as_string());
  }
  std::string out;
  for (size_t i = 1; i + 1 < text.size(); ++i) {
    out += text[i];
    if (text[i] == '\'') ++i;
  }
  return out;
}

Json scalar(std::string_view text, std::string_view where, int64_t line) {
  if (text.empty() || text == "null" || text == "~" || text == "Null" || text == "NULL") return nullptr;
  if (text[0] == '"' || text[0] == '\'') return Json(unquoted(text, where, line));
  if (std::string_view("&*!|>%@`").find(text[0]) != std::string_view::npos)
    fail(where, line,
         cat(quote(text), " uses a part of YAML that is not supported (anchors, tags, text blocks)"));
  return scalar_from_text(text);
}

void add_key(JsonObject& map, const Json& key, Json value, std::string_view where, int64_t line) {
  const std::string name = key.is_string() ? std::string(key.get_string()) : to_json_text(key);
  if (map.contains(name)) fail(where, line, cat("key ", quote(name), " is there twice"));
  map[name] = std::move(value);
}

/// "[1, 2]", "{a: 1}", nested at will.
class FlowReader {
 public:
  FlowReader(std::string_view text, std::string_view where, int64_t line)
      : text_(text), where_(where), line_(line) {}

  Json read_all() {
    Json value = read(0);
    skip_blanks();
    if (at_ != text_.size()) fail(where_, line_, cat("there is more after ", quote(text_.substr(0, at_))));
    return value;
  }

 private:
  void skip_blanks() { at_ = std::min(text_.find_first_not_of(' ', at_), text_.size()); }

  // Whether the next character is `c`, which is taken.
  bool take(char c) {
    skip_blanks();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  Json read(int depth) {
    if (depth > kDeepest) fail(where_, line_, cat("lists are nested more than ", kDeepest, " deep"));
    if (take('[')) return read_list(depth);
    if (take('{')) return read_map(depth);
    return read_scalar();
  }

  Json read_scalar() {
    skip_blanks();
    const std::string_view rest = text_.substr(at_);
    const size_t length = find_outside_quotes(rest, [&](size_t i) {
      return std::string_view(",[]{}").find(rest[i]) != std::string_view::npos ||
             (rest[i] == ':' && (i + 1 == rest.size() || rest[i + 1] == ' '));
    });
    at_ += length;
    return scalar(trimmed(rest.substr(0, length)), where_, line_);
  }

  void expect_comma_or(char end) {
    if (take(',')) return;
    skip_blanks();
    if (at_ < text_.size() && text_[at_] == end) return;
    fail(where_, line_, cat("expected , or ", end, " after ", quote(text_.substr(0, at_))));
  }

  Json read_list(int depth) {
    JsonArray list;
    while (!take(']')) {
      list.push_back(read(depth + 1));
      expect_comma_or(']');
    }
    return list;
  }

  Json read_map(int depth) {
    JsonObject map;
    while (!take('}')) {
      const Json key = read_scalar();
      if (!take(':')) fail(where_, line_, cat("expected : after ", quote(text_.substr(0, at_))));
      add_key(map, key, read(depth + 1), where_, line_);
      expect_comma_or('}');
    }
    return map;
  }

  std::string_view text_, where_;
  int64_t line_;
  size_t at_ = 0;
};

// Where the colon after a key is; npos when the line is no "key: value".
size_t key_end(std::string_view text) {
  const size_t at = find_outside_quotes(
      text, [&](size_t i) { return text[i] == ':' && (i + 1 == text.size() || text[i + 1] == ' '); });
  return at == text.size() || text[0] == '[' || text[0] == '{' ? text.npos : at;
}

bool is_item(std::string_view text) { return text == "-" || text.starts_with("- "); }

class BlockReader {
 public:
  BlockReader(std::vector<Line> lines, std::string_view where) : lines_(std::move(lines)), where_(where) {}

  Json read_all() {
    if (lines_.empty()) throw Error(ErrorCode::kInvalidData, cat(where_, ": the file is empty"));
    Json value = read_block(lines_[0].indent, 0);
    if (more())
      fail(where_, line().number, cat(quote(line().text), " is not indented as the lines above it"));
    return value;
  }

 private:
  bool more() const { return at_ < lines_.size(); }
  Line& line() { return lines_[at_]; }
  bool more_at(size_t indent) { return more() && line().indent == indent; }

  Json read_block(size_t indent, int depth) {
    if (depth > kDeepest) fail(where_, line().number, cat("maps are nested more than ", kDeepest, " deep"));
    if (is_item(line().text)) return read_list(indent, depth);
    if (key_end(line().text) != std::string::npos) return read_map(indent, depth);
    return read_value(line().text);
  }

  Json read_map(size_t indent, int depth) {
    JsonObject map;
    while (more_at(indent) && !is_item(line().text)) {
      const int64_t number = line().number;
      const size_t colon = key_end(line().text);
      if (colon == std::string::npos) fail(where_, number, cat(quote(line().text), " is no \"key: value\""));
      const Json key = scalar(trimmed(std::string_view(line().text).substr(0, colon)), where_, number);
      const std::string rest(trimmed(std::string_view(line().text).substr(colon + 1)));
      add_key(map, key, rest.empty() ? read_below(indent, true, depth) : read_value(rest), where_, number);
    }
    return map;
  }

  Json read_list(size_t indent, int depth) {
    JsonArray list;
    while (more_at(indent) && is_item(line().text)) {
      const size_t offset = std::min(line().text.find_first_not_of(' ', 1), line().text.size());
      const std::string rest = line().text.substr(offset);
      if (rest.empty()) {
        list.push_back(read_below(indent, false, depth));
      } else if (is_item(rest) || key_end(rest) != std::string::npos) {
        line().text = rest;
        line().indent += offset;
        list.push_back(read_block(line().indent, depth + 1));
      } else {
        list.push_back(read_value(rest));
      }
    }
    return list;
  }

  // What stands in the lines below this one; a list may begin at the indentation of its key.
  Json read_below(size_t indent, bool list_at_indent, int depth) {
    ++at_;
    if (more() && line().indent > indent) return read_block(line().indent, depth + 1);
    if (list_at_indent && more_at(indent) && is_item(line().text)) return read_list(indent, depth + 1);
    return nullptr;
  }

  // A scalar, or a flow list or map, which may go on in the lines below.
  Json read_value(std::string text) {
    const Line first = line();
    ++at_;
    if (text[0] != '[' && text[0] != '{') {
      if (more() && line().indent > first.indent)
        fail(where_, line().number,
             cat(quote(line().text), " goes on with the value above, which is not supported"));
      return scalar(text, where_, first.number);
    }
    for (int64_t open = brackets(text); open > 0 && more(); ++at_) {
      open += brackets(line().text);
      text += ' ';
      text += line().text;
    }
    return FlowReader(text, where_, first.number).read_all();
  }

  // How many more are opened than closed.
  static int64_t brackets(std::string_view text) {
    int64_t open = 0;
    find_outside_quotes(text, [&](size_t i) {
      if (text[i] == '[' || text[i] == '{') ++open;
      if (text[i] == ']' || text[i] == '}') --open;
      return false;
    });
    return open;
  }

  std::vector<Line> lines_;
  std::string_view where_;
  size_t at_ = 0;
};

}  // namespace

Json parse_yaml(std::string_view text, std::string_view where) {
  return BlockReader(split_lines(text, where), where).read_all();
}

}  // namespace lmdeploy
