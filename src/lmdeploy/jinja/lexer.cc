#include "lmdeploy/jinja/lexer.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "lmdeploy/core/error.h"
#include "lmdeploy/jinja/unicode.h"

namespace lmdeploy::jinja {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_byte(char c) {  // bytes above 0x7f belong to letters of other scripts
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_' || (c & 0x80) != 0;
}

// All line ends become "\n"; one at the very end is dropped.
std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    const bool carriage_return = source[i] == '\r';
    out += carriage_return ? '\n' : source[i];
    if (carriage_return && i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

int digit_value(char c) {
  if (is_digit(c)) return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : 99;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : text_(normalize_newlines(source)) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) lex_data();
    add(TokenKind::kEnd);
    return std::move(tokens_);
  }

 private:
  // Data up to the next tag, then that tag.
  void lex_data() {
    size_t open = at_;
    while (open < text_.size() && !is_tag_open(open)) ++open;
    const std::string_view data = std::string_view(text_).substr(at_, open - at_);
    if (open == text_.size()) {
      add_data(data);
      at_ = open;
      return;
    }
    const char type = text_[open + 1];
    const char sign = sign_at(open + 2);
    add_data(strip_before_tag(data, type, sign));
    skip_to(open + 2 + (sign != 0));
    line_starting_ = false;
    if (type == '#')
      lex_comment();
    else if (type == '%' && lex_raw())
      return;
    else
      lex_tag(type);
  }

  bool is_tag_open(size_t i) const {
    return text_[i] == '{' && i + 1 < text_.size() &&
           (text_[i + 1] == '{' || text_[i + 1] == '%' || text_[i + 1] == '#');
  }
  // '-', '+' or 0.
  char sign_at(size_t i) const {
    return i < text_.size() && (text_[i] == '-' || text_[i] == '+') ? text_[i] : '\0';
  }

  std::string_view strip_before_tag(std::string_view data, char type, char sign) const {
    if (sign == '-') return strip_space(data, Side::kRight);
    if (sign == '+' || type == '{') return data;
    // lstrip_blocks: a tag that is the first thing on its line loses the white space before it.
    const size_t line_start = data.rfind('\n') == std::string_view::npos ? 0 : data.rfind('\n') + 1;
    const bool at_line_start = line_start > 0 || line_starting_;
    const bool blank = strip_space(data.substr(line_start)).empty();
    return at_line_start && blank ? data.substr(0, line_start) : data;
  }

  void lex_comment() {
    const size_t close = text_.find("#}", at_);
    if (close == std::string::npos) fail("Missing end of comment tag");
    const char sign = close > at_ ? sign_at(close - 1) : '\0';
    end_tag(close + 2, sign, /*trim_newline=*/true);
  }

  // Moves behind a tag that ends at `end`, over the white space that its sign takes away.
  void end_tag(size_t end, char sign, bool trim_newline) {
    const size_t start = at_;
    skip_to(end);
    if (sign == '-')
      skip_space();
    else if (trim_newline && sign != '+' && at_ < text_.size() && text_[at_] == '\n')
      skip_to(at_ + 1);
    line_starting_ = at_ > start && text_[at_ - 1] == '\n';
  }

  void skip_space() {
    const std::string_view rest = std::string_view(text_).substr(at_);
    skip_to(text_.size() - strip_space(rest, Side::kLeft).size());
  }

  void skip_to(size_t end) {
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         text_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
    at_ = end;
  }

  // After "{%": the word `word` and the end of the tag. Returns the position behind "%}", or npos.
  size_t match_word_tag(size_t from, std::string_view word, char* sign) const {
    const auto skip = [&](size_t i) {
      return text_.size() - strip_space(std::string_view(text_).substr(i), Side::kLeft).size();
    };
    size_t i = skip(from);
    if (text_.compare(i, word.size(), word) != 0) return std::string::npos;
    i = skip(i + word.size());
    *sign = sign_at(i);
    if (*sign != 0) ++i;
    return text_.compare(i, 2, "%}") == 0 ? i + 2 : std::string::npos;
  }

  // "{% raw %} ... {% endraw %}": its inside becomes data.
  bool lex_raw() {
    char sign = 0;
    const size_t begin = match_word_tag(at_, "raw", &sign);
    if (begin == std::string::npos || sign == '+') return false;
    end_tag(begin, sign, /*trim_newline=*/false);
    for (size_t open = text_.find("{%", at_); open != std::string::npos; open = text_.find("{%", open + 1)) {
      const char open_sign = sign_at(open + 2);
      const size_t end = match_word_tag(open + 2 + (open_sign != 0), "endraw", &sign);
      if (end == std::string::npos) continue;
      add_data(strip_before_tag(std::string_view(text_).substr(at_, open - at_), '%', open_sign));
      end_tag(end, sign, /*trim_newline=*/true);
      return true;
    }
    fail("Missing end of raw directive");
  }

  // The inside of "{{ }}" or "{% %}", up to its end.
  void lex_tag(char type) {
    const bool block = type == '%';
    add(block ? TokenKind::kBlockBegin : TokenKind::kVariableBegin);
    brackets_.clear();
    while (true) {
      skip_space();
      if (at_ == text_.size())
        fail(block ? "unexpected end of template, expected '%}'"
                   : "unexpected end of template, expected '}}'");
      if (brackets_.empty() && lex_tag_end(block)) return;
      lex_token();
    }
  }

  bool lex_tag_end(bool block) {
    const char sign = sign_at(at_);
    const size_t close = at_ + (sign != 0);
    if (text_.compare(close, 2, block ? "%}" : "}}") != 0 || (sign == '+' && !block)) return false;
    add(block ? TokenKind::kBlockEnd : TokenKind::kVariableEnd);
    end_tag(close + 2, sign, /*trim_newline=*/block);
    return true;
  }

  void lex_token() {
    const char c = text_[at_];
    if (is_digit(c))
      lex_number();
    else if (is_name_byte(c))
      lex_name();
    else if (c == '\'' || c == '"')
      lex_string();
    else
      lex_operator();
  }

  void lex_name() {
    const size_t start = at_;
    while (at_ < text_.size() && is_name_byte(text_[at_])) ++at_;
    add(TokenKind::kName, text_.substr(start, at_ - start));
  }

  // Digits with single underscores between them; advances `i`.
  std::string take_digits(size_t& i, int base) const {
    std::string digits;
    while (i < text_.size()) {
      const bool underscore = text_[i] == '_' && i + 1 < text_.size();
      if (digit_value(text_[underscore ? i + 1 : i]) >= base) break;
      if (underscore) ++i;
      digits += text_[i++];
    }
    return digits;
  }

  void lex_number() {
    size_t i = at_;
    if (text_[i] == '0' && i + 1 < text_.size()) {
      const char kind = static_cast<char>(text_[i + 1] | 0x20);
      const int base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
      i += 2;
      if (base != 10)
        if (const std::string digits = take_digits(i, base); !digits.empty())
          return add_integer(digits, base, i);
    }
    i = at_;
    std::string digits = take_digits(i, 10);
    const bool after_dot = at_ > 0 && text_[at_ - 1] == '.';
    if (!after_dot && take_fraction(i, digits)) {
      double value = 0;
      const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), value);
      if (read.ec == std::errc::result_out_of_range)
        value = std::strtod(digits.c_str(), nullptr);  // inf or 0
      return add_literal(Value(value), i);
    }
    add_integer(digits, 10, i);
  }

  // ".5", "e-7" or both behind the digits: appended to them.
  bool take_fraction(size_t& i, std::string& digits) const {
    bool found = false;
    if (i + 1 < text_.size() && text_[i] == '.' && is_digit(text_[i + 1])) {
      digits += text_[i++];
      digits += take_digits(i, 10);
      found = true;
    }
    size_t j = i;
    if (j < text_.size() && (text_[j] | 0x20) == 'e') {
      std::string exponent = "e";
      if (const char sign = sign_at(++j)) {
        exponent += sign;
        ++j;
      }
      if (const std::string power = take_digits(j, 10); !power.empty()) {
        digits += exponent + power;
        i = j;
        found = true;
      }
    }
    return found;
  }

  void add_integer(std::string_view digits, int base, size_t end) {
    Int value = 0;
    for (const char c : digits)
      if (__builtin_mul_overflow(value, Int{base}, &value) ||
          __builtin_add_overflow(value, Int{digit_value(c)}, &value))
        fail("integer literal of more than 127 bits");
    add_literal(Value(value), end);
  }

  void lex_string() {
    const char quote = text_[at_];
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) fail("unterminated string");
    add_literal(Value(unescape(std::string_view(text_).substr(at_ + 1, end - at_ - 1))), end + 1);
  }

  // Python's escapes; an unknown one keeps its backslash.
  std::string unescape(std::string_view raw) const {
    static constexpr std::string_view kFrom = "\\'\"abfnrtv", kTo = "\\'\"\a\b\f\n\r\t\v";
    std::string out;
    for (size_t i = 0; i < raw.size();) {
      if (raw[i] != '\\' || i + 1 == raw.size()) {
        out += raw[i++];
        continue;
      }
      const char c = raw[i + 1];
      const size_t known = kFrom.find(c);
      if (known != std::string_view::npos) {
        out += kTo[known];
        i += 2;
      } else if (c == '\n') {
        i += 2;
      } else if (c >= '0' && c <= '7') {
        i = append_number(out, raw, i + 1, 3, 8);
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        const size_t end = append_number(out, raw, i + 2, digits, 16);
        if (end != i + 2 + digits) fail("truncated \\xXX, \\uXXXX or \\UXXXXXXXX escape");
        i = end;
      } else if (c == 'N') {
        fail("\\N{...} escapes are not supported; write \\uXXXX");
      } else {
        out += '\\';
        ++i;
      }
    }
    return out;
  }

  size_t append_number(std::string& out, std::string_view raw, size_t i, size_t max_digits, int base) const {
    char32_t value = 0;
    for (const size_t end = std::min(raw.size(), i + max_digits); i < end && digit_value(raw[i]) < base; ++i)
      value = value * static_cast<char32_t>(base) + static_cast<char32_t>(digit_value(raw[i]));
    if (value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff))
      fail("an escape that is no Unicode character");
    append_utf8(out, value);
    return i;
  }

  void lex_operator() {
    static constexpr std::string_view kOperators[] = {"**", "//", "==", "!=", ">=", "<=", "+", "-", "/",
                                                      "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                      ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    for (const std::string_view op : kOperators) {
      if (text_.compare(at_, op.size(), op) != 0) continue;
      balance(op[0]);
      at_ += op.size();
      add(TokenKind::kOperator, std::string(op));
      return;
    }
    fail(cat("unexpected char '", text_[at_], "'"));
  }

  // Inside brackets "}}" and "%}" end no tag.
  void balance(char c) {
    static constexpr std::string_view kOpen = "([{", kClose = ")]}";
    if (kOpen.find(c) != std::string_view::npos) brackets_ += kClose[kOpen.find(c)];
    if (kClose.find(c) == std::string_view::npos) return;
    if (brackets_.empty()) fail(cat("unexpected '", c, "'"));
    if (brackets_.back() != c) fail(cat("unexpected '", c, "', expected '", brackets_.back(), "'"));
    brackets_.pop_back();
  }

  void add(TokenKind kind, std::string text = {}) { tokens_.push_back({kind, std::move(text), {}, line_}); }
  void add_data(std::string_view data) {
    if (!data.empty()) add(TokenKind::kData, std::string(data));
  }
  void add_literal(Value value, size_t end) {
    tokens_.push_back({TokenKind::kLiteral, {}, std::move(value), line_});
    skip_to(end);
  }
  [[noreturn]] void fail(const std::string& message) const { throw SyntaxFailure(message, line_); }

  const std::string text_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // the last tag took the newline behind it
  std::string brackets_;       // the closers that are awaited
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace lmdeploy::jinja
