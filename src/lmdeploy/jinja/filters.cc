// The table of filters, and the filters that convert numbers, JSON and text.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "lmdeploy/core/error.h"
#include "lmdeploy/jinja/builtin.h"
#include "lmdeploy/jinja/filters.h"
#include "lmdeploy/jinja/format.h"
#include "lmdeploy/jinja/interpreter.h"
#include "lmdeploy/jinja/print.h"
#include "lmdeploy/jinja/text.h"
#include "lmdeploy/jinja/unicode.h"

namespace lmdeploy::jinja {
namespace {

// soft_str(): text as it is, anything else as str() prints it.
Value soft_text(const Value& value) { return value.is_text() ? value : Value(to_text(value)); }

template <std::string (*kConvert)(std::string_view)>
Value convert(Interpreter&, Args& args) {
  const Value text = soft_text(args[0]);
  return Value(kConvert(text.utf8()), text.is_markup());
}

// jinja2's own title case: words begin after white space and opening brackets.
Value title(Interpreter&, Args& args) {
  const std::string text = to_text(args[0]);
  std::string out;
  std::string_view rest = text;
  const auto begins_word = [](char32_t c) {
    return is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  };
  while (!rest.empty()) {
    const CodePoint first = decode_at(rest, 0);
    const bool separator = begins_word(first.value);
    size_t end = first.bytes;
    while (end < rest.size() && begins_word(decode_at(rest, end).value) == separator)
      end += decode_at(rest, end).bytes;
    out += to_upper(rest.substr(0, first.bytes)) + to_lower(rest.substr(first.bytes, end - first.bytes));
    rest.remove_prefix(end);
  }
  return Value(std::move(out));
}

Value trim(Interpreter&, Args& args) {
  const Value text = soft_text(args[0]);
  const std::string_view kept =
      args.absent_or_none(1) ? strip_space(text.utf8()) : strip_chars(text.utf8(), args.text(1));
  return Value(std::string(kept), text.is_markup());
}

Value center(Interpreter& interpreter, Args& args) {
  const Value text = soft_text(args[0]);
  return interpreter.call(*find_method(text, "center"), {{args.get(1, Value(Int{80}))}, {}});
}

Value replace(Interpreter&, Args& args) {
  const Int limit = args.absent_or_none(3) ? -1 : args.integer(3);
  return Value(replace_text(to_text(args[0]), to_text(args[1]), to_text(args[2]),
                            limit < 0 ? SIZE_MAX : static_cast<size_t>(limit)));
}

Value indent(Interpreter&, Args& args) {
  if (args[0].is_undefined()) fail_undefined(args[0]);
  const std::string text = args.text(0) + "\n";
  const std::string indention = args.has(1) && args[1].is_text()
                                    ? args[1].utf8()
                                    : std::string(missing_width(args.integer(1, 4), 0, 1), ' ');
  const bool blank_too = args.flag(3, false);
  std::vector<std::string> lines;
  for (const std::string_view line : split_lines(text, /*keep_ends=*/false)) {
    const bool indented = lines.empty() ? args.flag(2, false) : blank_too || !line.empty();
    lines.push_back((indented ? indention : std::string()) + std::string(line));
  }
  return Value(join_texts(lines, "\n"), args[0].is_markup());
}

Value truncate(Interpreter&, Args& args) {
  const Int length = args.integer(1, 255), leeway = args.absent_or_none(4) ? 5 : args.integer(4);
  const std::string end = args.text(3, "...");
  const auto end_length = static_cast<Int>(count_code_points(end));
  if (length < end_length || leeway < 0) throw Failure("truncate: the length must hold the end mark");
  const std::optional<size_t> found = length_of(args[0]);
  if (found && static_cast<Int>(*found) <= length + leeway) return args[0];  // a list as well as a text
  const std::string& text = args.text(0);
  std::string kept = text.substr(0, byte_offset(text, static_cast<size_t>(length - end_length)));
  if (!args.flag(2, false)) kept = kept.substr(0, kept.rfind(' '));
  return Value(kept + end);
}

Value word_count(Interpreter&, Args& args) {
  const std::string text = to_text(args[0]);
  Int words = 0;
  bool in_word = false;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = decode_at(text, at);
    const bool word_char =
        c.value == '_' || is_class(c.value, CharClass::kAlpha) || is_class(c.value, CharClass::kNumeric);
    words += word_char && !in_word ? 1 : 0;
    in_word = word_char;
    at += c.bytes;
  }
  return words;
}

// Without the pieces from `open` to the next `close`; one that does not close stays.
std::string erase_between(std::string_view text, std::string_view open, std::string_view close) {
  std::string out;
  size_t at = 0;
  for (size_t begin; (begin = text.find(open, at)) != std::string_view::npos;) {
    const size_t end = text.find(close, begin);
    if (end == std::string_view::npos) break;
    out += text.substr(at, begin - at);
    at = end + close.size();
  }
  return out.append(text.substr(at));
}

// "<...>" and comments go, white space shrinks to single blanks, entities that escape() makes come back.
Value strip_tags(Interpreter&, Args& args) {
  const std::string text = erase_between(erase_between(to_text(args[0]), "<!--", "-->"), "<", ">");
  std::vector<std::string> words;
  for (const std::string_view word : split_on_space(text, SIZE_MAX, false)) words.emplace_back(word);
  std::string out = join_texts(words, " ");
  static constexpr std::pair<std::string_view, std::string_view> kEntities[] = {
      {"&lt;", "<"}, {"&gt;", ">"}, {"&#34;", "\""}, {"&quot;", "\""}, {"&#39;", "'"}, {"&amp;", "&"}};
  for (const auto& [entity, character] : kEntities) out = replace_text(out, entity, character, SIZE_MAX);
  return Value(std::move(out));
}

std::string url_quote(std::string_view text, bool in_query) {
  static constexpr std::string_view kSafe = "_.-~";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (letter || kSafe.find(c) != std::string_view::npos || (c == '/' && !in_query)) {
      out += c;
    } else if (c == ' ' && in_query) {
      out += '+';
    } else {
      out += {'%', "0123456789ABCDEF"[byte >> 4], "0123456789ABCDEF"[byte & 15]};
    }
  }
  return out;
}

Value url_encode(Interpreter& interpreter, Args& args) {
  const Value& value = args[0];
  const bool iterable = value.is_sequence() || value.is_dict() || value.is_object();
  if (value.is_text() || !iterable) return Value(url_quote(to_text(value), /*in_query=*/false));
  const Value pairs = value.is_dict() ? interpreter.call(*find_method(value, "items"), {}) : value;
  std::vector<std::string> parts;
  for (const Value& pair : to_vector(pairs)) {
    const std::vector<Value> both = to_vector(pair);
    if (both.size() != 2) throw Failure("urlencode takes text, a mapping or pairs");
    parts.push_back(url_quote(to_text(both[0]), true) + "=" + url_quote(to_text(both[1]), true));
  }
  return Value(join_texts(parts, "&"));
}

Value xml_attributes(Interpreter&, Args& args) {
  if (!args[0].is_dict()) throw Failure("xmlattr takes a mapping");
  std::vector<std::string> parts;
  for (const auto& [key, value] : args[0].dict().entries) {
    if (value.is_none() || value.is_undefined()) continue;
    const std::string name = to_text(key);
    if (name.find_first_of(" \t\n\f\r/>=") != std::string::npos)
      throw Failure(cat("Invalid character in attribute name: ", repr(key)));
    parts.push_back(escape(key).utf8() + "=\"" + escape(value).utf8() + "\"");
  }
  std::string out = join_texts(parts, " ");
  return Value(args.flag(1, true) && !out.empty() ? " " + out : out);
}

Value file_size(Interpreter&, Args& args) {
  const std::optional<double> bytes = to_double(args[0]);
  if (!bytes) throw Failure("filesizeformat takes a number");
  const bool binary = args.flag(1, false);
  const double base = binary ? 1024 : 1000;
  if (*bytes == 1) return Value("1 Byte");
  char text[64];
  if (*bytes < base) {
    std::snprintf(text, sizeof text, "%.0f Bytes", std::trunc(*bytes));
    return Value(text);
  }
  static constexpr std::string_view kPrefixes = "kMGTPEZY";
  double unit = base * base;
  size_t i = 0;
  for (; i + 1 < kPrefixes.size() && *bytes >= unit; ++i) unit *= base;
  const char prefix = binary && i == 0 ? 'K' : kPrefixes[i];
  std::snprintf(text, sizeof text, "%.1f %c%s", base * *bytes / unit, prefix, binary ? "iB" : "B");
  return Value(text);
}

Value absolute(Interpreter&, Args& args) {
  if (args[0].is_float()) return std::abs(args[0].as_double());
  if (args[0].is_undefined()) fail_undefined(args[0]);
  if (!args[0].is_integral()) throw Failure(cat("bad operand type for abs(): '", args[0].type_name(), "'"));
  return args[0].as_int() < 0 ? negate(args[0]) : Value(args[0].as_int());
}

// round() as Python does it: the exact value of the double decides, ties go to even.
double round_common(double value, int precision) {
  if (precision < 0) {
    const double scale = std::pow(10.0, -precision);
    return std::nearbyint(value / scale) * scale;
  }
  char text[512];
  std::snprintf(text, sizeof text, "%.*f", precision, value);
  return std::strtod(text, nullptr);
}

// The multiple of 10 ** digits that is nearest, ties to the even one.
Value round_integer(Int value, int digits) {
  Int scale = 1;
  for (int i = 0; i < digits; ++i)
    if (__builtin_mul_overflow(scale, Int{10}, &scale)) return Int{0};
  const Int rest = value % scale, whole = value - rest, away = (rest < 0 ? -rest : rest), half = scale / 2;
  const bool up = away > half || (away == half && scale > 1 && (whole / scale) % 2 != 0);
  return up ? arithmetic(BinaryOp::kAdd, whole, rest < 0 ? -scale : scale) : Value(whole);
}

Value round_filter(Interpreter&, Args& args) {
  const std::string method = args.text(2, "common");
  if (args[0].is_undefined()) fail_undefined(args[0]);
  if (!args[0].is_number())
    throw Failure(cat("type ", args[0].type_name(), " doesn't define __round__ method"));
  const auto precision = static_cast<int>(std::clamp<Int>(args.integer(1, 0), -300, 150));
  if (method == "common") {
    if (args[0].is_integral() && precision >= 0) return args[0].as_int();
    if (args[0].is_integral()) return round_integer(args[0].as_int(), -precision);
    return round_common(args[0].as_double(), precision);
  }
  if (method != "ceil" && method != "floor") throw Failure("method must be common, ceil or floor");
  const double scale = std::pow(10.0, precision), scaled = args[0].as_double() * scale;
  if (!std::isfinite(scaled)) throw Failure("cannot convert float infinity or NaN to integer");
  const double whole = method == "ceil" ? std::ceil(scaled) : std::floor(scaled);
  return (whole + 0.0) / scale;  // an integer in Python: no negative zero
}

Value to_float_filter(Interpreter&, Args& args) {
  const std::optional<double> value = to_double(args[0]);
  return value ? Value(*value) : args.get(1, 0.0);
}

Value to_int_filter(Interpreter&, Args& args) {
  if (args[0].is_text()) {
    const Int base = args.integer(2, 10);
    const bool possible = base == 0 || (base >= 2 && base <= 36);
    if (const auto value = possible ? parse_int(args[0].utf8(), base) : std::nullopt) return *value;
  }
  if (args[0].is_integral()) return args[0].as_int();
  const std::optional<double> value = to_double(args[0]);
  if (args[0].is_float() && !std::isfinite(*value))
    throw Failure("cannot convert float infinity or NaN to integer");
  if (!value || !std::isfinite(*value)) return args.get(1, Value(Int{0}));
  if (std::abs(*value) >= 0x1p126) throw Failure("an integer of more than 127 bits");
  return static_cast<Int>(*value);
}

Value to_string_filter(Interpreter&, Args& args) { return soft_text(args[0]); }
Value safe(Interpreter&, Args& args) { return Value(to_text(args[0]), /*markup=*/true); }
Value escape_filter(Interpreter&, Args& args) { return escape(args[0]); }
Value force_escape(Interpreter&, Args& args) { return escape(Value(to_text(args[0]))); }

Value format(Interpreter&, Args& args) {
  if (args.rest.named.empty()) return format_percent(soft_text(args[0]), Value::tuple(args.rest.positional));
  if (!args.rest.positional.empty())
    throw Failure("can't handle positional and keyword arguments at the same time");
  auto dict = std::make_shared<Dict>();
  for (const auto& [name, value] : args.rest.named) dict->set(Value(name), value);
  return format_percent(soft_text(args[0]), DictPtr(std::move(dict)));
}

// transformers' tojson: json.dumps(..., ensure_ascii=False).
Value tojson(Interpreter&, Args& args) {
  JsonStyle style;
  style.ensure_ascii = args.flag(1, false);
  if (!args.absent_or_none(2)) {
    style.indent =
        args[2].is_text() ? args[2].utf8() : std::string(missing_width(args.integer(2), 0, 1), ' ');
    style.item_separator = ",";
  }
  if (!args.absent_or_none(3)) {
    const std::vector<Value> both = to_vector(args[3]);
    if (both.size() != 2 || !both[0].is_text() || !both[1].is_text())
      throw Failure("tojson: separators must be two texts");
    style.item_separator = both[0].utf8();
    style.key_separator = both[1].utf8();
  }
  style.sort_keys = args.flag(4, false);
  return Value(to_json(args[0], style));
}

Value default_filter(Interpreter&, Args& args) {
  const bool missing = args[0].is_undefined() || (args.flag(2, false) && !args[0].truthy());
  return missing ? args.get(1, Value("")) : args[0];
}

Value attribute_only(Interpreter& interpreter, Args& args) {
  const std::string name = to_text(args[1]);
  if (args[0].is_undefined()) fail_undefined(args[0]);
  if (std::optional<Value> method = find_method(args[0], name)) return *method;
  if (args[0].is_object())
    if (std::optional<Value> found = args[0].object().attribute(interpreter, name)) return *found;
  return Value::undefined(cat("'", args[0].type_name(), " object' has no attribute '", name, "'"));
}

Value refuse(std::string_view name, std::string_view instead) {
  throw Failure(cat("the filter '", name, "' is not supported in chat templates", instead));
}
Value refuse_urlize(Interpreter&, Args&) { return refuse("urlize", " (it makes HTML)"); }
Value refuse_random(Interpreter&, Args&) { return refuse("random", " (a prompt must not depend on chance)"); }
Value refuse_pprint(Interpreter&, Args&) { return refuse("pprint", "; use tojson(indent=2)"); }
Value refuse_wordwrap(Interpreter&, Args&) { return refuse("wordwrap", ""); }

constexpr Builtin kFilters[] = {
    {"abs", "value", absolute},
    {"attr", "value name", attribute_only},
    {"capitalize", "value", convert<capitalize>},
    {"center", "value width?", center},
    {"d", "value default_value? boolean?", default_filter},
    {"default", "value default_value? boolean?", default_filter},
    {"e", "value", escape_filter},
    {"escape", "value", escape_filter},
    {"filesizeformat", "value binary?", file_size},
    {"float", "value default?", to_float_filter},
    {"forceescape", "value", force_escape},
    {"format", "value * **", format},
    {"indent", "s width? first? blank?", indent},
    {"int", "value default? base?", to_int_filter},
    {"lower", "s", convert<to_lower>},
    {"pprint", "value *", refuse_pprint},
    {"random", "value", refuse_random},
    {"replace", "s old new count?", replace},
    {"round", "value precision? method?", round_filter},
    {"safe", "value", safe},
    {"string", "value", to_string_filter},
    {"striptags", "value", strip_tags},
    {"title", "s", title},
    {"tojson", "value ensure_ascii? indent? separators? sort_keys?", tojson},
    {"trim", "value chars?", trim},
    {"truncate", "s length? killwords? end? leeway?", truncate},
    {"upper", "s", convert<to_upper>},
    {"urlencode", "value", url_encode},
    {"urlize", "value * **", refuse_urlize},
    {"wordcount", "s", word_count},
    {"wordwrap", "s * **", refuse_wordwrap},
    {"xmlattr", "d autospace?", xml_attributes},
};

}  // namespace

namespace {
bool is_digit_at(std::string_view text, size_t at) {
  return at < text.size() && text[at] >= '0' && text[at] <= '9';
}
}  // namespace

std::optional<double> to_double(const Value& value) {
  if (value.is_number()) return value.as_double();
  if (value.is_undefined()) fail_undefined(value);
  if (!value.is_text()) return std::nullopt;
  std::string text(strip_space(value.utf8()));
  for (size_t i = 0; i < text.size(); ++i)
    if (text[i] == '_' && (!is_digit_at(text, i - 1) || !is_digit_at(text, i + 1))) return std::nullopt;
  text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
  const bool plus = text.starts_with('+');
  double number = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data() + (plus ? 1 : 0), end, number);
  const bool whole = parsed.ptr == end && text.find_first_of("xX(") == std::string::npos;
  if (parsed.ec == std::errc::result_out_of_range && whole) return std::strtod(text.c_str(), nullptr);
  return parsed.ec == std::errc() && whole && !text.starts_with("+-") ? std::optional(number) : std::nullopt;
}

std::optional<Int> parse_int(std::string_view text, Int base) {
  text = strip_space(text);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  static constexpr std::pair<std::string_view, int> kPrefixes[] = {{"0x", 16}, {"0o", 8}, {"0b", 2}};
  for (const auto& [prefix, its_base] : kPrefixes)
    if ((base == its_base || base == 0) && to_lower(text.substr(0, 2)) == prefix) {
      text.remove_prefix(2);
      base = its_base;
      if (text.starts_with('_')) text.remove_prefix(1);
    }
  const bool octal = base == 0 && text.starts_with('0') && text.find_first_not_of("0_") != text.npos;
  if (octal) return std::nullopt;  // as Python 2 wrote it
  if (base == 0) base = 10;
  Int value = 0;
  bool after_digit = false;
  for (const char c : text) {
    if (c == '_' && after_digit) {
      after_digit = false;
      continue;
    }
    const char lower = static_cast<char>(c | 0x20);
    const int digit = c >= '0' && c <= '9' ? c - '0' : lower >= 'a' && lower <= 'z' ? lower - 'a' + 10 : 99;
    if (digit >= base) return std::nullopt;
    if (__builtin_mul_overflow(value, base, &value) || __builtin_add_overflow(value, Int{digit}, &value))
      throw Failure("an integer of more than 127 bits");
    after_digit = true;
  }
  if (!after_digit) return std::nullopt;
  return negative ? -value : value;
}

const Builtin* find_filter(std::string_view name) {
  const Builtin* filter = find_builtin(kFilters, name);
  return filter != nullptr ? filter : find_builtin(sequence_filters(), name);
}

}  // namespace lmdeploy::jinja
