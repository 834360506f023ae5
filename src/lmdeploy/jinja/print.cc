#include "lmdeploy/jinja/print.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "lmdeploy/core/error.h"
#include "lmdeploy/jinja/unicode.h"

namespace lmdeploy::jinja {
namespace {

void check_size(const std::string& out) {
  if (out.size() > kMaxTextBytes) throw Failure(cat("text of more than ", kMaxTextBytes >> 20, " MiB"));
}

std::string hex(char32_t value, size_t digits) {
  std::string out(digits, '0');
  for (size_t i = digits; i-- > 0; value >>= 4) out[i] = "0123456789abcdef"[value & 15];
  return out;
}

void append_escaped_for_repr(std::string& out, char32_t c, char quote) {
  if (c == '\n') {
    out += "\\n";
  } else if (c == '\r') {
    out += "\\r";
  } else if (c == '\t') {
    out += "\\t";
  } else if (c == '\\' || c == static_cast<char32_t>(quote)) {
    out += '\\';
    out += static_cast<char>(c);
  } else if (is_class(c, CharClass::kPrintable)) {
    append_utf8(out, c);
  } else if (c < 0x100) {
    out += "\\x" + hex(c, 2);
  } else {
    out += c < 0x10000 ? "\\u" + hex(c, 4) : "\\U" + hex(c, 8);
  }
}

void append_text_repr(std::string& out, std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  out += quote;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = decode_at(text, at);
    append_escaped_for_repr(out, c.value, quote);
    at += c.bytes;
  }
  out += quote;
}

void append_items(std::string& out, const std::vector<Value>& items, int depth) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    append_repr(out, items[i], depth + 1);
  }
}

void append_dict(std::string& out, const Dict& dict, int depth) {
  out += '{';
  for (size_t i = 0; i < dict.entries.size(); ++i) {
    if (i > 0) out += ", ";
    append_repr(out, dict.entries[i].first, depth + 1);
    out += ": ";
    append_repr(out, dict.entries[i].second, depth + 1);
  }
  out += '}';
}

// Writes JSON as json.dumps() does.
class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  void write(const Value& value, size_t level) {
    check_size(out_);
    if (value.is_text())
      write_text(value.utf8());
    else if (value.is_sequence())
      write_array(value.items(), level);
    else if (value.is_dict())
      write_object(value.dict(), level);
    else
      out_ += scalar(value);
  }
  std::string take() { return std::move(out_); }

 private:
  static std::string scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (value.is_bool()) return value.as_bool() ? "true" : "false";
    if (value.is_int()) return to_string(value.as_int());
    if (!value.is_float())
      throw Failure(cat("Object of type ", value.type_name(), " is not JSON serializable"));
    const double number = value.as_double();
    if (std::isnan(number)) return "NaN";
    return std::isinf(number) ? (number < 0 ? "-Infinity" : "Infinity") : float_text(number);
  }

  void write_text(std::string_view text) {
    out_ += '"';
    for (size_t at = 0; at < text.size();) {
      const CodePoint c = decode_at(text, at);
      at += c.bytes;
      write_code_point(c.value);
    }
    out_ += '"';
  }

  void write_code_point(char32_t c) {
    static constexpr std::pair<char32_t, const char*> kShort[] = {
        {'"', "\\\""}, {'\\', "\\\\"}, {'\n', "\\n"}, {'\r', "\\r"},
        {'\t', "\\t"}, {'\b', "\\b"},  {'\f', "\\f"}};
    for (const auto& [from, to] : kShort)
      if (c == from) {
        out_ += to;
        return;
      }
    if (c >= 0x20 && (c < 0x7f || !style_.ensure_ascii)) {
      append_utf8(out_, c);
    } else if (c == 0x7f) {
      out_ += '\x7f';
    } else if (c < 0x10000) {
      out_ += "\\u" + hex(c, 4);
    } else {  // a surrogate pair
      out_ += "\\u" + hex(0xd7c0 + (c >> 10), 4) + "\\u" + hex(0xdc00 + (c & 0x3ff), 4);
    }
  }

  void new_line(size_t level) {
    if (!style_.indent) return;
    out_ += '\n';
    for (size_t i = 0; i < level; ++i) out_ += *style_.indent;
  }

  void write_array(const std::vector<Value>& items, size_t level) {
    out_ += '[';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      new_line(level + 1);
      write(items[i], level + 1);
    }
    if (!items.empty()) new_line(level);
    out_ += ']';
  }

  void write_object(const Dict& dict, size_t level) {
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) sort_by_key(entries);
    out_ += '{';
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      new_line(level + 1);
      const Value& key = entries[i]->first;
      write_text(key.is_text() ? key.utf8() : scalar(key));
      out_ += style_.key_separator;
      write(entries[i]->second, level + 1);
    }
    if (!entries.empty()) new_line(level);
    out_ += '}';
  }

  static void sort_by_key(std::vector<const std::pair<Value, Value>*>& entries) {
    const bool all_text =
        std::all_of(entries.begin(), entries.end(), [](auto* e) { return e->first.is_text(); });
    const bool all_numbers =
        std::all_of(entries.begin(), entries.end(), [](auto* e) { return e->first.is_number(); });
    if (!all_text && !all_numbers) throw Failure("'<' not supported between dict keys of different types");
    std::stable_sort(entries.begin(), entries.end(), [&](auto* a, auto* b) {
      return all_text ? a->first.utf8() < b->first.utf8() : a->first.as_double() < b->first.as_double();
    });
  }

  const JsonStyle& style_;
  std::string out_;
};

}  // namespace

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string_view text(buffer, static_cast<size_t>(end - buffer));
  const size_t e = text.find('e');
  int exponent = 0;
  std::from_chars(text.data() + e + (text[e + 1] == '+' ? 2 : 1), text.data() + text.size(), exponent);
  if (exponent < -4 || exponent >= 16)
    return std::string(text);  // Python's limits; both write at least two digits
  const auto fixed_end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed).ptr;
  std::string fixed(buffer, fixed_end);
  return fixed.find('.') == std::string::npos ? fixed + ".0" : fixed;
}

void append_repr(std::string& out, const Value& value, int depth) {
  check_size(out);
  constexpr int kMaxDepth = 2 * static_cast<int>(kMaxValueDepth);
  if (depth > kMaxDepth) throw Failure("maximum recursion depth exceeded while printing a value");
  if (value.is_text()) {
    if (value.is_markup()) out += "Markup(";
    append_text_repr(out, value.utf8());
    if (value.is_markup()) out += ')';
  } else if (value.is_none()) {
    out += "None";
  } else if (value.is_undefined()) {
    out += "Undefined";
  } else if (value.is_bool()) {
    out += value.as_bool() ? "True" : "False";
  } else if (value.is_int()) {
    out += to_string(value.as_int());
  } else if (value.is_float()) {
    out += float_text(value.as_double());
  } else if (value.is_sequence()) {
    out += value.is_tuple() ? '(' : '[';
    append_items(out, value.items(), depth);
    if (value.is_tuple() && value.items().size() == 1) out += ',';
    out += value.is_tuple() ? ')' : ']';
  } else if (value.is_dict()) {
    append_dict(out, value.dict(), depth);
  } else {
    value.object().print(out, depth);
  }
}

std::string repr(const Value& value) {
  std::string out;
  append_repr(out, value, 0);
  return out;
}

std::string to_text(const Value& value) {
  if (value.is_text()) return value.utf8();
  return value.is_undefined() ? std::string() : repr(value);
}

std::string to_json(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  writer.write(value, 0);
  return writer.take();
}

}  // namespace lmdeploy::jinja
