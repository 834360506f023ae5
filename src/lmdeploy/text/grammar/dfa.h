// Deterministic automata over code points: what regular expressions, formats and sets of names become.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lmdeploy/text/grammar/code_set.h"

namespace lmdeploy::grammar {

struct Dfa {
  struct Edge {
    char32_t first = 0, last = 0;
    uint32_t next = 0;
  };
  struct State {
    std::vector<Edge> edges;  // ascending, disjoint; what has no edge leads nowhere
    bool accepts = false;
  };
  std::vector<State> states = {State{}};  // 0 is the start; every other one leads to acceptance

  /// Nothing is accepted.
  bool empty() const { return states[0].edges.empty() && !states[0].accepts; }
  bool accepts(std::u32string_view text) const;
};

/// More states than this are refused: Error(kInvalidArgument) beginning with `where`.
constexpr size_t kMostDfaStates = 10'000;

enum class Anchoring { kWhole, kAnywhere };
/// What `pattern` matches as a whole, or the texts that have a match anywhere.
Dfa regex_dfa(std::string_view pattern, Anchoring anchoring, std::string_view where);
Dfa any_text();
Dfa texts(std::span<const std::string> utf8);

Dfa intersect(const Dfa& a, const Dfa& b, std::string_view where);
Dfa complement(const Dfa& dfa);

struct LengthRange {
  static constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();
  uint64_t min = 0, max = kNoLimit;  // code points
};
/// The accepted texts of such a length.
Dfa with_length(const Dfa& dfa, LengthRange range, std::string_view where);

}  // namespace lmdeploy::grammar
