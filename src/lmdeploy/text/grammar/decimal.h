// Numbers within bounds, as an automaton over their decimal digits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lmdeploy/core/json.h"
#include "lmdeploy/text/grammar/grammar.h"

namespace lmdeploy::grammar {

/// A number as it is written, without an exponent.
struct Decimal {
  bool negative = false;
  std::string whole = "0";  // no leading zeros
  std::string fraction;     // no trailing zeros

  bool is_zero() const { return whole == "0" && fraction.empty(); }
};
/// Exactly the number, a double by its shortest spelling.
Decimal to_decimal(const Json& number);
/// < 0, 0, > 0.
int compare(const Decimal& a, const Decimal& b);

struct Bound {
  Decimal value;
  bool open = false;  // the bound itself is outside
};

struct NumberRange {
  std::optional<Bound> low, high;
  std::optional<Decimal> divisor;  // above 0
  bool integer = false;

  bool bounded() const { return low || high || divisor; }
  /// The bounds contradict each other.
  bool empty() const;
};

constexpr size_t kMostIntegerDigits = 40;
constexpr size_t kMostDigits = 15;  // two decimals of so many digits are different doubles

/// Numbers in the range, as rule; they have no exponent, and at most kMostDigits digits when they need not be
/// integers (those: kMostIntegerDigits), so that their nearest doubles are within the range as well. Nothing
/// when there is no such number. Throws Error(kInvalidArgument) beginning with `where` when the divisor has
/// too many digits.
std::optional<NodeId> add_number_range(GrammarBuilder& builder, const NumberRange& range,
                                       std::string_view where);

}  // namespace lmdeploy::grammar
