// A regular expression to a Dfa: Thompson's construction, then sets of its states.
#include <algorithm>
#include <map>
#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/text/grammar/dfa.h"
#include "lmdeploy/text/grammar/regex.h"
#include "lmdeploy/text/grammar/work_limit.h"

namespace lmdeploy::grammar {
namespace {

constexpr size_t kMostNfaStates = 20'000;
constexpr size_t kMostWork = 20'000'000;  // steps from state to state

struct NfaState {
  enum class Kind : uint8_t { kAccept, kCodes, kSplit, kBegin, kEnd };
  Kind kind = Kind::kAccept;
  uint32_t set = 0;              // kCodes: index of its CodeSet
  uint32_t next = 0, other = 0;  // other: kSplit
};

struct Nfa {
  std::vector<NfaState> states;
  std::vector<CodeSet> sets;  // distinct
  uint32_t start = 0;
};

class NfaBuilder {
 public:
  explicit NfaBuilder(std::string_view where) : where_(where) {}

  Nfa build(const Regex& regex, Anchoring anchoring) && {
    uint32_t next = add({});
    if (anchoring == Anchoring::kAnywhere) next = star(next);
    next = build(regex, next);
    if (anchoring == Anchoring::kAnywhere) next = star(next);
    nfa_.start = next;
    return std::move(nfa_);
  }

 private:
  using Kind = NfaState::Kind;

  uint32_t add(NfaState state) {
    if (nfa_.states.size() >= kMostNfaStates)
      throw Error(ErrorCode::kInvalidArgument,
                  cat(where_, ": the regular expression has more than ", kMostNfaStates,
                      " parts once its repetitions are written out; expected fewer"));
    nfa_.states.push_back(state);
    return static_cast<uint32_t>(nfa_.states.size() - 1);
  }
  uint32_t codes(const CodeSet& set, uint32_t next) {
    const auto [known, is_new] = set_ids_.try_emplace(set, static_cast<uint32_t>(nfa_.sets.size()));
    if (is_new) nfa_.sets.push_back(set);
    return add({Kind::kCodes, known->second, next});
  }
  uint32_t split(uint32_t next, uint32_t other) { return add({Kind::kSplit, 0, next, other}); }

  // Any text before `next`.
  uint32_t star(uint32_t next) {
    const uint32_t loop = split(0, next);
    nfa_.states[loop].next = codes(any_code(), loop);
    return loop;
  }

  // Built from the end: returns where `regex` begins when `next` follows it.
  uint32_t build(const Regex& regex, uint32_t next) {
    switch (regex.kind) {
      case Regex::Kind::kCodes:
        return codes(regex.codes, next);
      case Regex::Kind::kConcat:
        for (size_t i = regex.parts.size(); i-- > 0;) next = build(regex.parts[i], next);
        return next;
      case Regex::Kind::kAlternate: {
        uint32_t start = build(regex.parts.back(), next);
        for (size_t i = regex.parts.size() - 1; i-- > 0;) start = split(build(regex.parts[i], next), start);
        return start;
      }
      case Regex::Kind::kRepeat:
        return repeat(regex, next);
      case Regex::Kind::kBegin:
        return add({Kind::kBegin, 0, next});
      case Regex::Kind::kEnd:
        return add({Kind::kEnd, 0, next});
    }
    return next;
  }

  uint32_t repeat(const Regex& regex, uint32_t next) {
    const Regex& body = regex.parts[0];
    uint32_t start = next;
    if (regex.max == Regex::kNoLimit) {
      start = split(0, next);
      const uint32_t inner = build(body, start);
      nfa_.states[start].next = inner;
    } else {
      for (uint32_t i = regex.min; i < regex.max; ++i) start = split(build(body, start), next);
    }
    for (uint32_t i = 0; i < regex.min; ++i) {
      const uint32_t inner = build(body, start);
      if (inner == start) break;  // an empty body
      start = inner;
    }
    return start;
  }

  std::string_view where_;
  Nfa nfa_;
  std::map<CodeSet, uint32_t> set_ids_;
};

/// Code points that every set has or has not alike.
struct Alphabet {
  std::vector<std::vector<CodeRange>> classes;
  std::vector<std::vector<uint32_t>> of_set;  // the classes of each set

  explicit Alphabet(const std::vector<CodeSet>& sets) : of_set(sets.size()) {
    std::vector<char32_t> cuts;
    for (const CodeSet& set : sets)
      for (const CodeRange& range : set) {
        cuts.push_back(range.first);
        cuts.push_back(range.last + 1);
      }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    std::vector<std::vector<uint32_t>> members(cuts.size());  // sets that have the piece that begins at cut i
    const auto cut_at = [&](char32_t c) {
      return static_cast<size_t>(std::lower_bound(cuts.begin(), cuts.end(), c) - cuts.begin());
    };
    for (uint32_t s = 0; s < sets.size(); ++s)
      for (const CodeRange& range : sets[s])
        for (size_t i = cut_at(range.first), end = cut_at(range.last + 1); i < end; ++i)
          members[i].push_back(s);
    std::map<std::vector<uint32_t>, uint32_t> ids;
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      if (members[i].empty()) continue;
      const auto [id, is_new] = ids.try_emplace(members[i], static_cast<uint32_t>(classes.size()));
      if (is_new) {
        classes.emplace_back();
        for (const uint32_t s : members[i]) of_set[s].push_back(id->second);
      }
      classes[id->second].push_back({cuts[i], cuts[i + 1] - 1});
    }
  }
};

class Determinizer {
 public:
  Determinizer(const Nfa& nfa, std::string_view where)
      : nfa_(nfa),
        where_(where),
        alphabet_(nfa.sets),
        seen_(nfa.states.size()),
        seen_at_end_(nfa.states.size()) {}

  Dfa run() {
    Dfa dfa;
    dfa.states.clear();
    number(closure({nfa_.start}, /*at_begin=*/true));
    for (size_t i = 0; i < sets_.size(); ++i) {
      Dfa::State state;
      state.accepts = sets_[i]->accepts;
      state.edges = edges_of(*sets_[i]);
      dfa.states.push_back(std::move(state));
    }
    return intersect(dfa, any_text(), where_);  // without what leads nowhere
  }

 private:
  struct Set {
    std::vector<uint32_t> states;  // kCodes only, ascending
    bool accepts = false;
    auto operator<=>(const Set&) const = default;
  };

  uint32_t number(Set set) {
    const auto [found, is_new] = numbers_.try_emplace(std::move(set), static_cast<uint32_t>(sets_.size()));
    if (is_new) {
      if (sets_.size() >= kMostDfaStates) too_much("states");
      sets_.push_back(&found->first);
    }
    return found->second;
  }
  [[noreturn]] void too_much(std::string_view what) const {
    throw Error(ErrorCode::kInvalidArgument,
                cat(where_, ": the regular expression needs too many ", what, "; expected a simpler one"));
  }

  // After `$` nothing but acceptance matters.
  Set closure(const std::vector<uint32_t>& from, bool at_begin) {
    ++stamp_;
    Set set;
    std::vector<std::pair<uint32_t, bool>> pending;
    for (const uint32_t state : from) pending.emplace_back(state, false);
    while (!pending.empty()) {
      const auto [id, at_end] = pending.back();
      pending.pop_back();
      uint32_t& seen = (at_end ? seen_at_end_ : seen_)[id];
      if (std::exchange(seen, stamp_) == stamp_) continue;
      if (++work_ > kMostWork) too_much("steps");
      WorkLimit::spend(1);
      const NfaState& state = nfa_.states[id];
      switch (state.kind) {
        case NfaState::Kind::kAccept:
          set.accepts = true;
          break;
        case NfaState::Kind::kCodes:
          if (!at_end) set.states.push_back(id);
          break;
        case NfaState::Kind::kSplit:
          pending.emplace_back(state.next, at_end);
          pending.emplace_back(state.other, at_end);
          break;
        case NfaState::Kind::kBegin:
          if (at_begin) pending.emplace_back(state.next, at_end);
          break;
        case NfaState::Kind::kEnd:
          pending.emplace_back(state.next, true);
          break;
      }
    }
    std::sort(set.states.begin(), set.states.end());
    return set;
  }

  std::vector<Dfa::Edge> edges_of(const Set& set) {
    std::vector<std::vector<uint32_t>> targets(alphabet_.classes.size());
    for (const uint32_t id : set.states)
      for (const uint32_t c : alphabet_.of_set[nfa_.states[id].set]) {
        targets[c].push_back(nfa_.states[id].next);
        if (++work_ > kMostWork) too_much("steps");
        WorkLimit::spend(1);
      }
    std::vector<Dfa::Edge> edges;
    for (size_t c = 0; c < targets.size(); ++c) {
      if (targets[c].empty()) continue;
      const uint32_t next = number(closure(targets[c], /*at_begin=*/false));
      for (const CodeRange& range : alphabet_.classes[c]) edges.push_back({range.first, range.last, next});
    }
    std::sort(edges.begin(), edges.end(),
              [](const Dfa::Edge& a, const Dfa::Edge& b) { return a.first < b.first; });
    return edges;
  }

  const Nfa& nfa_;
  std::string_view where_;
  Alphabet alphabet_;
  std::map<Set, uint32_t> numbers_;
  std::vector<const Set*> sets_;  // by number
  std::vector<uint32_t> seen_, seen_at_end_;
  uint32_t stamp_ = 0;
  size_t work_ = 0;
};

}  // namespace

Dfa regex_dfa(std::string_view pattern, Anchoring anchoring, std::string_view where) {
  const Nfa nfa = NfaBuilder(where).build(parse_regex(pattern, where), anchoring);
  return Determinizer(nfa, where).run();
}

}  // namespace lmdeploy::grammar
