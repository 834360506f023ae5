#include "lmdeploy/text/grammar/dfa.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/text/grammar/work_limit.h"

namespace lmdeploy::grammar {
namespace {

[[noreturn]] void too_large(std::string_view where) {
  throw Error(ErrorCode::kInvalidArgument,
              cat(where, ": the pattern, with the lengths around it, needs more than ", kMostDfaStates,
                  " states; expected a simpler one"));
}

/// Gives numbers to states as they are found; each is visited once.
template <typename Key>
class Numbering {
 public:
  explicit Numbering(std::string_view where) : where_(where) {}
  uint32_t number(const Key& key) {
    WorkLimit::spend(2);
    const auto [found, is_new] = numbers_.try_emplace(key, static_cast<uint32_t>(numbers_.size()));
    if (is_new) {
      if (numbers_.size() > kMostDfaStates) too_large(where_);
      pending_.push_back(&found->first);
    }
    return found->second;
  }
  /// nullptr: none is left. They come in the order of their numbers.
  const Key* next() {
    if (pending_.empty()) return nullptr;
    const Key* key = pending_.front();
    pending_.pop_front();
    return key;
  }

 private:
  std::string_view where_;
  std::map<Key, uint32_t> numbers_;
  std::deque<const Key*> pending_;
};

void append_edge(std::vector<Dfa::Edge>& edges, Dfa::Edge edge) {
  if (!edges.empty() && edges.back().next == edge.next && edges.back().last + 1 == edge.first)
    edges.back().last = edge.last;
  else
    edges.push_back(edge);
}

std::vector<uint8_t> states_that_accept(const Dfa& dfa) {
  std::vector<std::vector<uint32_t>> sources(dfa.states.size());
  std::vector<uint32_t> pending;
  std::vector<uint8_t> live(dfa.states.size());
  for (uint32_t i = 0; i < dfa.states.size(); ++i) {
    for (const Dfa::Edge& edge : dfa.states[i].edges) sources[edge.next].push_back(i);
    live[i] = dfa.states[i].accepts;
    if (live[i]) pending.push_back(i);
  }
  while (!pending.empty()) {
    const uint32_t state = pending.back();
    pending.pop_back();
    for (const uint32_t source : sources[state]) {
      if (live[source]) continue;
      live[source] = 1;
      pending.push_back(source);
    }
  }
  return live;
}

// Without the states that lead nowhere.
Dfa trimmed(const Dfa& dfa) {
  const std::vector<uint8_t> live = states_that_accept(dfa);
  if (!live[0]) return {};
  std::vector<uint32_t> numbers(dfa.states.size());
  uint32_t count = 0;
  for (size_t i = 0; i < dfa.states.size(); ++i)
    if (live[i]) numbers[i] = count++;
  Dfa out;
  out.states.clear();
  for (size_t i = 0; i < dfa.states.size(); ++i) {
    if (!live[i]) continue;
    Dfa::State state;
    state.accepts = dfa.states[i].accepts;
    for (const Dfa::Edge& edge : dfa.states[i].edges)
      if (live[edge.next]) append_edge(state.edges, {edge.first, edge.last, numbers[edge.next]});
    out.states.push_back(std::move(state));
  }
  return out;
}

const Dfa::Edge* find_edge(const Dfa::State& state, char32_t c) {
  const auto found = std::upper_bound(state.edges.begin(), state.edges.end(), c,
                                      [](char32_t code, const Dfa::Edge& edge) { return code < edge.first; });
  if (found == state.edges.begin()) return nullptr;
  const Dfa::Edge& edge = *std::prev(found);
  return c <= edge.last ? &edge : nullptr;
}

}  // namespace

bool Dfa::accepts(std::u32string_view text) const {
  uint32_t state = 0;
  for (const char32_t c : text) {
    const Edge* edge = find_edge(states[state], c);
    if (edge == nullptr) return false;
    state = edge->next;
  }
  return states[state].accepts;
}

Dfa any_text() {
  Dfa dfa;
  dfa.states[0].accepts = true;
  for (const CodeRange& range : any_code()) dfa.states[0].edges.push_back({range.first, range.last, 0});
  return dfa;
}

Dfa texts(std::span<const std::string> utf8) {
  std::vector<std::map<char32_t, uint32_t>> trie(1);
  std::vector<uint8_t> ends(1);
  for (const std::string& text : utf8) {
    uint32_t state = 0;
    for (const char32_t c : to_codes(text)) {
      const auto [edge, is_new] = trie[state].try_emplace(c, static_cast<uint32_t>(trie.size()));
      state = edge->second;
      if (!is_new) continue;
      trie.emplace_back();
      ends.push_back(0);
    }
    ends[state] = 1;
  }
  Dfa dfa;
  dfa.states.resize(trie.size());
  for (size_t i = 0; i < trie.size(); ++i) {
    for (const auto& [c, next] : trie[i]) dfa.states[i].edges.push_back({c, c, next});
    dfa.states[i].accepts = ends[i] != 0;
  }
  return dfa;
}

Dfa intersect(const Dfa& a, const Dfa& b, std::string_view where) {
  using Pair = std::pair<uint32_t, uint32_t>;
  Numbering<Pair> pairs(where);
  Dfa out;
  out.states.clear();
  pairs.number({0, 0});
  while (const Pair* pair = pairs.next()) {
    const Dfa::State& left = a.states[pair->first];
    const Dfa::State& right = b.states[pair->second];
    Dfa::State state;
    state.accepts = left.accepts && right.accepts;
    for (size_t i = 0, j = 0; i < left.edges.size() && j < right.edges.size();) {
      const Dfa::Edge& x = left.edges[i];
      const Dfa::Edge& y = right.edges[j];
      const char32_t first = std::max(x.first, y.first), last = std::min(x.last, y.last);
      if (first <= last) append_edge(state.edges, {first, last, pairs.number({x.next, y.next})});
      ++(x.last < y.last ? i : j);
    }
    out.states.push_back(std::move(state));
  }
  return trimmed(out);
}

Dfa complement(const Dfa& dfa) {
  const auto sink = static_cast<uint32_t>(dfa.states.size());
  Dfa out = dfa;
  out.states.emplace_back();
  for (Dfa::State& state : out.states) {
    state.accepts = !state.accepts;
    std::vector<CodeRange> covered;
    for (const Dfa::Edge& edge : state.edges) covered.push_back({edge.first, edge.last});
    for (const CodeRange& rest : complement(make_code_set(std::move(covered))))
      state.edges.push_back({rest.first, rest.last, sink});
    std::sort(state.edges.begin(), state.edges.end(),
              [](const Dfa::Edge& x, const Dfa::Edge& y) { return x.first < y.first; });
  }
  return trimmed(out);
}

Dfa with_length(const Dfa& dfa, LengthRange range, std::string_view where) {
  using Place = std::pair<uint32_t, uint64_t>;  // state, code points so far
  Numbering<Place> places(where);
  Dfa out;
  out.states.clear();
  places.number({0, 0});
  while (const Place* place = places.next()) {
    const auto [from, length] = *place;
    Dfa::State state;
    state.accepts = dfa.states[from].accepts && length >= range.min && length <= range.max;
    const bool counts = range.max != LengthRange::kNoLimit || length < range.min;
    const uint64_t next_length = counts ? length + 1 : length;
    if (next_length <= range.max)
      for (const Dfa::Edge& edge : dfa.states[from].edges)
        append_edge(state.edges, {edge.first, edge.last, places.number({edge.next, next_length})});
    out.states.push_back(std::move(state));
  }
  return trimmed(out);
}

}  // namespace lmdeploy::grammar
