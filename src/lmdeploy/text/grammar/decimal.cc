#include "lmdeploy/text/grammar/decimal.h"

#include <algorithm>
#include <charconv>
#include <deque>
#include <map>
#include <numeric>

#include "lmdeploy/core/error.h"

namespace lmdeploy::grammar {
namespace {

constexpr uint64_t kLargestDivisor = 100'000;
constexpr size_t kMostNodes = 100'000;

std::string shortest(double value) {
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::scientific).ptr;
  return {text, end};
}

// "1.25e+02" to 125.
Decimal from_scientific(std::string_view text) {
  Decimal out;
  if (text.starts_with('-')) {
    out.negative = true;
    text.remove_prefix(1);
  }
  const size_t e = text.find('e');
  int exponent = 0;
  std::string_view power = text.substr(e + 1);
  if (power.starts_with('+')) power.remove_prefix(1);
  std::from_chars(power.data(), power.data() + power.size(), exponent);
  std::string digits(text.substr(0, 1));
  if (e > 2) digits += text.substr(2, e - 2);
  if (exponent < 0) {
    digits.insert(0, static_cast<size_t>(-exponent), '0');
    exponent = 0;
  }
  const size_t point = static_cast<size_t>(exponent) + 1;
  if (digits.size() < point) digits.append(point - digits.size(), '0');
  out.whole = digits.substr(0, point);
  out.fraction = digits.substr(point);
  out.whole.erase(0, std::min(out.whole.find_first_not_of('0'), out.whole.size() - 1));
  out.fraction.erase(out.fraction.find_last_not_of('0') + 1);
  return out;
}

int sign(int value) { return value < 0 ? -1 : value > 0 ? 1 : 0; }

int compare_magnitudes(const Decimal& a, const Decimal& b) {
  if (a.whole.size() != b.whole.size()) return a.whole.size() < b.whole.size() ? -1 : 1;
  const int whole = a.whole.compare(b.whole);
  return sign(whole != 0 ? whole : a.fraction.compare(b.fraction));
}

/// How the digits read so far compare with those of a bound.
struct Comparison {
  static int whole_digit(int so_far, size_t place, char digit, const Decimal& bound) {
    if (so_far != 0 || place >= bound.whole.size()) return so_far;
    return sign(digit - bound.whole[place]);
  }
  static int end_of_whole(int so_far, size_t digits, const Decimal& bound) {
    if (digits != bound.whole.size()) return digits < bound.whole.size() ? -1 : 1;
    return so_far;
  }
  static int fraction_digit(int so_far, size_t place, char digit, const Decimal& bound) {
    if (so_far != 0) return so_far;
    return sign(digit - (place < bound.fraction.size() ? bound.fraction[place] : '0'));
  }
  static int end(int so_far, size_t fraction_digits, const Decimal& bound) {
    return so_far == 0 && fraction_digits < bound.fraction.size() ? -1 : so_far;
  }
};

/// Numbers of one sign.
struct Magnitudes {
  std::optional<Bound> low, high;
  uint64_t divisor = 1;
  size_t scale = 0;  // the divisor counts units of 10^-scale
  bool integer = false, divides = false;
};

struct Place {
  bool in_fraction = false;
  bool zero = false;  // the whole part is 0: no digit follows
  size_t whole_digits = 0, fraction_digits = 0;
  int low = 0, high = 0;
  uint64_t remainder = 0;
  auto operator<=>(const Place&) const = default;
};

class MagnitudeBuilder {
 public:
  MagnitudeBuilder(GrammarBuilder& builder, const Magnitudes& limits, std::string_view where)
      : builder_(builder), limits_(limits), where_(where) {}

  /// Whether there is such a number at all.
  bool build(NodeId from) {
    for (char digit = '0'; digit <= '9'; ++digit) builder_.byte(from, digit, node(after_whole({}, digit)));
    while (!pending_.empty()) {
      const auto [place, at] = pending_.front();
      pending_.pop_front();
      if (place.in_fraction)
        expand_fraction(place, at);
      else
        expand_whole(place, at);
    }
    return any_;
  }

 private:
  NodeId node(const Place& place) {
    const auto [known, is_new] = nodes_.try_emplace(place, 0);
    if (!is_new) return known->second;
    if (nodes_.size() > kMostNodes)
      throw Error(ErrorCode::kInvalidArgument,
                  cat(where_, ": the bounds and multipleOf together need more than ", kMostNodes,
                      " states; expected a smaller multipleOf or fewer digits"));
    known->second = builder_.add();
    pending_.emplace_back(place, known->second);
    return known->second;
  }

  Place after_whole(const Place& from, char digit) const {
    Place to = from;
    if (limits_.low) to.low = Comparison::whole_digit(from.low, from.whole_digits, digit, limits_.low->value);
    if (limits_.high)
      to.high = Comparison::whole_digit(from.high, from.whole_digits, digit, limits_.high->value);
    to.zero = from.whole_digits == 0 && digit == '0';
    ++to.whole_digits;
    to.remainder = next_remainder(from.remainder, digit);
    return to;
  }

  uint64_t next_remainder(uint64_t remainder, char digit) const {
    return (remainder * 10 + static_cast<uint64_t>(digit - '0')) % limits_.divisor;
  }

  Place end_of_whole(const Place& from) const {
    Place to = from;
    to.in_fraction = true;
    if (limits_.low) to.low = Comparison::end_of_whole(from.low, from.whole_digits, limits_.low->value);
    if (limits_.high) to.high = Comparison::end_of_whole(from.high, from.whole_digits, limits_.high->value);
    return to;
  }

  Place after_fraction(const Place& from, char digit) const {
    Place to = from;
    if (limits_.low)
      to.low = Comparison::fraction_digit(from.low, from.fraction_digits, digit, limits_.low->value);
    if (limits_.high)
      to.high = Comparison::fraction_digit(from.high, from.fraction_digits, digit, limits_.high->value);
    ++to.fraction_digits;
    to.remainder = next_remainder(from.remainder, digit);
    return to;
  }

  bool accepts(const Place& place) const {
    if (limits_.low) {
      const int low = Comparison::end(place.low, place.fraction_digits, limits_.low->value);
      if (low < 0 || (low == 0 && limits_.low->open)) return false;
    }
    if (limits_.high) {
      const int high = Comparison::end(place.high, place.fraction_digits, limits_.high->value);
      if (high > 0 || (high == 0 && limits_.high->open)) return false;
    }
    uint64_t remainder = place.remainder;
    for (size_t i = place.fraction_digits; i < limits_.scale; ++i) remainder = next_remainder(remainder, '0');
    return remainder == 0;
  }

  void mark_end(NodeId at) {
    builder_.mark_end(at);
    any_ = true;
  }

  void expand_whole(const Place& place, NodeId at) {
    const Place done = end_of_whole(place);
    if (accepts(done)) mark_end(at);
    const size_t most = limits_.integer ? kMostIntegerDigits : kMostDigits;
    if (!place.zero && place.whole_digits < std::min(most, longest_whole()))
      for (char digit = '0'; digit <= '9'; ++digit) builder_.byte(at, digit, node(after_whole(place, digit)));
    if (!limits_.integer && has_room(done)) expand_fraction_digits(done, builder_.literal(at, "."));
  }

  size_t longest_whole() const {
    return limits_.high ? limits_.high->value.whole.size() : kMostIntegerDigits;
  }

  // `at` has read a digit of the fraction at least.
  void expand_fraction(const Place& place, NodeId at) {
    if (accepts(place)) mark_end(at);
    expand_fraction_digits(place, at);
  }

  void expand_fraction_digits(const Place& place, NodeId at) {
    if (!has_room(place)) return;
    for (char digit = '0'; digit <= '9'; ++digit)
      builder_.byte(at, digit, node(after_fraction(place, digit)));
  }

  bool has_room(const Place& place) const {
    return place.whole_digits + place.fraction_digits < kMostDigits &&
           (!limits_.divides || place.fraction_digits < limits_.scale);
  }

  GrammarBuilder& builder_;
  const Magnitudes& limits_;
  std::string_view where_;
  std::map<Place, NodeId> nodes_;
  std::deque<std::pair<Place, NodeId>> pending_;
  bool any_ = false;
};

void set_divisor(Magnitudes& out, const Decimal& divisor, std::string_view where) {
  const std::string digits = divisor.whole + divisor.fraction;
  const size_t first = std::min(digits.find_first_not_of('0'), digits.size());
  const std::string_view significant = std::string_view(digits).substr(first);
  uint64_t value = 0;
  if (significant.size() <= 9)
    std::from_chars(significant.data(), significant.data() + significant.size(), value);
  // An integer is a multiple of a/10^k when it is one of a/gcd(a, 10^k).
  size_t scale = divisor.fraction.size();
  if (out.integer)
    for (; scale > 0; --scale) {
      const uint64_t shared = std::gcd(value, uint64_t{10});
      value /= std::max<uint64_t>(shared, 1);
    }
  if (value == 0 || value > kLargestDivisor || scale >= kMostDigits)
    throw Error(ErrorCode::kInvalidArgument,
                cat(where, ": multipleOf is ", divisor.whole, divisor.fraction.empty() ? "" : ".",
                    divisor.fraction, "; expected at most ", kLargestDivisor, " without its point"));
  out.divisor = value;
  out.scale = scale;
  out.divides = true;
}

Bound without_sign(Bound bound) {
  bound.value.negative = false;
  return bound;
}

}  // namespace

Decimal to_decimal(const Json& number) {
  if (number.is_double()) return from_scientific(shortest(number.get_double()));
  Decimal out;
  out.whole = number.is_uint64() ? std::to_string(number.get_uint64()) : std::to_string(number.get_int64());
  if (out.whole.starts_with('-')) {
    out.negative = true;
    out.whole.erase(0, 1);
  }
  return out;
}

int compare(const Decimal& a, const Decimal& b) {
  if (a.is_zero() && b.is_zero()) return 0;
  const bool a_below = a.negative && !a.is_zero(), b_below = b.negative && !b.is_zero();
  if (a_below != b_below) return a_below ? -1 : 1;
  const int magnitudes = compare_magnitudes(a, b);
  return a_below ? -magnitudes : magnitudes;
}

bool NumberRange::empty() const {
  if (!low || !high) return false;
  const int order = compare(low->value, high->value);
  return order > 0 || (order == 0 && (low->open || high->open));
}

std::optional<NodeId> add_number_range(GrammarBuilder& builder, const NumberRange& range,
                                       std::string_view where) {
  const NodeId start = builder.add();
  const Decimal zero;
  Magnitudes limits;
  limits.integer = range.integer;
  bool any = false;
  if (range.divisor) set_divisor(limits, *range.divisor, where);

  const bool reaches_zero = !range.high || compare(range.high->value, zero) >= 0;
  if (reaches_zero) {  // from 0 up
    Magnitudes up = limits;
    up.high = range.high;
    if (range.low && compare(range.low->value, zero) >= 0) up.low = range.low;
    any |= MagnitudeBuilder(builder, up, where).build(start);
  }
  const bool has_negative = !range.low || compare(range.low->value, zero) < 0;
  if (has_negative) {
    Magnitudes down = limits;
    down.low = Bound{zero, /*open=*/true};
    if (range.high && compare(range.high->value, zero) < 0) down.low = without_sign(*range.high);
    if (range.low) down.high = without_sign(*range.low);
    any |= MagnitudeBuilder(builder, down, where).build(builder.literal(start, "-"));
  }
  return any ? std::optional(start) : std::nullopt;
}

}  // namespace lmdeploy::grammar
