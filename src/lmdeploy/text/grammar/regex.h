// Regular expressions: the part of ECMA 262 and Python's re that describes a regular language.
//
// Literals, ".", classes, \d \w \s \D \W \S (ASCII; \W is ASCII only, \S leaves out Unicode's blanks too), \n
// \r \t \f \v \0 \xHH \uHHHH \u{H...} \cX, groups of any kind, "|", "*" "+" "?" "{m}" "{m,}" "{m,n}" "{,n}"
// and their lazy forms, "^" and "$" for the ends of the text. Refused by name: backreferences, lookaround,
// word boundaries, Unicode properties, flags, possessive quantifiers.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "lmdeploy/text/grammar/code_set.h"

namespace lmdeploy::grammar {

struct Regex {
  enum class Kind { kCodes, kConcat, kAlternate, kRepeat, kBegin, kEnd };
  static constexpr uint32_t kNoLimit = std::numeric_limits<uint32_t>::max();

  Kind kind = Kind::kConcat;
  CodeSet codes = {};             // kCodes
  std::vector<Regex> parts = {};  // kConcat, kAlternate; kRepeat: one
  uint32_t min = 0, max = 0;      // kRepeat; max may be kNoLimit
};

/// Throws Error(kInvalidArgument): `where`, the column, what was found and what was expected.
Regex parse_regex(std::string_view pattern, std::string_view where);

}  // namespace lmdeploy::grammar
