#include "lmdeploy/jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <compare>

#include "lmdeploy/core/error.h"
#include "lmdeploy/jinja/format.h"
#include "lmdeploy/jinja/print.h"
#include "lmdeploy/jinja/text.h"
#include "lmdeploy/jinja/unicode.h"

namespace lmdeploy::jinja {
namespace {

constexpr std::string_view symbol(BinaryOp op) {
  constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};
  return kSymbols[static_cast<size_t>(op)];
}

[[noreturn]] void fail_operands(BinaryOp op, const Value& a, const Value& b) {
  throw Failure(cat("unsupported operand type(s) for ", symbol(op), ": '", a.type_name(), "' and '",
                    b.type_name(), "'"));
}

Value add_texts(const Value& a, const Value& b) {
  if (!a.is_markup() && !b.is_markup()) return Value(a.utf8() + b.utf8());
  return Value(escape(a).utf8() + escape(b).utf8(), /*markup=*/true);
}

Value add_sequences(const Value& a, const Value& b) {
  std::vector<Value> items = a.items();
  items.insert(items.end(), b.items().begin(), b.items().end());
  return a.is_tuple() ? Value::tuple(std::move(items)) : Value::list(std::move(items));
}

Value add(const Value& a, const Value& b) {
  if (a.is_text() && b.is_text()) return add_texts(a, b);
  if (a.is_sequence() && b.is_sequence() && a.is_tuple() == b.is_tuple()) return add_sequences(a, b);
  if (a.is_text() || a.is_sequence())
    throw Failure(
        cat("can only concatenate ", a.type_name(), " (not \"", b.type_name(), "\") to ", a.type_name()));
  fail_operands(BinaryOp::kAdd, a, b);
}

Value repeat(const Value& value, Int count) {
  const Int times = std::max<Int>(count, 0);
  const size_t size = value.is_text() ? value.utf8().size() : value.items().size();
  const size_t limit = value.is_text() ? kMaxTextBytes : kMaxItems;
  if (size != 0 && times > static_cast<Int>(limit / size)) throw Failure("the repetition is too long");
  if (value.is_text()) {
    std::string out;
    for (Int i = 0; i < times && size != 0; ++i) out += value.utf8();
    return Value(std::move(out), value.is_markup());
  }
  std::vector<Value> items;
  for (Int i = 0; i < times && size != 0; ++i)
    items.insert(items.end(), value.items().begin(), value.items().end());
  return value.is_tuple() ? Value::tuple(std::move(items)) : Value::list(std::move(items));
}

// Python rounds quotients down and gives remainders the sign of the divisor.
Int floor_divide(Int a, Int b) {
  const Int quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}
double float_modulo(double a, double b) {
  const double remainder = std::fmod(a, b);
  if (remainder != 0 && (remainder < 0) != (b < 0)) return remainder + b;
  return remainder == 0 ? std::copysign(0.0, b) : remainder;
}

[[noreturn]] void fail_overflow() { throw Failure("an integer of more than 127 bits"); }

Int power(Int base, Int exponent) {
  Int result = 1;
  if (base == 0 || base == 1 || base == -1)
    return exponent == 0 || (base == -1 && exponent % 2 == 0) ? 1 : base;
  for (Int i = 0; i < exponent; ++i)  // ends by overflow within 127 rounds
    if (__builtin_mul_overflow(result, base, &result)) fail_overflow();
  return result;
}

using Unsigned = unsigned __int128;
Unsigned magnitude(Int value) {
  return value < 0 ? -static_cast<Unsigned>(value) : static_cast<Unsigned>(value);
}

// The double nearest to a / b, also where a or b is no double.
double true_divide(Int a, Int b) {
  const Unsigned divisor = magnitude(b);
  Unsigned quotient = magnitude(a) / divisor, rest = magnitude(a) % divisor;
  int exponent = 0;
  for (; quotient < Unsigned{1} << 55 && (quotient != 0 || rest != 0);
       --exponent) {  // two bits below a double's
    rest *= 2;
    quotient = quotient * 2 + (rest >= divisor ? 1 : 0);
    if (rest >= divisor) rest -= divisor;
  }
  if (rest != 0) quotient |= 1;  // not half way between two doubles
  const double size = std::ldexp(static_cast<double>(quotient), exponent);
  return (a < 0) != (b < 0) ? -size : size;
}

Value int_arithmetic(BinaryOp op, Int a, Int b) {
  Int result = 0;
  bool overflow = false;
  if (b == 0 && (op == BinaryOp::kFloorDivide || op == BinaryOp::kModulo || op == BinaryOp::kDivide))
    throw Failure("division by zero");
  switch (op) {
    case BinaryOp::kAdd:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case BinaryOp::kSubtract:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case BinaryOp::kMultiply:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case BinaryOp::kDivide:
      return true_divide(a, b);
    case BinaryOp::kFloorDivide:
    case BinaryOp::kModulo: {
      if (b == -1)
        return int_arithmetic(BinaryOp::kMultiply, a, op == BinaryOp::kModulo ? 0 : -1);  // min / -1
      const Int quotient = floor_divide(a, b);
      result = op == BinaryOp::kFloorDivide ? quotient : a - quotient * b;
      break;
    }
    case BinaryOp::kPower:
      if (b < 0 && a == 0) throw Failure("0 cannot be raised to a negative power");
      if (b < 0) return std::pow(static_cast<double>(a), static_cast<double>(b));
      return power(a, b);
  }
  if (overflow) fail_overflow();
  return result;
}

Value float_arithmetic(BinaryOp op, double a, double b) {
  const bool divides = op == BinaryOp::kDivide || op == BinaryOp::kFloorDivide || op == BinaryOp::kModulo;
  if (divides && b == 0) throw Failure("float division by zero");
  switch (op) {
    case BinaryOp::kAdd:
      return a + b;
    case BinaryOp::kSubtract:
      return a - b;
    case BinaryOp::kMultiply:
      return a * b;
    case BinaryOp::kDivide:
      return a / b;
    case BinaryOp::kFloorDivide: {  // as CPython: exact multiples stay exact, a zero has the sign of a / b
      const double quotient = std::floor((a - float_modulo(a, b)) / b + 0.5);
      return quotient == 0 ? std::copysign(0.0, a / b) : quotient;
    }
    case BinaryOp::kModulo:
      return float_modulo(a, b);
    case BinaryOp::kPower:
      break;
  }
  if (a < 0 && b != std::floor(b)) throw Failure("a negative number to a fractional power is complex");
  if (a == 0 && b < 0) throw Failure("0.0 cannot be raised to a negative power");
  return std::pow(a, b);
}

// An integer against a float, both exact.
std::partial_ordering order(Int a, double b) {
  if (!(std::abs(b) < 0x1p126)) return 0.0 <=> b;
  const auto whole = static_cast<Int>(b);  // towards zero
  if (a != whole) return a < whole ? std::partial_ordering::less : std::partial_ordering::greater;
  return 0.0 <=> b - static_cast<double>(whole);
}

std::partial_ordering order(const Value& a, const Value& b) {
  if (a.is_float() && b.is_float()) return a.as_double() <=> b.as_double();
  if (b.is_float()) return order(a.as_int(), b.as_double());
  if (a.is_float()) return 0 <=> order(b.as_int(), a.as_double());
  return a.as_int() < b.as_int()   ? std::partial_ordering::less
         : a.as_int() > b.as_int() ? std::partial_ordering::greater
                                   : std::partial_ordering::equivalent;
}

constexpr size_t kComparedBytesPerUnit = 256;  // memcmp is fast

bool equal_texts(const std::string& a, const std::string& b, Budget& budget) {
  if (a.size() != b.size()) return false;
  budget.charge(a.size() / kComparedBytesPerUnit);
  return a == b;
}

bool equal_items(const std::vector<Value>& a, const std::vector<Value>& b, Budget& budget) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](const Value& x, const Value& y) { return equal(x, y, budget); });
}

bool equal_dicts(const Dict& a, const Dict& b, Budget& budget) {
  if (a.entries.size() != b.entries.size()) return false;
  return std::all_of(a.entries.begin(), a.entries.end(), [&](const auto& entry) {
    const Value* other = b.find(entry.first);
    return other != nullptr && equal(entry.second, *other, budget);
  });
}

bool less_items(const std::vector<Value>& a, const std::vector<Value>& b, Budget& budget) {
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    if (!equal(a[i], b[i], budget)) return less(a[i], b[i], budget);
  return a.size() < b.size();
}

// First index, step and number of items of a Python slice over `size` items.
struct SliceRange {
  int64_t start, step;
  size_t count;
};

int64_t slice_bound(const Value& bound, int64_t absent, int64_t low, int64_t high, int64_t size) {
  if (bound.is_none()) return absent;
  if (bound.is_undefined()) fail_undefined(bound);
  if (!bound.is_integral()) throw Failure("slice indices must be integers or None");
  Int index = bound.as_int();
  if (index < 0) index += size;
  return static_cast<int64_t>(std::clamp<Int>(index, low, high));
}

SliceRange slice_range(size_t length, const Value& start, const Value& stop, const Value& step) {
  const auto size = static_cast<int64_t>(length);
  // A step beyond the size takes one item, as the size does.
  const int64_t by = step.is_none() ? 1 : slice_bound(step, 1, -size - 1, size + 1, 0);
  if (by == 0) throw Failure("slice step cannot be zero");
  const int64_t low = by > 0 ? 0 : -1, high = by > 0 ? size : size - 1;
  const int64_t first = slice_bound(start, by > 0 ? low : high, low, high, size);
  const int64_t last = slice_bound(stop, by > 0 ? high : low, low, high, size);
  const int64_t span = by > 0 ? last - first : first - last;
  const int64_t magnitude = by > 0 ? by : -by;
  return {first, by, span <= 0 ? 0 : static_cast<size_t>((span + magnitude - 1) / magnitude)};
}

std::string slice_text(const Text& text, const SliceRange& range) {
  const auto first = static_cast<size_t>(range.start);
  if (range.step == 1) {
    const size_t begin = text.ascii() ? first : byte_offset(text.utf8, first);
    const std::string_view rest = std::string_view(text.utf8).substr(std::min(begin, text.utf8.size()));
    return std::string(rest.substr(0, text.ascii() ? range.count : byte_offset(rest, range.count)));
  }
  std::vector<size_t> offsets;
  for (size_t at = 0; at < text.utf8.size(); at += decode_at(text.utf8, at).bytes) offsets.push_back(at);
  std::string out;
  int64_t index = range.start;
  for (size_t i = 0; i < range.count; ++i, index += range.step) {
    const size_t at = offsets[static_cast<size_t>(index)];
    out.append(text.utf8, at, decode_at(text.utf8, at).bytes);
  }
  return out;
}

}  // namespace

void Budget::charge_for(const Value& made) {
  if (made.is_text())
    charge(made.utf8().size() / 32);
  else if (made.is_sequence())
    charge(2 * made.items().size());
  else if (made.is_dict())
    charge(4 * made.dict().entries.size());
}

void Budget::charge_reading(const Value& value) {
  if (value.is_text()) charge(value.utf8().size() / 16);
}

bool equal(const Value& a, const Value& b, Budget& budget) {
  budget.charge(1);
  if (a.is_number() && b.is_number()) return order(a, b) == 0;
  if (a.is_text() && b.is_text()) return equal_texts(a.utf8(), b.utf8(), budget);
  if (a.same_object(b)) return true;
  if (a.is_object() && b.is_object()) return a.object().equals(b.object());
  if (a.is_sequence() && b.is_sequence())
    return a.is_tuple() == b.is_tuple() && equal_items(a.items(), b.items(), budget);
  if (a.is_dict() && b.is_dict()) return equal_dicts(a.dict(), b.dict(), budget);
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

bool less(const Value& a, const Value& b, Budget& budget) {
  budget.charge(1);
  if (a.is_undefined()) fail_undefined(a);
  if (b.is_undefined()) fail_undefined(b);
  if (a.is_number() && b.is_number()) return order(a, b) < 0;
  if (a.is_text() && b.is_text()) {
    budget.charge(std::min(a.utf8().size(), b.utf8().size()) / kComparedBytesPerUnit);
    return a.utf8() < b.utf8();
  }
  if (a.is_sequence() && b.is_sequence() && a.is_tuple() == b.is_tuple())
    return less_items(a.items(), b.items(), budget);
  throw Failure(
      cat("'<' not supported between instances of '", a.type_name(), "' and '", b.type_name(), "'"));
}

bool compare(CompareOp op, const Value& a, const Value& b, Budget& budget) {
  switch (op) {
    case CompareOp::kEqual:
      return equal(a, b, budget);
    case CompareOp::kNotEqual:
      return !equal(a, b, budget);
    case CompareOp::kLess:
      return less(a, b, budget);
    case CompareOp::kGreater:
      return less(b, a, budget);
    case CompareOp::kLessEqual:  // equal() first: NaN is neither less nor equal
      return less(a, b, budget) || equal(a, b, budget);
    case CompareOp::kGreaterEqual:
      return less(b, a, budget) || equal(a, b, budget);
    case CompareOp::kIn:
      return contains(b, a, budget);
    case CompareOp::kNotIn:
      return !contains(b, a, budget);
  }
  return false;
}

bool contains(const Value& container, const Value& item, Budget& budget) {
  if (container.is_text()) {
    if (!item.is_text())
      throw Failure(cat("'in <string>' requires string as left operand, not ", item.type_name()));
    budget.charge_reading(container);
    return find_text(container.utf8(), item.utf8(), 0) != std::string_view::npos;
  }
  if (container.is_dict()) {
    require_hashable(item);
    budget.charge_reading(item);
    return container.dict().find(item) != nullptr;
  }
  if (container.is_none() || container.is_number())
    throw Failure(cat("argument of type '", container.type_name(), "' is not iterable"));
  const Iterator next = iterate(container);
  while (const std::optional<Value> other = next())
    if (equal(*other, item, budget)) return true;
  return false;
}

Value arithmetic(BinaryOp op, const Value& a, const Value& b) {
  if (op == BinaryOp::kModulo && a.is_text()) return format_percent(a, b);
  if (a.is_undefined()) fail_undefined(a);
  if (b.is_undefined()) fail_undefined(b);
  if (a.is_number() && b.is_number()) {
    if (a.is_float() || b.is_float()) return float_arithmetic(op, a.as_double(), b.as_double());
    return int_arithmetic(op, a.as_int(), b.as_int());
  }
  if (op == BinaryOp::kAdd) return add(a, b);
  if (op == BinaryOp::kMultiply) {
    if ((a.is_text() || a.is_sequence()) && b.is_integral()) return repeat(a, b.as_int());
    if ((b.is_text() || b.is_sequence()) && a.is_integral()) return repeat(b, a.as_int());
  }
  fail_operands(op, a, b);
}

Value negate(const Value& value) {
  if (value.is_float()) return -value.as_double();
  if (value.is_integral()) return int_arithmetic(BinaryOp::kSubtract, 0, value.as_int());
  if (value.is_undefined()) fail_undefined(value);
  throw Failure(cat("bad operand type for unary -: '", value.type_name(), "'"));
}

Value slice(const Value& value, const Value& start, const Value& stop, const Value& step) {
  if (value.is_undefined()) fail_undefined(value);
  if (value.is_text())
    return Value(slice_text(value.text(), slice_range(value.text().length, start, stop, step)),
                 value.is_markup());
  const bool indexed = value.is_sequence() || (value.is_object() && value.object().indexed());
  if (!indexed) throw Failure(cat("'", value.type_name(), "' object is not subscriptable"));
  const std::vector<Value> made = value.is_sequence() ? std::vector<Value>() : to_vector(value);
  const std::vector<Value>& source = value.is_sequence() ? value.items() : made;
  const SliceRange range = slice_range(source.size(), start, stop, step);
  std::vector<Value> items;
  int64_t index = range.start;
  for (size_t i = 0; i < range.count; ++i, index += range.step)
    items.push_back(source[static_cast<size_t>(index)]);
  return value.is_tuple() ? Value::tuple(std::move(items)) : Value::list(std::move(items));
}

Value escape(const Value& value) {
  if (value.is_markup()) return value;
  std::string out;
  for (const char c : to_text(value)) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '\'')
      out += "&#39;";
    else if (c == '"')
      out += "&#34;";
    else
      out += c;
  }
  return Value(std::move(out), /*markup=*/true);
}

}  // namespace lmdeploy::jinja
