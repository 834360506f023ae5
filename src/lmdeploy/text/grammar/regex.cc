// Recursive descent over code points.
#include "lmdeploy/text/grammar/regex.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/utf8.h"

namespace lmdeploy::grammar {
namespace {

constexpr size_t kMostCodes = 20'000;  // of a pattern
constexpr int kMostDepth = 200;        // of groups
constexpr char32_t kEof = 0xFFFFFFFF;

const std::vector<CodeRange> kDigits = {{'0', '9'}};
const std::vector<CodeRange> kWord = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const std::vector<CodeRange> kBlanks = {{'\t', '\r'}, {' ', ' '}};
const std::vector<CodeRange> kUnicodeBlanks = {{'\t', '\r'},     {0x1C, 0x1F},     {' ', ' '},
                                               {0x85, 0x85},     {0xA0, 0xA0},     {0x1680, 0x1680},
                                               {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F},
                                               {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};

Regex codes_of(CodeSet set) { return {Regex::Kind::kCodes, std::move(set)}; }
Regex code(char32_t c) { return codes_of({{c, c}}); }

std::optional<CodeSet> class_escape(char32_t c) {
  switch (c) {
    case 'd':
      return make_code_set(kDigits);
    case 'D':
      return complement(make_code_set(kDigits));
    case 'w':
      return make_code_set(kWord);
    case 'W': {
      std::vector<CodeRange> ranges = kWord;
      ranges.push_back({0x80, kLastCode});
      return complement(make_code_set(ranges));
    }
    case 's':
      return make_code_set(kBlanks);
    case 'S':
      return complement(make_code_set(kUnicodeBlanks));
    default:
      return std::nullopt;
  }
}

class Parser {
 public:
  Parser(std::string_view pattern, std::string_view where) : where_(where) {
    if (!is_utf8(pattern)) fail("bytes that are no UTF-8", "UTF-8");
    text_ = to_codes(pattern);
    if (text_.size() > kMostCodes)
      fail(cat(text_.size(), " characters"), cat("at most ", kMostCodes, " characters"));
  }

  Regex parse() {
    Regex regex = alternation();
    if (!at_end()) fail("\")\" without \"(\"", "balanced parentheses");
    return regex;
  }

 private:
  [[noreturn]] void fail(std::string_view found, std::string_view expected) const {
    throw Error(ErrorCode::kInvalidArgument,
                cat(where_, ": column ", at_ + 1, " of the regular expression: found ", found, "; expected ",
                    expected));
  }
  [[noreturn]] void unsupported(std::string_view what) const {
    fail(what, "an expression without it: it is not supported here");
  }
  bool at_end() const { return at_ >= text_.size(); }
  char32_t peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : kEof; }
  bool take(char32_t c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  char32_t next(std::string_view expected) {
    if (at_end()) fail("its end", expected);
    return text_[at_++];
  }

  Regex alternation() {
    if (++depth_ > kMostDepth)
      fail("another group", cat("at most ", kMostDepth, " groups within each other"));
    Regex regex = {Regex::Kind::kAlternate};
    regex.parts.push_back(concatenation());
    while (take('|')) regex.parts.push_back(concatenation());
    --depth_;
    return regex.parts.size() == 1 ? Regex(std::move(regex.parts[0])) : regex;
  }

  Regex concatenation() {
    Regex regex = {Regex::Kind::kConcat};
    while (!at_end() && peek() != '|' && peek() != ')') regex.parts.push_back(quantified());
    return regex;
  }

  Regex quantified() {
    Regex atom = this->atom();
    const std::optional<std::pair<uint32_t, uint32_t>> counts = quantifier();
    if (!counts) return atom;
    if (atom.kind == Regex::Kind::kBegin || atom.kind == Regex::Kind::kEnd)
      fail("a quantifier after an anchor", "something to repeat before it");
    take('?');  // lazy: the same language
    if (peek() == '+') unsupported("a possessive quantifier");
    const size_t here = at_;
    if (quantifier()) {
      at_ = here;
      fail("a quantifier after a quantifier", "a group around what it repeats");
    }
    Regex regex = {Regex::Kind::kRepeat};
    regex.parts.push_back(std::move(atom));
    std::tie(regex.min, regex.max) = *counts;
    return regex;
  }

  std::optional<std::pair<uint32_t, uint32_t>> quantifier() {
    using Counts = std::pair<uint32_t, uint32_t>;
    if (take('*')) return Counts{0, Regex::kNoLimit};
    if (take('+')) return Counts{1, Regex::kNoLimit};
    if (take('?')) return Counts{0, 1};
    return braces();
  }

  // "{" that begins no quantifier stands for itself.
  std::optional<std::pair<uint32_t, uint32_t>> braces() {
    const size_t begin = at_;
    if (!take('{')) return std::nullopt;
    const std::optional<uint32_t> low = number();
    const bool comma = take(',');
    const std::optional<uint32_t> high = comma ? number() : low;
    if (!take('}') || (!low && !high)) {
      at_ = begin;
      return std::nullopt;
    }
    const std::pair counts{low.value_or(0), high.value_or(Regex::kNoLimit)};
    if (counts.first > counts.second) fail("a repetition whose least is above its most", "{least,most}");
    return counts;
  }

  std::optional<uint32_t> number() {
    uint64_t value = 0;
    size_t digits = 0;
    for (; peek() >= '0' && peek() <= '9'; ++at_, ++digits) {
      value = value * 10 + (peek() - '0');
      if (value >= Regex::kNoLimit) fail("a repetition count beyond 32 bits", "a smaller one");
    }
    if (digits == 0) return std::nullopt;
    return static_cast<uint32_t>(value);
  }

  Regex atom() {
    const char32_t c = next("an expression");
    switch (c) {
      case '(':
        return group();
      case '[':
        return codes_of(char_class());
      case '.':
        return codes_of(complement({{'\n', '\n'}}));
      case '^':
        return {Regex::Kind::kBegin};
      case '$':
        return {Regex::Kind::kEnd};
      case '\\':
        return escape();
      case '*':
      case '+':
      case '?':
        --at_;
        fail("a quantifier", "something to repeat before it");
      default:
        return code(c);
    }
  }

  Regex group() {
    if (take('?')) group_kind();
    Regex regex = alternation();
    if (!take(')')) fail("its end", "\")\"");
    return regex;
  }

  void group_kind() {
    take('P');
    if (take(':')) return;
    const bool angle = take('<');
    if (!angle || peek() == '=' || peek() == '!')
      unsupported(peek() == '=' || peek() == '!' ? "lookaround"
                                                 : "\"(?\" of this kind (flags, conditions, comments)");
    while (next("\">\" after the group's name") != '>') {
    }
  }

  Regex escape() {
    if (auto set = class_escape(peek())) {
      ++at_;
      return codes_of(std::move(*set));
    }
    if (peek() == 'b' || peek() == 'B') unsupported("a word boundary");
    if (peek() == 'A' || peek() == 'Z' || peek() == 'z' || peek() == 'G') unsupported("this anchor");
    return code(char_escape());
  }

  char32_t char_escape() {
    const char32_t c = next("a character after the backslash");
    switch (c) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'f':
        return '\f';
      case 'v':
        return '\v';
      case '0':
        if (peek() >= '0' && peek() <= '9') unsupported("an octal escape");
        return 0;
      case 'x':
        return hex(2);
      case 'u':
        return take('{') ? braced_hex() : utf16(hex(4));
      case 'c':
        return control(next("a letter after \\c"));
      default:
        break;
    }
    --at_;
    if (c == 'p' || c == 'P') unsupported("a Unicode property");
    if (c == 'k' || (c >= '1' && c <= '9')) unsupported("a backreference");
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) fail("an unknown escape", "a known one");
    ++at_;
    return c;
  }

  char32_t control(char32_t letter) {
    const bool is_letter = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
    if (!is_letter) fail("\\c before something else", "a letter after \\c");
    return letter & 0x1F;
  }

  char32_t hex_digit() {
    const char32_t c = next("a hexadecimal digit");
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    --at_;
    fail("something else", "a hexadecimal digit");
  }

  char32_t hex(int digits) {
    char32_t value = 0;
    for (int i = 0; i < digits; ++i) value = value * 16 + hex_digit();
    return value;
  }

  char32_t braced_hex() {
    char32_t value = 0;
    do {
      value = value * 16 + hex_digit();
      if (value > kLastCode) fail("a code point beyond U+10FFFF", "one that exists");
    } while (!take('}'));
    return value;
  }

  // \uD83D\uDE00 is one character.
  char32_t utf16(char32_t unit) {
    if (unit < 0xD800 || unit > 0xDFFF) return unit;
    if (unit > 0xDBFF || peek() != '\\' || peek(1) != 'u') fail("half of a surrogate pair", "both halves");
    at_ += 2;
    const char32_t low = hex(4);
    if (low < 0xDC00 || low > 0xDFFF) fail("half of a surrogate pair", "both halves");
    return 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
  }

  CodeSet char_class() {
    const bool negated = take('^');
    std::vector<CodeRange> ranges;
    bool first = true;
    while (peek() != ']' || first) {
      first = false;
      class_item(ranges);
    }
    ++at_;
    const CodeSet set = make_code_set(std::move(ranges));
    return negated ? complement(set) : set;
  }

  void class_item(std::vector<CodeRange>& ranges) {
    if (peek() == '\\') {
      if (const auto set = class_escape(peek(1))) {
        at_ += 2;
        ranges.insert(ranges.end(), set->begin(), set->end());
        return;
      }
    }
    const char32_t low = class_code();
    if (peek() != '-' || peek(1) == ']' || peek(1) == kEof) {
      ranges.push_back({low, low});
      return;
    }
    ++at_;
    if (peek() == '\\' && class_escape(peek(1))) fail("a class as the end of a range", "a character");
    const char32_t high = class_code();
    if (low > high) fail("a range that ends before it begins", "first-last");
    ranges.push_back({low, high});
  }

  char32_t class_code() {
    const char32_t c = next("\"]\"");
    if (c != '\\') return c;
    return take('b') ? U'\b' : char_escape();
  }

  const std::string_view where_;
  std::u32string text_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

Regex parse_regex(std::string_view pattern, std::string_view where) { return Parser(pattern, where).parse(); }

}  // namespace lmdeploy::grammar
