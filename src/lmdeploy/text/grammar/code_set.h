// Sets of Unicode code points (never surrogates).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lmdeploy::grammar {

struct CodeRange {
  char32_t first = 0, last = 0;
  auto operator<=>(const CodeRange&) const = default;
};
/// Ascending, disjoint, not touching.
using CodeSet = std::vector<CodeRange>;

constexpr char32_t kLastCode = 0x10FFFF;

/// Ranges in any order, overlapping or not, to a CodeSet; surrogates are left out.
CodeSet make_code_set(std::vector<CodeRange> ranges);
CodeSet complement(const CodeSet& set);
/// Every code point.
const CodeSet& any_code();
/// The code points of valid UTF-8.
std::u32string to_codes(std::string_view utf8);

}  // namespace lmdeploy::grammar
