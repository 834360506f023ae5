// The kinds of patterns.
#include "lmdeploy/text/pattern.h"

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/utf8.h"

namespace lmdeploy {
namespace {

class LiteralPattern : public Pattern {
 public:
  explicit LiteralPattern(std::string literal) : literal_(std::move(literal)) {}
  void find_all(std::string_view text, std::vector<Span>& matches) const override {
    if (literal_.empty()) return;
    for (size_t at = text.find(literal_); at != std::string_view::npos;
         at = text.find(literal_, at + literal_.size()))
      matches.push_back({at, at + literal_.size()});
  }

 private:
  std::string literal_;
};

class RegexPattern : public Pattern {
 public:
  explicit RegexPattern(const std::string& regex) : regex_(regex) {}
  void find_all(std::string_view text, std::vector<Span>& matches) const override {
    regex_.find_all(text, matches);
  }

 private:
  Regex regex_;
};

class CharPattern : public Pattern {
 public:
  explicit CharPattern(bool (*takes)(char32_t)) : takes_(takes) {}
  void find_all(std::string_view text, std::vector<Span>& matches) const override {
    for (size_t at = 0; at < text.size();) {
      const Utf8Char c = decode_utf8(text, at);
      if (takes_(c.code)) matches.push_back({at, at + c.size});
      at += c.size;
    }
  }

 private:
  bool (*takes_)(char32_t);
};

}  // namespace

std::unique_ptr<Pattern> make_literal_pattern(std::string literal) {
  return std::make_unique<LiteralPattern>(std::move(literal));
}

std::unique_ptr<Pattern> make_regex_pattern(const std::string& regex) {
  return std::make_unique<RegexPattern>(regex);
}

std::unique_ptr<Pattern> make_char_pattern(bool (*takes)(char32_t code)) {
  return std::make_unique<CharPattern>(takes);
}

std::unique_ptr<Pattern> read_pattern(const JsonFields& component) {
  const JsonFields pattern = component.child("pattern");
  if (auto literal = pattern.get_string("String")) return make_literal_pattern(std::move(*literal));
  if (const auto regex = pattern.get_string("Regex")) return make_regex_pattern(*regex);
  throw Error(ErrorCode::kInvalidData, cat(pattern.where(), ": neither \"String\" nor \"Regex\" is there"));
}

std::string replace_all(std::string_view text, const Pattern& pattern, std::string_view content) {
  std::vector<Span> matches;
  pattern.find_all(text, matches);
  std::string out;
  out.reserve(text.size());
  size_t from = 0;
  for (const Span match : matches) {
    out.append(text.substr(from, match.begin - from)).append(content);
    from = match.end;
  }
  return out.append(text.substr(from));
}

}  // namespace lmdeploy
