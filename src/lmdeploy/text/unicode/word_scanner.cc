// Three families of expressions. In each, every character begins a match, so that the matches are the whole
// text.
#include "lmdeploy/text/unicode/word_scanner.h"

#include "lmdeploy/core/utf8.h"
#include "lmdeploy/text/unicode/char_class.h"

namespace lmdeploy {
namespace {

using namespace char_class;

enum class WordKind {
  kGpt2,     //  ?\p{L}+| ?\p{N}+
  kLetters,  // [^\r\n\p{L}\p{N}]?\p{L}+
  kCased,    // [^\r\n\p{L}\p{N}]?[opening]*[closing]+|[^\r\n\p{L}\p{N}]?[opening]+[closing]*
};

struct Rules {
  std::string_view regex;
  WordKind kind;
  uint8_t word = kLetter;    // what words of kLetters consist of
  size_t max_digits = 0;     // \p{N}{1,max}; not for kGpt2
  bool contractions = true;  // (?i:'s|'t|'re|'ve|'m|'ll|'d) before words or, in kCased, after them
  bool slash_ends = false;   // the signs end in [\r\n/]* instead of [\r\n]*
};

constexpr Rules kRules[] = {
    // GPT-2
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", WordKind::kGpt2},
    // cl100k and Llama 3
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     WordKind::kLetters, kLetter, 3},
    // Qwen 2
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     WordKind::kLetters, kLetter, 1},
    // Qwen 3.5
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     WordKind::kLetters, kLetter | kMark, 1},
    // o200k
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     WordKind::kCased, 0, 3, true, true},
    // Tekken
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     WordKind::kCased, 0, 1, false, true},
};

constexpr size_t kNone = std::string_view::npos;

// Walks over one text. Functions that try to match at a place give the match's end or kNone.
template <WordKind kKind>
class Scan {
 public:
  Scan(const Rules& rules, std::string_view text)
      : rules_(rules), text_(text), table_(CharClassTable::get()), ascii_(table_.ascii()) {}

  /// The end of the match that begins at `at`.
  size_t next(size_t at) const {
    const Char first = char_at(at);
    if constexpr (kKind != WordKind::kCased) {
      if (text_[at] == '\'')
        if (const size_t end = contraction(at); end != kNone) return end;
    }
    if constexpr (kKind == WordKind::kGpt2) {
      // a space belongs to what follows, unless that is white space
      const size_t begin = text_[at] == ' ' && first.end < text_.size() ? first.end : at;
      const uint8_t kind = char_at(begin).kind & (kLetter | kNumber | kSpace);
      if (kind == kSpace) return white_space(at);
      return kind == 0 ? run_without(kLetter | kNumber | kSpace, begin) : run(kind, begin);
    }
    if (const size_t end = word(at, first); end != kNone) return end;
    if (first.kind & kNumber) return digits(first.end);
    if (!(first.kind & kSpace)) return signs(first.end);
    if (text_[at] == ' ' && first.end < text_.size() && is_sign(char_at(first.end).kind))
      return signs(first.end);
    return white_space(at);
  }

 private:
  struct Char {
    uint8_t kind;
    size_t end;
  };
  Char char_at(size_t at) const {
    const auto byte = static_cast<uint8_t>(text_[at]);
    if (byte < 0x80) return {ascii_[byte], at + 1};
    const Utf8Char c = decode_utf8(text_, at);
    return {table_[c.code], at + c.size};
  }
  size_t run(uint8_t kinds, size_t at) const {
    while (at < text_.size()) {
      const Char c = char_at(at);
      if (!(c.kind & kinds)) break;
      at = c.end;
    }
    return at;
  }
  size_t run_without(uint8_t kinds, size_t at) const {
    while (at < text_.size()) {
      const Char c = char_at(at);
      if (c.kind & kinds) break;
      at = c.end;
    }
    return at;
  }

  // 's 't 'm 'd 're 've 'll; for GPT-2 in small letters only. The long s is an s in any case.
  size_t contraction(size_t at) const {
    constexpr uint8_t kCaseBit = kKind == WordKind::kGpt2 ? 0 : 0x20;
    const auto letter = [&](size_t i) {
      return at + i < text_.size() ? static_cast<char>(text_[at + i] | kCaseBit) : '\0';
    };
    const char a = letter(1), b = letter(2);
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return at + 2;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return at + 3;
    if (kKind != WordKind::kGpt2 && text_.substr(at + 1).starts_with("\u017F")) return at + 3;
    return kNone;
  }

  size_t word(size_t at, Char first) const {
    const bool prefix = !(first.kind & (kLetter | kNumber | kBreak)) && first.end < text_.size();
    if constexpr (kKind == WordKind::kLetters) {
      if (first.kind & rules_.word) return run(rules_.word, first.end);
      if (!prefix) return kNone;
      const Char second = char_at(first.end);
      return second.kind & rules_.word ? run(rules_.word, second.end) : kNone;
    } else {
      size_t end = prefix ? lower_word(first.end) : kNone;
      if (end == kNone) end = lower_word(at);
      if (end == kNone && prefix) end = upper_word(first.end);
      if (end == kNone) end = upper_word(at);
      if (end == kNone || !rules_.contractions || end == text_.size() || text_[end] != '\'') return end;
      const size_t longer = contraction(end);
      return longer == kNone ? end : longer;
    }
  }

  // [opening]*[closing]+: when nothing closes the run of opening ones, its last character that could is the
  // end
  size_t lower_word(size_t at) const {
    size_t last_closing_end = kNone;
    while (at < text_.size()) {
      const Char c = char_at(at);
      if (!(c.kind & kOpening)) {
        if (c.kind & kClosing) return run(kClosing, c.end);
        break;
      }
      at = c.end;
      if (c.kind & kClosing) last_closing_end = at;
    }
    return last_closing_end;
  }

  // [opening]+[closing]*
  size_t upper_word(size_t at) const {
    const size_t end = run(kOpening, at);
    return end == at ? kNone : run(kClosing, end);
  }

  // after the first digit
  size_t digits(size_t at) const {
    for (size_t count = 1; count < rules_.max_digits && at < text_.size(); ++count) {
      const Char c = char_at(at);
      if (!(c.kind & kNumber)) break;
      at = c.end;
    }
    return at;
  }

  bool is_sign(uint8_t kind) const { return !(kind & (kLetter | kNumber | kSpace | rules_.word)); }

  // the rest of [^\s\p{L}\p{N}]+[\r\n]*
  size_t signs(size_t at) const {
    at = run_without(kLetter | kNumber | kSpace | rules_.word, at);
    while (at < text_.size() &&
           (text_[at] == '\r' || text_[at] == '\n' || (rules_.slash_ends && text_[at] == '/')))
      ++at;
    return at;
  }

  // \s*[\r\n]+|\s+(?!\S)|\s+: up to the last line break or, without one, all but the last before other text;
  // GPT-2 has no first alternative
  size_t white_space(size_t at) const {
    size_t end = at, last = at, after_break = kNone;
    while (end < text_.size()) {
      const Char c = char_at(end);
      if (!(c.kind & kSpace)) break;
      last = end;
      end = c.end;
      if (c.kind & kBreak) after_break = end;
    }
    if (kKind != WordKind::kGpt2 && after_break != kNone) return after_break;
    return end == text_.size() || last == at ? end : last;
  }

  const Rules& rules_;
  std::string_view text_;
  const CharClassTable& table_;
  const uint8_t* ascii_;
};

template <WordKind kKind>
class WordScanner : public Pattern {
 public:
  explicit WordScanner(const Rules& rules) : rules_(rules) {}
  void find_all(std::string_view text, std::vector<Span>& matches) const override {
    const Scan<kKind> scan(rules_, text);
    for (size_t at = 0; at < text.size();) {
      const size_t end = scan.next(at);
      matches.push_back({at, end});
      at = end;
    }
  }

 private:
  const Rules& rules_;
};

std::unique_ptr<Pattern> make_scanner(const Rules& rules) {
  switch (rules.kind) {
    case WordKind::kGpt2:
      return std::make_unique<WordScanner<WordKind::kGpt2>>(rules);
    case WordKind::kLetters:
      return std::make_unique<WordScanner<WordKind::kLetters>>(rules);
    case WordKind::kCased:
      return std::make_unique<WordScanner<WordKind::kCased>>(rules);
  }
  return nullptr;
}

}  // namespace

std::unique_ptr<Pattern> make_word_scanner(std::string_view regex) {
  for (const Rules& rules : kRules)
    if (rules.regex == regex) return make_scanner(rules);
  return nullptr;
}

std::vector<std::string_view> word_scanner_regexes() {
  std::vector<std::string_view> regexes;
  for (const Rules& rules : kRules) regexes.push_back(rules.regex);
  return regexes;
}

}  // namespace lmdeploy
