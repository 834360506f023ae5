#include "lmdeploy/jinja/format.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "lmdeploy/core/error.h"
#include "lmdeploy/jinja/interpreter.h"
#include "lmdeploy/jinja/print.h"
#include "lmdeploy/jinja/unicode.h"

namespace lmdeploy::jinja {
namespace {

constexpr int kMaxWidth = 1'000'000;
constexpr int kMaxPrecision = 1000;  // digits of a float

struct Spec {
  char32_t fill = ' ';
  char align = 0;  // '<', '>', '^', '=' or the kind's own
  char sign = 0;   // '+', '-' or ' '
  bool no_negative_zero = false;
  bool alternate = false;  // "0x" in front of hexadecimal
  int width = 0;
  char grouping = 0;  // ',' or '_'
  int precision = -1;
  char type = 0;
};

int take_number(std::string_view& text, int limit, std::string_view what) {
  int value = 0;
  for (; !text.empty() && text[0] >= '0' && text[0] <= '9'; text.remove_prefix(1)) {
    value = value * 10 + (text[0] - '0');
    if (value > limit) throw Failure(cat("format: ", what, " above ", limit));
  }
  return value;
}

bool take_one_of(std::string_view& text, std::string_view choices, char& out) {
  if (text.empty() || choices.find(text[0]) == std::string_view::npos) return false;
  out = text[0];
  text.remove_prefix(1);
  return true;
}

std::string in_base(Int value, unsigned base, bool upper) {
  auto rest = static_cast<unsigned __int128>(value < 0 ? -value : value);
  std::string digits;
  do {
    const auto digit = static_cast<size_t>(rest % base);
    digits += (upper ? "0123456789ABCDEF" : "0123456789abcdef")[digit];
    rest /= base;
  } while (rest != 0);
  std::reverse(digits.begin(), digits.end());
  return digits;
}

// printf's e and f agree with Python's, but for the spelling of the exponent's limits, which are equal too.
std::string fixed_digits(double value, char type, int precision, bool alternate) {
  const bool upper = type < 'a';
  if (std::isnan(value)) return upper ? "NAN" : "nan";
  if (std::isinf(value)) return upper ? "INF" : "inf";
  const std::string format = cat(alternate ? "%#" : "%", ".*", type);
  const int size = std::snprintf(nullptr, 0, format.c_str(), precision, value);
  std::string out(static_cast<size_t>(size) + 1, '\0');
  std::snprintf(out.data(), out.size(), format.c_str(), precision, value);
  out.pop_back();
  return out;
}

// 'g' by `letter` 'e' or 'E': so many significant digits, with an exponent below -4 and from `exponent_from`.
// (printf's own loses digits of "%#g" where rounding makes a number longer.)
std::string general_digits(double value, char letter, int digits, int exponent_from, bool alternate) {
  std::string text = fixed_digits(value, letter, digits - 1, alternate), tail;
  if (!std::isfinite(value)) return text;
  const size_t mark = text.find(letter);
  const int exponent = std::atoi(text.c_str() + mark + 1);
  if (exponent < -4 || exponent >= exponent_from) {
    tail = text.substr(mark);
    text.resize(mark);
  } else {
    text = fixed_digits(value, 'f', digits - 1 - exponent, alternate);
  }
  if (!alternate && text.find('.') != std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return text + tail;
}

// No type: repr(), or as 'g', but still seen to be a float ("100.0") and with an exponent a digit earlier.
std::string untyped_digits(double value, const Spec& spec) {
  const int digits = std::max(spec.precision, 1);
  std::string out =
      spec.precision < 0 ? float_text(value) : general_digits(value, 'e', digits, digits - 1, spec.alternate);
  if (!std::isfinite(value) || out.find('.') != std::string::npos) return out;
  const size_t exponent = out.find('e');
  if (exponent == std::string::npos) return out + ".0";
  return spec.alternate ? out.insert(exponent, ".") : out;
}

// A number as it is padded and grouped: sign and "0x", whole digits, the rest.
struct NumberText {
  std::string lead, digits, rest;
};

std::string float_body(double number, const Spec& spec) {
  if (spec.type == 0) return untyped_digits(number, spec);
  const int precision = spec.precision < 0 ? 6 : spec.precision;
  if (spec.type == '%') return fixed_digits(number * 100, 'f', precision, spec.alternate) + "%";
  if ((spec.type | 0x20) != 'g' && spec.type != 'n')
    return fixed_digits(number, spec.type, precision, spec.alternate);
  const int digits = std::max(precision, 1);
  return general_digits(number, spec.type == 'G' ? 'E' : 'e', digits, digits, spec.alternate);
}

std::string integer_body(Int value, const Spec& spec) {
  const unsigned base = spec.type == 'o' ? 8 : spec.type == 'b' ? 2 : (spec.type | 0x20) == 'x' ? 16 : 10;
  std::string digits = in_base(value, base, spec.type == 'X');
  if (spec.precision > static_cast<int>(digits.size()))  // only "%.5d" can say so
    digits.insert(0, static_cast<size_t>(spec.precision) - digits.size(), '0');
  return digits;
}

NumberText number_text(const Value& value, const Spec& spec) {
  const char type = spec.type;
  const bool whole =
      value.is_integral() && (type == 0 || std::string_view("dnxXob").find(type) != std::string_view::npos);
  if (!whole && type != 0 && std::string_view("eEfFgGn%").find(type) == std::string_view::npos)
    throw Failure(cat("Unknown format code '", type, "' for object of type '", value.type_name(), "'"));
  std::string body =
      whole ? integer_body(value.as_int(), spec) : float_body(std::abs(value.as_double()), spec);
  bool negative = value.is_float() ? std::signbit(value.as_double()) : value.as_int() < 0;
  if (spec.no_negative_zero && std::isfinite(value.as_double()) &&
      body.find_first_of("123456789") == std::string::npos)
    negative = false;
  NumberText out;
  const bool signed_always = spec.sign == '+' || spec.sign == ' ';
  out.lead = negative ? "-" : signed_always ? std::string(1, spec.sign) : std::string();
  const bool prefixed =
      whole && spec.alternate && std::string_view("xXob").find(type) != std::string_view::npos;
  if (type != 0 && prefixed) out.lead += std::string("0") + type;
  const char* const kDigits = "0123456789abcdefABCDEF";
  const size_t end = std::min(body.find_first_not_of(whole ? kDigits : "0123456789"), body.size());
  out.digits = body.substr(0, end);
  out.rest = body.substr(end);
  return out;
}

// Separators between groups, counted from the right; zeros in front until there are at least `min_width`
// characters, none of which is a separator that begins the number.
std::string group_digits(std::string_view digits, const Spec& spec, size_t min_width) {
  const size_t group =
      std::string_view("xXob").find(spec.type) != std::string_view::npos && spec.type != 0 ? 4 : 3;
  std::string reversed;
  for (size_t i = 0; i < digits.size() || reversed.size() < min_width; ++i) {
    if (i > 0 && i % group == 0) reversed += spec.grouping;
    reversed += i < digits.size() ? digits[digits.size() - 1 - i] : '0';
  }
  return {reversed.rbegin(), reversed.rend()};
}

std::string pad(const std::string& lead, const std::string& body, const Spec& spec, char own_align) {
  const size_t length = count_code_points(lead) + count_code_points(body);
  const auto width = static_cast<size_t>(spec.width);
  if (length >= width) return lead + body;
  const size_t missing = width - length;
  const char align = spec.align == 0 ? own_align : spec.align;
  const size_t before = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  std::string out = align == '=' ? lead : std::string();
  for (size_t i = 0; i < before; ++i) append_utf8(out, spec.fill);
  if (align != '=') out += lead;
  out += body;
  for (size_t i = before; i < missing; ++i) append_utf8(out, spec.fill);
  return out;
}

// The character with this number.
std::string character(const Value& value) {
  const Int code = value.as_int();
  if (code < 0 || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
    throw Failure("%c arg not in the range of Unicode characters");
  std::string one;
  append_utf8(one, static_cast<char32_t>(code));
  return one;
}

std::string format_number(const Value& value, const Spec& spec) {
  if (spec.type == 'c' && value.is_integral()) return pad("", character(value), spec, '>');
  NumberText text = number_text(value, spec);
  if (spec.grouping != 0 && !text.digits.empty()) {  // not inf and nan
    const bool fill_digits = spec.fill == U'0' && spec.align == '=';
    const size_t others = text.lead.size() + text.rest.size();
    const auto width = static_cast<size_t>(spec.width);
    text.digits = group_digits(text.digits, spec, fill_digits && width > others ? width - others : 0);
  }
  return pad(text.lead, text.digits + text.rest, spec, '>');
}

// repr() with escapes for all that is not ASCII.
std::string ascii(const Value& value) {
  const std::string text = repr(value);
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = decode_at(text, at);
    char escape[12];
    const char* const format = c.value < 0x100 ? "\\x%02x" : c.value < 0x10000 ? "\\u%04x" : "\\U%08x";
    std::snprintf(escape, sizeof escape, format, static_cast<unsigned>(c.value));
    out += c.value < 0x80 ? text.substr(at, 1) : escape;
    at += c.bytes;
  }
  return out;
}

// str(), repr() or ascii(), by their letters in formats.
std::string converted(const Value& value, char conversion) {
  return conversion == 's' ? to_text(value) : conversion == 'r' ? repr(value) : ascii(value);
}

std::string cut(const std::string& text, int precision) {
  return precision < 0 ? text : text.substr(0, byte_offset(text, static_cast<size_t>(precision)));
}

// `own_align`: '>' of numbers, '<' of text.
Spec parse_spec(std::string_view text, char own_align) {
  Spec spec;
  const std::string_view whole = text;
  bool filled = false;
  if (!text.empty()) {
    const CodePoint fill = decode_at(text, 0);
    std::string_view rest = text.substr(fill.bytes);
    filled = take_one_of(rest, "<>^=", spec.align);
    if (filled) {
      spec.fill = fill.value;
      text = rest;
    } else {
      take_one_of(text, "<>^=", spec.align);
    }
  }
  take_one_of(text, "+- ", spec.sign);
  char mark = 0;
  spec.no_negative_zero = take_one_of(text, "z", mark);
  spec.alternate = take_one_of(text, "#", mark);
  if (!filled && take_one_of(text, "0", mark)) {
    spec.fill = '0';
    if (spec.align == 0 && own_align == '>') spec.align = '=';
  }
  spec.width = take_number(text, kMaxWidth, "a width");
  take_one_of(text, ",_", spec.grouping);
  if (take_one_of(text, ".", mark)) {
    if (text.empty() || text[0] < '0' || text[0] > '9') throw Failure("Format specifier missing precision");
    spec.precision = take_number(text, kMaxPrecision, "a precision");
  }
  if (!text.empty()) take_one_of(text, text, spec.type);
  if (!text.empty()) throw Failure(cat("Invalid format specifier '", whole, "'"));
  const std::string_view grouped = spec.grouping == '_' ? "deEfFgG%xXob" : "deEfFgG%";
  if (spec.grouping != 0 && spec.type != 0 && grouped.find(spec.type) == std::string_view::npos)
    throw Failure(cat("Cannot specify '", spec.grouping, "' with '", spec.type, "'."));
  return spec;
}

// Walks one "%..." directive after another.
class PercentFormatter {
 public:
  explicit PercentFormatter(const Value& values) : values_(values) {}

  std::string run(std::string_view format) {
    std::string out;
    for (size_t percent; (percent = format.find('%')) != std::string_view::npos;) {
      out += format.substr(0, percent);
      format.remove_prefix(percent + 1);
      out += directive(format);
      if (out.size() > kMaxTextBytes) throw Failure("the formatted text is too long");
    }
    out += format;
    const bool all_used = values_.is_dict() || used_ == (values_.is_tuple() ? values_.items().size() : 1);
    if (!all_used) throw Failure("not all arguments converted during string formatting");
    return out;
  }

 private:
  std::string directive(std::string_view& format) {
    std::optional<Value> named = take_named(format);
    Spec spec;
    bool zero = false;
    for (char flag = 0; take_one_of(format, "-+ #0", flag);) {
      if (flag == '-') spec.align = '<';
      if (flag == '+' || (flag == ' ' && spec.sign == 0)) spec.sign = flag;
      spec.alternate |= flag == '#';
      zero |= flag == '0';
    }
    spec.width = take_count(format, kMaxWidth);
    char dot = 0;
    if (take_one_of(format, ".", dot)) spec.precision = take_count(format, kMaxPrecision);
    char length = 0;
    while (take_one_of(format, "hlL", length)) {
    }
    if (format.empty()) throw Failure("incomplete format");
    const char type = format[0];
    format.remove_prefix(1);
    if (type == '%') return "%";
    return convert(named ? *named : next(), type, spec, zero);
  }

  std::optional<Value> take_named(std::string_view& format) {
    if (format.empty() || format[0] != '(') return std::nullopt;
    const size_t close = format.find(')');
    if (close == std::string_view::npos) throw Failure("incomplete format key");
    if (!values_.is_dict()) throw Failure("format requires a mapping");
    const std::string_view key = format.substr(1, close - 1);
    const Value* found = values_.dict().find(key);
    if (found == nullptr) throw Failure(cat("format: no key '", key, "'"));
    format.remove_prefix(close + 1);
    return *found;
  }

  int take_count(std::string_view& format, int limit) {
    char star = 0;
    if (!take_one_of(format, "*", star)) return take_number(format, limit, "a width or precision");
    const Value value = next();
    if (!value.is_integral()) throw Failure("* wants int");
    return static_cast<int>(std::clamp<Int>(value.as_int(), 0, limit));
  }

  std::string convert(const Value& value, char type, Spec spec, bool zero) {
    if (type == 's' || type == 'r' || type == 'a')
      return pad("", cut(converted(value, type), spec.precision), spec, '>');
    if (type == 'c') {
      if (value.is_text() && value.text().length == 1) return pad("", value.utf8(), spec, '>');
      if (!value.is_integral()) throw Failure("%c requires int or char");
      return pad("", character(value), spec, '>');
    }
    if (value.is_undefined()) fail_undefined(value);
    if (std::string_view("diuxXoeEfFgG").find(type) == std::string_view::npos)
      throw Failure(cat("unsupported format character '", type, "'"));
    if (!value.is_number())
      throw Failure(cat("%", type, " format: a real number is required, not ", value.type_name()));
    if (zero && spec.align == 0) {
      spec.fill = '0';
      spec.align = '=';
    }
    const bool decimal = std::string_view("diu").find(type) != std::string_view::npos;
    spec.type = decimal ? 'd' : type;
    if (decimal && value.is_float()) return format_number(whole_part(value.as_double()), spec);
    return format_number(value, spec);
  }

  static Value whole_part(double value) {
    if (!(std::abs(value) < 0x1p126)) throw Failure("cannot convert the float to an integer");
    return static_cast<Int>(value);
  }

  Value next() {
    const bool tuple = values_.is_tuple();
    if (used_ == (tuple ? values_.items().size() : 1))
      throw Failure("not enough arguments for format string");
    return tuple ? values_.items()[used_++] : (++used_, values_);
  }

  const Value& values_;
  size_t used_ = 0;
};

// Walks "{...}" fields.
class BraceFormatter {
 public:
  BraceFormatter(Interpreter& interpreter, const Arguments& arguments)
      : interpreter_(interpreter), arguments_(arguments) {}

  std::string run(std::string_view format, int depth = 0) {
    if (depth > 1) throw Failure("Max string recursion exceeded");
    std::string out;
    while (!format.empty()) {
      const size_t brace = std::min(format.find_first_of("{}"), format.size());
      out += format.substr(0, brace);
      format.remove_prefix(brace);
      if (format.empty()) break;
      if (format.size() > 1 && format[1] == format[0]) {
        out += format[0];
        format.remove_prefix(2);
      } else {
        if (format[0] == '}') throw Failure("Single '}' encountered in format string");
        out += field(take_field(format), depth);
      }
      if (out.size() > kMaxTextBytes) throw Failure("the formatted text is too long");
    }
    return out;
  }

 private:
  // The inside of the field that begins `format`; nested braces count.
  static std::string_view take_field(std::string_view& format) {
    int open = 0;
    for (size_t i = 0; i < format.size(); ++i) {
      open += format[i] == '{' ? 1 : format[i] == '}' ? -1 : 0;
      if (open != 0) continue;
      const std::string_view inside = format.substr(1, i - 1);
      format.remove_prefix(i + 1);
      return inside;
    }
    throw Failure("expected '}' before end of string");
  }

  std::string field(std::string_view text, int depth) {
    const size_t name_end = std::min(text.find_first_of("!:"), text.size());
    Value value = lookup(text.substr(0, name_end));
    text.remove_prefix(name_end);
    if (!text.empty() && text[0] == '!') {
      const char conversion = text.size() > 1 ? text[1] : '\0';
      if (conversion != 's' && conversion != 'r' && conversion != 'a')
        throw Failure(cat("Unknown conversion specifier in '", text, "'"));
      value = Value(converted(value, conversion));
      text.remove_prefix(2);
    }
    if (text.empty()) return format_value(value, {});
    if (text[0] != ':') throw Failure("expected ':' after conversion specifier");
    return format_value(value, run(text.substr(1), depth + 1));
  }

  // "0", "name", "name.attribute[key]"; an empty name takes the next positional value.
  Value lookup(std::string_view path) {
    const size_t end = std::min(path.find_first_of(".["), path.size());
    Value value = first(path.substr(0, end));
    path.remove_prefix(end);
    while (!path.empty()) {
      const bool bracket = path[0] == '[';
      const size_t stop = bracket ? path.find(']') : std::min(path.find_first_of(".[", 1), path.size());
      if (stop == std::string_view::npos) throw Failure("Missing ']' in format string");
      const std::string_view key = path.substr(1, stop - 1);
      value = bracket ? interpreter_.item(value, key_of(key)) : interpreter_.attribute(value, key);
      path.remove_prefix(bracket ? stop + 1 : stop);
    }
    return value;
  }

  static bool all_digits(std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  }
  static Value key_of(std::string_view key) {
    if (!all_digits(key)) return Value(std::string(key));
    return Int{take_number(key, kMaxWidth, "an index")};
  }

  Value first(std::string_view name) {
    if (name.empty() || all_digits(name)) {
      (name.empty() ? counted_ : numbered_) = true;
      if (counted_ && numbered_) throw Failure("cannot mix {} and {0} in one format string");
      const size_t index =
          name.empty() ? next_++ : static_cast<size_t>(take_number(name, kMaxWidth, "an index"));
      if (index >= arguments_.positional.size())
        throw Failure("Replacement index out of range for positional args tuple");
      return arguments_.positional[index];
    }
    for (const auto& [own, value] : arguments_.named)
      if (own == name) return value;
    throw Failure(cat("format: no argument '", name, "'"));
  }

  Interpreter& interpreter_;
  const Arguments& arguments_;
  size_t next_ = 0;
  bool counted_ = false, numbered_ = false;  // "{}" and "{0}" were seen
};

// Markup escapes what is put into it.
Value escaped_values(const Value& value) {
  if (value.is_tuple()) {
    std::vector<Value> items;
    for (const Value& item : value.items()) items.push_back(escaped_values(item));
    return Value::tuple(std::move(items));
  }
  return value.is_text() ? escape(value) : value;
}

}  // namespace

std::string format_value(const Value& value, std::string_view spec_text) {
  if (spec_text.empty()) return to_text(value);
  const Spec spec = parse_spec(spec_text, value.is_text() ? '<' : '>');
  const bool as_integer =
      value.is_integral() &&
      (spec.type == 0 || std::string_view("dnxXobc").find(spec.type) != std::string_view::npos);
  if (as_integer && spec.precision >= 0) throw Failure("Precision not allowed in integer format specifier");
  if (as_integer && spec.no_negative_zero)
    throw Failure("Negative zero coercion (z) not allowed in format specifier with integer");
  if (spec.type == 'c' && (spec.sign != 0 || spec.alternate))
    throw Failure("Sign and alternate form (#) not allowed with integer format specifier 'c'");
  if (value.is_number()) return format_number(value, spec);  // True is 1 as soon as there is a spec
  if (!value.is_text())
    throw Failure(cat("unsupported format string passed to ", value.type_name(), ".__format__"));
  if ((spec.type != 0 && spec.type != 's') || spec.align == '=' || spec.grouping != 0 || spec.sign != 0 ||
      spec.alternate || spec.no_negative_zero)
    throw Failure(cat("Unknown format code in '", spec_text, "' for object of type 'str'"));
  return pad("", cut(to_text(value), spec.precision), spec, '<');
}

Value format_percent(const Value& format, const Value& values) {
  if (!format.is_markup()) return Value(PercentFormatter(values).run(format.utf8()));
  const Value escaped = escaped_values(values);
  return Value(PercentFormatter(escaped).run(format.utf8()), /*markup=*/true);
}

Value format_braces(Interpreter& interpreter, const Value& format, const Arguments& arguments) {
  if (!format.is_markup()) return Value(BraceFormatter(interpreter, arguments).run(format.utf8()));
  Arguments escaped = arguments;
  for (Value& value : escaped.positional) value = escaped_values(value);
  for (auto& [name, value] : escaped.named) value = escaped_values(value);
  return Value(BraceFormatter(interpreter, escaped).run(format.utf8()), /*markup=*/true);
}

}  // namespace lmdeploy::jinja
