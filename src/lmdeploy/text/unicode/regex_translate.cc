// Oniguruma (Ruby syntax) to PCRE2. The two differ in what \s, \w, \h and \p{Script} mean, in nested and
// intersected character classes, in {n,m}+ and in the option letter m. Source: doc/RE of Oniguruma 6.9,
// pcre2pattern(3) of 10.42.
#include <algorithm>
#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/utf8.h"
#include "lmdeploy/text/unicode/regex.h"

namespace lmdeploy {
namespace {

constexpr size_t kMaxNesting = 100;  // of character classes

// What \s and \w match, written so that it can stand inside a class. PCRE2's own \s also takes U+180E, its \w
// leaves marks out (before 10.43). Outside of classes, Oniguruma's \w also takes the superscripts and
// fractions of Latin-1, and no others.
constexpr std::string_view kSpace = "\\p{White_Space}";
constexpr std::string_view kWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
constexpr std::string_view kLoneWord =
    "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}";
constexpr std::string_view kHexDigit = "0-9a-fA-F";

// [:name:], where PCRE2 (with UCP) means something else.
constexpr std::pair<std::string_view, std::string_view> kPosixClasses[] = {
    {"alpha", "\\p{Alphabetic}"},
    {"alnum", "\\p{Alphabetic}\\p{Nd}"},
    {"lower", "\\p{Lowercase}"},
    {"upper", "\\p{Uppercase}"},
    {"punct", "\\p{P}\\p{S}"},
    {"space", kSpace},
    {"word", kWord},
};
constexpr std::string_view kNotGraphic = "\\p{White_Space}\\p{Cc}\\p{Cn}\\p{Cs}";

// Oniguruma's names for properties that PCRE2 knows under another one.
constexpr std::pair<std::string_view, std::string_view> kLongNames[] = {
    {"letter", "L"},
    {"alpha", "Alphabetic"},
    {"mark", "M"},
    {"number", "N"},
    {"digit", "Nd"},
    {"punctuation", "P"},
    {"symbol", "S"},
    {"separator", "Z"},
    {"other", "C"},
    {"upper", "Uppercase"},
    {"lower", "Lowercase"},
    {"space", "White_Space"},
    {"whitespace", "White_Space"},
    {"alphabetic", "Alphabetic"},
    {"uppercase", "Uppercase"},
    {"lowercase", "Lowercase"},
    {"uppercaseletter", "Lu"},
    {"lowercaseletter", "Ll"},
    {"cntrl", "Cc"},
    {"decimalnumber", "Nd"},
    {"emoji", "Emoji"},
    {"any", "Any"},
    {"ideographic", "Ideographic"},
    {"joincontrol", "Join_Control"},
    {"extendedpictographic", "Extended_Pictographic"},
    {"emojipresentation", "Emoji_Presentation"},
};

std::string loose_name(std::string_view name) {
  std::string loose;
  for (const char c : name)
    if (c != '_' && c != ' ' && c != '-')
      loose.push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c);
  return loose;
}

// The inside of \p{...} for PCRE2. Scripts are asked for by Script, where PCRE2 defaults to
// Script_Extensions.
std::string property_name(std::string_view name) {
  const bool negated = name.starts_with('^');
  if (negated) name.remove_prefix(1);
  std::string out = negated ? "^" : "";
  for (const auto& [loose, pcre] : kLongNames)
    if (loose == loose_name(name)) return out.append(pcre);
  const bool has_prefix = name.find_first_of("=:") != std::string_view::npos;
  if (name.size() > 2 && !has_prefix) out.append("sc:");
  return out.append(name);
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  std::string run() {
    while (at_ < in_.size()) item();
    return std::move(out_);
  }

 private:
  // A class matches one character. `flat` can be written between brackets; `others` are whole expressions.
  struct Class {
    std::string flat;
    std::vector<std::string> others;
    bool negated = false;
  };

  [[noreturn]] void fail(std::string_view what) const {
    throw Error(ErrorCode::kInvalidData, cat("regular expression \"", in_, "\" at offset ", at_, ": ", what));
  }
  bool ahead(std::string_view text) const { return in_.substr(at_).starts_with(text); }
  char peek() const { return at_ < in_.size() ? in_[at_] : '\0'; }

  void item() {
    const char c = in_[at_];
    if (c == '{' || c == '*' || c == '+' || c == '?') return quantifier();
    if (c == ')') {
      atom_ = groups_.empty() ? out_.size() : groups_.back();
      if (!groups_.empty()) groups_.pop_back();
      copy(1);
      return;
    }
    atom_ = out_.size();
    if (c == '(') return open_group();
    if (c == '[') return void(out_.append(char_class(0)));
    if (c == '\\') return void(out_.append(escape(/*in_class=*/false)));
    copy(decode_size(c));
  }

  void copy(size_t bytes) {
    out_.append(in_.substr(at_, bytes));
    at_ += bytes;
  }

  static size_t decode_size(char lead) {
    const auto byte = static_cast<uint8_t>(lead);
    return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
  }

  void open_group() {
    groups_.push_back(out_.size());
    copy(1);
    if (!ahead("?")) return;
    copy(1);
    // (?imx-imx) and (?imx-imx:...): Ruby's m lets the dot match a line feed, which is PCRE2's s.
    while (peek() == 'i' || peek() == 'm' || peek() == 'x' || peek() == '-') {
      out_.push_back(peek() == 'm' ? 's' : peek());
      ++at_;
    }
    if (peek() == '<' || peek() == '=' || peek() == '!' || peek() == '>' || peek() == ':') copy(1);
  }

  void quantifier() {
    const bool braces = peek() == '{';
    const size_t close = braces ? in_.find('}', at_) : at_;
    if (close == std::string_view::npos) return copy(1);
    const bool is_range =
        in_.substr(at_ + 1, close - at_ - 1).find_first_not_of("0123456789,") == std::string_view::npos;
    if (braces && (!is_range || close == at_ + 1)) {  // a literal brace
      atom_ = out_.size();
      out_.push_back('\\');
      return copy(1);
    }
    copy(close + 1 - at_);
    if (braces && peek() == '+') {  // Ruby: one or more times {n,m}; PCRE2 would read it as possessive
      out_.insert(atom_, "(?:");
      out_.append(")+");
      ++at_;
    } else if (peek() == '?' || (!braces && peek() == '+')) {
      copy(1);
    }
  }

  // One escape sequence, translated, for use inside or outside of a class.
  std::string escape(bool in_class) {
    ++at_;
    if (at_ >= in_.size()) fail("a lone backslash at the end");
    const char c = in_[at_];
    if (c == 'p' || c == 'P') return property();
    if (c == 'u' || c == 'x') return code_point();
    const size_t size = decode_size(c);
    const std::string_view text = in_.substr(at_, size);
    at_ += size;
    const auto set = [&](std::string_view members, std::string_view negation) {
      return in_class ? std::string(members) : cat("[", negation, members, "]");
    };
    if (c == 's') return set(kSpace, "");
    if (c == 'w') return set(in_class ? kWord : kLoneWord, "");
    if (c == 'h') return set(kHexDigit, "");
    if (!in_class && (c == 'b' || c == 'B')) return word_border(c == 'B');
    if (!in_class && c == 'S') return set(kSpace, "^");
    if (!in_class && c == 'W') return set(kLoneWord, "^");
    if (!in_class && c == 'H') return set(kHexDigit, "^");
    if (c == 'S') return "\\P{White_Space}";
    return cat("\\", text);
  }

  // \b and \B, by what \w is here.
  static std::string word_border(bool negated) {
    const std::string after = cat("(?<=[", kLoneWord, "])"), not_after = cat("(?<![", kLoneWord, "])");
    const std::string before = cat("(?=[", kLoneWord, "])"), not_before = cat("(?![", kLoneWord, "])");
    return negated ? cat("(?:", after, before, "|", not_after, not_before, ")")
                   : cat("(?:", after, not_before, "|", not_after, before, ")");
  }

  std::string property() {
    const char kind = in_[at_++];
    if (peek() != '{') return cat("\\", kind);
    const size_t close = in_.find('}', at_);
    if (close == std::string_view::npos) fail("\\p{ without }");
    const std::string name = property_name(in_.substr(at_ + 1, close - at_ - 1));
    at_ = close + 1;
    return cat("\\", kind, "{", name, "}");
  }

  // \uHHHH, \xHH and \x{H...}
  std::string code_point() {
    const char kind = in_[at_++];
    const bool braces = kind == 'x' && peek() == '{';
    if (braces) ++at_;
    const std::string_view digits = in_.substr(at_, braces ? 8 : kind == 'u' ? 4 : 2);
    const size_t end = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
    if (end == 0) fail("hexadecimal digits expected");
    at_ += end;
    if (braces && peek() != '}') fail("\\x{ without }");
    if (braces) ++at_;
    return cat("\\x{", digits.substr(0, end), "}");
  }

  // From '[' to its ']': an expression that matches one character.
  std::string char_class(size_t depth) {
    if (depth > kMaxNesting) fail("character classes nested too deeply");
    ++at_;
    const bool negated = peek() == '^';
    if (negated) ++at_;
    std::vector<Class> operands(1);  // joined by &&
    bool first = true;
    for (; first || peek() != ']'; first = false) {
      if (at_ >= in_.size()) fail("[ without ]");
      if (ahead("&&")) {
        at_ += 2;
        operands.emplace_back();
      } else {
        class_item(operands.back(), depth);
      }
    }
    ++at_;
    return write_class(operands, negated);
  }

  void class_item(Class& target, size_t depth) {
    if (ahead("[:")) {
      const size_t close = in_.find(":]", at_);
      if (close != std::string_view::npos) return posix_class(target, close);
    }
    if (peek() == '[') return target.others.push_back(char_class(depth + 1));
    if (peek() == '\\') {
      const char next = at_ + 1 < in_.size() ? in_[at_ + 1] : '\0';
      if (next != 'W' && next != 'H') return void(target.flat.append(escape(/*in_class=*/true)));
      at_ += 2;
      return target.others.push_back(cat("[^", next == 'W' ? kWord : kHexDigit, "]"));
    }
    const size_t size = decode_size(peek());
    if (peek() == ']') target.flat.push_back('\\');
    target.flat.append(in_.substr(at_, size));
    at_ += size;
  }

  // [:name:] or [:^name:], which ends at `close`.
  void posix_class(Class& target, size_t close) {
    std::string_view name = in_.substr(at_ + 2, close - at_ - 2);
    const std::string_view whole = in_.substr(at_, close + 2 - at_);
    at_ = close + 2;
    const bool negated = name.starts_with('^');
    if (negated) name.remove_prefix(1);
    if (name == "graph") return target.others.push_back(cat(negated ? "[" : "[^", kNotGraphic, "]"));
    for (const auto& [known, members] : kPosixClasses) {
      if (known != name) continue;
      if (negated) return target.others.push_back(cat("[^", members, "]"));
      return void(target.flat.append(members));
    }
    target.flat.append(whole);
  }

  static std::string write_operand(const Class& operand) {
    if (operand.others.empty()) return operand.flat.empty() ? "(?!)" : cat("[", operand.flat, "]");
    std::string out = operand.flat.empty() ? "(?:" : cat("(?:[", operand.flat, "]|");
    for (size_t i = 0; i < operand.others.size(); ++i)
      out.append(i == 0 ? "" : "|").append(operand.others[i]);
    return out.append(")");
  }

  static std::string write_class(const std::vector<Class>& operands, bool negated) {
    if (operands.size() == 1 && operands[0].others.empty() && !operands[0].flat.empty())
      return cat(negated ? "[^" : "[", operands[0].flat, "]");
    std::string all;  // every operand but the last only looks
    for (size_t i = 0; i + 1 < operands.size(); ++i) all.append(cat("(?=", write_operand(operands[i]), ")"));
    all.append(write_operand(operands.back()));
    return negated ? cat("(?:(?!", all, ")(?s:.))") : cat("(?:", all, ")");
  }

  std::string_view in_;
  size_t at_ = 0;
  std::string out_;
  size_t atom_ = 0;  // where in out_ the last atom begins: what a quantifier applies to
  std::vector<size_t> groups_;
};

}  // namespace

std::string translate_regex(std::string_view pattern) {
  if (!is_utf8(pattern)) throw Error(ErrorCode::kInvalidData, "a regular expression is not valid UTF-8");
  return Translator(pattern).run();
}

}  // namespace lmdeploy
