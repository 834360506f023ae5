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
  char sign = '-';
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

// printf's e, f and g agree with Python's, but for the spelling of the exponent's limits, which are equal
// too.
std::string float_digits(double value, char type, int precision) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return "inf";
  const char format[] = {'%', '.', '*', type, '\0'};
  const int size = std::snprintf(nullptr, 0, format, precision, value);
  std::string out(static_cast<size_t>(size) + 1, '\0');
  std::snprintf(out.data(), out.size(), format, precision, value);
  out.pop_back();
  return out;
}

std::string group_digits(std::string digits, char separator) {
  const size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  for (size_t i = whole; i > 3; i -= 3) digits.insert(i - 3, 1, separator);
  return digits;
}

// Digits without sign.
std::string number_body(const Value& value, const Spec& spec) {
  const char type = spec.type;
  if (value.is_integral() && (type == 0 || type == 'd' || type == 'n'))
    return in_base(value.as_int(), 10, false);
  if (value.is_integral() && std::string_view("xXob").find(type) != std::string_view::npos) {
    const unsigned base = type == 'o' ? 8 : type == 'b' ? 2 : 16;
    const std::string prefix = spec.alternate ? std::string("0") + type : std::string();
    return prefix + in_base(value.as_int(), base, type == 'X');
  }
  const double number = std::abs(value.as_double());
  const int precision = spec.precision < 0 ? 6 : spec.precision;
  if (type == '%') return float_digits(number * 100, 'f', precision) + "%";
  if (type == 0 && spec.precision < 0) return float_text(number);
  if (type == 0) return float_digits(number, 'g', precision);
  if (std::string_view("eEfFgG").find(type) != std::string_view::npos)
    return float_digits(number, type, precision);
  throw Failure(cat("Unknown format code '", type, "' for object of type '", value.type_name(), "'"));
}

std::string pad(const std::string& sign, const std::string& body, const Spec& spec, char own_align) {
  const size_t length = count_code_points(sign) + count_code_points(body);
  const auto width = static_cast<size_t>(spec.width);
  if (length >= width) return sign + body;
  const size_t missing = width - length;
  const char align = spec.align == 0 ? own_align : spec.align;
  const size_t before = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  std::string out = align == '=' ? sign : std::string();
  for (size_t i = 0; i < before; ++i) append_utf8(out, spec.fill);
  if (align != '=') out += sign;
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
  const bool negative = value.is_float() ? std::signbit(value.as_double()) : value.as_int() < 0;
  const std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  std::string body = number_body(value, spec);
  if (spec.grouping != 0) body = group_digits(std::move(body), spec.grouping);
  return pad(sign, body, spec, '>');
}

std::string cut(const std::string& text, int precision) {
  return precision < 0 ? text : text.substr(0, byte_offset(text, static_cast<size_t>(precision)));
}

Spec parse_spec(std::string_view text) {
  Spec spec;
  const std::string_view whole = text;
  if (!text.empty()) {
    const CodePoint fill = decode_at(text, 0);
    std::string_view rest = text.substr(fill.bytes);
    if (take_one_of(rest, "<>^=", spec.align)) {
      spec.fill = fill.value;
      text = rest;
    } else {
      take_one_of(text, "<>^=", spec.align);
    }
  }
  take_one_of(text, "+- ", spec.sign);
  char mark = 0;
  spec.alternate = take_one_of(text, "#", mark);
  if (take_one_of(text, "0", mark) && spec.align == 0) {
    spec.fill = '0';
    spec.align = '=';
  }
  spec.width = take_number(text, kMaxWidth, "a width");
  take_one_of(text, ",_", spec.grouping);
  if (take_one_of(text, ".", mark)) spec.precision = take_number(text, kMaxPrecision, "a precision");
  if (!text.empty()) take_one_of(text, text, spec.type);
  if (!text.empty()) throw Failure(cat("Invalid format specifier '", whole, "'"));
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
      if (flag == '+' || flag == ' ') spec.sign = flag;
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
      return pad("", cut(type == 's' ? to_text(value) : repr(value), spec.precision), spec, '>');
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
      if (conversion != 's' && conversion != 'r') throw Failure("only !s and !r conversions are supported");
      value = Value(conversion == 's' ? to_text(value) : repr(value));
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
  const Spec spec = parse_spec(spec_text);
  const bool as_integer =
      value.is_integral() &&
      (spec.type == 0 || std::string_view("dnxXobc").find(spec.type) != std::string_view::npos);
  if (as_integer && spec.precision >= 0) throw Failure("Precision not allowed in integer format specifier");
  if (value.is_number()) return format_number(value, spec);  // True is 1 as soon as there is a spec
  if (!value.is_text())
    throw Failure(cat("unsupported format string passed to ", value.type_name(), ".__format__"));
  if ((spec.type != 0 && spec.type != 's') || spec.align == '=' || spec.grouping != 0 || spec.sign != '-')
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
