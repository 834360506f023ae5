// Characters to bytes: UTF-8, JSON's escapes, and the JSON rules that all schemas share.
#include <algorithm>
#include <array>
#include <string>

#include "lmdeploy/text/grammar/grammar.h"

namespace lmdeploy::grammar {
namespace {

constexpr char32_t kLastOfSize[] = {0x7F, 0x7FF, 0xFFFF, kLastCode};  // code points of 1, 2, 3, 4 bytes

std::array<uint8_t, 4> encode(char32_t code, size_t size) {
  std::array<uint8_t, 4> out{};
  if (size == 1) {
    out[0] = static_cast<uint8_t>(code);
    return out;
  }
  for (size_t i = size; i-- > 1; code >>= 6) out[i] = static_cast<uint8_t>(0x80 | (code & 0x3F));
  constexpr uint8_t kLead[] = {0, 0, 0xC0, 0xE0, 0xF0};
  out[0] = static_cast<uint8_t>(kLead[size] | code);
  return out;
}

// The letter of a two-character escape, or 0.
char short_escape(char32_t code) {
  switch (code) {
    case '\b':
      return 'b';
    case '\f':
      return 'f';
    case '\n':
      return 'n';
    case '\r':
      return 'r';
    case '\t':
      return 't';
    case '"':
      return '"';
    case '\\':
      return '\\';
    default:
      return 0;
  }
}

}  // namespace

void GrammarBuilder::hex_digit(NodeId from, char digit, NodeId to) {
  byte(from, digit, to);
  if (digit >= 'a') byte(from, static_cast<char>(digit - 'a' + 'A'), to);
}

// `count` continuation bytes of any value.
NodeId GrammarBuilder::continuation(size_t count, NodeId to) {
  if (count == 0) return to;
  const auto known = continuations_.find({count, to});
  if (known != continuations_.end()) return known->second;
  const NodeId next = continuation(count - 1, to);
  const NodeId node = add();
  bytes(node, 0x80, 0xBF, next);
  return continuations_[{count, to}] = node;
}

// Encodings of one size, from `low` to `high` in byte order.
void GrammarBuilder::utf8_from(NodeId from, const uint8_t* low, const uint8_t* high, size_t size, NodeId to) {
  const auto is_all = [&](const uint8_t* bytes, uint8_t value) {
    return std::all_of(bytes + 1, bytes + size, [&](uint8_t byte) { return byte == value; });
  };
  if (is_all(low, 0x80) && is_all(high, 0xBF))
    return bytes(from, low[0], high[0], continuation(size - 1, to));
  if (low[0] == high[0]) {
    NodeId& next = tails_[{std::string(low + 1, low + size), std::string(high + 1, high + size), to}];
    if (next == 0) {
      next = add();
      utf8_from(next, low + 1, high + 1, size - 1, to);
    }
    return bytes(from, low[0], low[0], next);
  }
  std::array<uint8_t, 4> least, most;
  least.fill(0x80);
  most.fill(0xBF);
  int first = low[0], last = high[0];
  if (!is_all(low, 0x80)) {
    most[0] = low[0];
    utf8_from(from, low, most.data(), size, to);
    ++first;
  }
  if (!is_all(high, 0xBF)) {
    least[0] = high[0];
    utf8_from(from, least.data(), high, size, to);
    --last;
  }
  if (first <= last)
    bytes(from, static_cast<uint8_t>(first), static_cast<uint8_t>(last), continuation(size - 1, to));
}

void GrammarBuilder::utf8(NodeId from, CodeRange range, NodeId to) {
  char32_t first = 0;
  for (size_t size = 1; size <= 4; ++size) {
    const CodeRange part = {std::max(range.first, first), std::min(range.last, kLastOfSize[size - 1])};
    first = kLastOfSize[size - 1] + 1;
    if (part.first > part.last) continue;
    const auto low = encode(part.first, size), high = encode(part.last, size);
    utf8_from(from, low.data(), high.data(), size, to);
  }
}

// `escape` is the node after a backslash.
void GrammarBuilder::escape_controls(NodeId escape, CodeRange range, NodeId to) {
  std::array<NodeId, 2> high = {escape, escape};  // after \u000 and \u001, made when needed
  NodeId zeros = escape;
  for (char32_t code = range.first; code <= range.last; ++code) {
    if (const char letter = short_escape(code); letter != 0) {
      byte(escape, letter, to);
      continue;
    }
    if (zeros == escape) zeros = literal(escape, "u00");
    NodeId& before_last = high[code >> 4];
    if (before_last == escape) before_last = literal(zeros, code < 16 ? "0" : "1");
    hex_digit(before_last, "0123456789abcdef"[code & 15], to);
  }
}

// `escape`: the node after a backslash at `from`; `from` itself until one is needed.
void GrammarBuilder::spell(NodeId from, NodeId& escape, CodeRange range, NodeId to) {
  const auto escapes = [&](CodeRange codes) {
    if (escape == from) escape = literal(from, "\\");
    escape_controls(escape, codes, to);
  };
  char32_t first = range.first;
  constexpr char32_t kLastControl = 0x1F;
  if (first <= kLastControl) {
    escapes({first, std::min(range.last, kLastControl)});
    first = kLastControl + 1;
  }
  for (const char32_t special : {U'"', U'\\'}) {
    if (special < first || special > range.last) continue;
    if (first < special) utf8(from, {first, special - 1}, to);
    escapes({special, special});
    first = special + 1;
  }
  if (first <= range.last) utf8(from, {first, range.last}, to);
}

void GrammarBuilder::dfa(NodeId from, const Dfa& dfa, Spelling spelling, NodeId to, bool sealed) {
  std::vector<NodeId> nodes;
  for (size_t i = 0; i < dfa.states.size(); ++i) nodes.push_back(add());
  const std::vector<Rooms> rooms = sealed ? rooms_of(dfa) : std::vector<Rooms>(dfa.states.size());
  for (size_t i = 0; i < dfa.states.size(); ++i) {
    const Dfa::State& state = dfa.states[i];
    grammar_.nodes[nodes[i]].rooms = rooms[i];
    NodeId escape = nodes[i];
    for (const Dfa::Edge& edge : state.edges) {
      if (spelling == Spelling::kPlain)
        utf8(nodes[i], {edge.first, edge.last}, nodes[edge.next]);
      else
        spell(nodes[i], escape, {edge.first, edge.last}, nodes[edge.next]);
    }
    if (state.accepts) jump(nodes[i], to);
  }
  jump(from, nodes[0]);
}

template <typename Make>
NodeId GrammarBuilder::shared(Shared which, Make make) {
  if (const auto known = shared_.find(which); known != shared_.end()) return known->second;
  const NodeId node = make();
  shared_[which] = node;
  return node;
}

// At most one newline, then at most 20 spaces or tabs.
NodeId GrammarBuilder::blanks(bool compact) {
  if (compact) return shared(Shared::kNoBlanks, [&] { return add_end(); });
  return shared(Shared::kBlanks, [&] {
    constexpr int kMostBlanks = 20;
    const NodeId start = add_end(), after_newline = add_end();
    byte(start, '\n', after_newline);
    NodeId from = after_newline;
    for (int i = 0; i < kMostBlanks; ++i) {
      const NodeId to = add_end();
      for (const char blank : {' ', '\t'}) {
        byte(from, blank, to);
        if (i == 0) byte(start, blank, to);
      }
      from = to;
    }
    return start;
  });
}

// \uXXXX, or both halves of a surrogate pair; `from` is after the "u".
void GrammarBuilder::unicode_escape(NodeId from, NodeId to) {
  const auto hex = [&](NodeId at, std::string_view digits, NodeId next) {
    for (const char digit : digits) hex_digit(at, digit, next);
  };
  constexpr std::string_view kAny = "0123456789abcdef";
  const NodeId last = add(), third = add(), second = add(), after_d = add();
  hex(last, kAny, to);
  hex(third, kAny, last);
  hex(second, kAny, third);
  hex(from, "0123456789abcef", second);
  hex(from, "d", after_d);
  hex(after_d, "01234567", third);
  const NodeId high_third = add(), high_last = add(), pair = add();
  hex(after_d, "89ab", high_third);
  hex(high_third, kAny, high_last);
  hex(high_last, kAny, pair);
  const NodeId low = literal(pair, "\\u"), low_second = add();
  hex(low, "d", low_second);
  hex(low_second, "cdef", third);
}

void GrammarBuilder::character(NodeId from, NodeId to) {
  for (const CodeRange& range : complement(make_code_set({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}})))
    utf8(from, range, to);
  const NodeId escape = literal(from, "\\");
  for (const char letter : std::string_view("\"\\/bfnrt")) byte(escape, letter, to);
  unicode_escape(literal(escape, "u"), to);
}

NodeId GrammarBuilder::json_character() {
  return shared(Shared::kCharacter, [&] {
    const NodeId start = add();
    character(start, add_end());
    return start;
  });
}

NodeId GrammarBuilder::json_string() {
  return shared(Shared::kString, [&] {
    const NodeId start = add();
    const NodeId inside = literal(start, "\"");
    grammar_.nodes[inside].rooms.fill({Room::kAny, Room::kAny});
    character(inside, inside);
    byte(inside, '"', add_end());
    return start;
  });
}

NodeId GrammarBuilder::number_rule(const Dfa& digits) {
  const NodeId start = add();
  dfa(start, digits, Spelling::kPlain, add_end(), /*sealed=*/false);
  return start;
}

NodeId GrammarBuilder::json_integer() {
  static const Dfa kInteger = regex_dfa("0|-?[1-9][0-9]{0,39}", Anchoring::kWhole, "integer");
  return shared(Shared::kInteger, [&] { return number_rule(kInteger); });
}

NodeId GrammarBuilder::json_number() {
  static const Dfa kNumber = regex_dfa(R"(-?(0|[1-9][0-9]{0,39})(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,2})?)",
                                       Anchoring::kWhole, "number");
  return shared(Shared::kNumber, [&] { return number_rule(kNumber); });
}

}  // namespace lmdeploy::grammar
