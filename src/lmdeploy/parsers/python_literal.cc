#include "lmdeploy/parsers/python_literal.h"

#include <utility>

#include "lmdeploy/core/json.h"
#include "lmdeploy/core/utf8.h"
#include "lmdeploy/parsers/try_json.h"

namespace lmdeploy {
namespace {

// Token by token; whether the tokens make a value is left to the JSON parser.
class Translator {
 public:
  explicit Translator(std::string_view text) : rest_(text) {}

  std::optional<std::string> run() {
    while (!rest_.empty())
      if (!token()) return std::nullopt;
    return std::move(json_);
  }

 private:
  bool token() {
    for (const auto& [python, json] : kWords)
      if (take(python)) {
        json_ += json;
        return true;
      }
    const char byte = rest_[0];
    if (byte == '\'' || byte == '"') return string(byte);
    rest_.remove_prefix(1);
    if (byte == ')' || byte == ']' || byte == '}') drop_comma();
    json_ += byte == '(' ? '[' : byte == ')' ? ']' : byte;
    return true;
  }

  bool take(std::string_view word) {
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }

  // Python allows one before a closing bracket.
  void drop_comma() {
    const size_t last = json_.find_last_not_of(" \t\r\n");
    if (last != std::string::npos && json_[last] == ',') json_.resize(last);
  }

  bool string(char quote) {
    rest_.remove_prefix(1);
    std::string value;
    while (!rest_.empty() && rest_[0] != quote) {
      if (rest_[0] == '\\') {
        if (!escape(value)) return false;
      } else {
        value += rest_[0];
        rest_.remove_prefix(1);
      }
    }
    if (rest_.empty()) return false;
    rest_.remove_prefix(1);
    json_ += to_json_text(Json(value));
    return true;
  }

  bool escape(std::string& value) {
    if (rest_.size() < 2) return false;
    const char letter = rest_[1];
    rest_.remove_prefix(2);
    if (letter == 'x' || letter == 'u' || letter == 'U')
      return code_point(letter == 'x' ? 2 : letter == 'u' ? 4 : 8, value);
    constexpr std::string_view kLetters = "\\'\"nrtabfv", kMeanings = "\\'\"\n\r\t\a\b\f\v";
    const size_t known = kLetters.find(letter);
    if (known == std::string_view::npos) return false;
    value += kMeanings[known];
    return true;
  }

  bool code_point(size_t digits, std::string& value) {
    if (rest_.size() < digits) return false;
    char32_t code = 0;
    for (const char digit : rest_.substr(0, digits)) {
      const size_t of = std::string_view("0123456789abcdef").find(digit);
      if (of == std::string_view::npos) return false;
      code = code * 16 + static_cast<char32_t>(of);
    }
    rest_.remove_prefix(digits);
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return false;
    append_utf8(value, code);
    return true;
  }

  static constexpr std::pair<std::string_view, std::string_view> kWords[] = {
      {"True", "true"}, {"False", "false"}, {"None", "null"}};

  std::string_view rest_;
  std::string json_;
};

}  // namespace

std::optional<std::string> python_literal_to_json(std::string_view text) {
  std::optional<std::string> json = Translator(text).run();
  return json && try_parse_json(*json) ? json : std::nullopt;
}

}  // namespace lmdeploy
