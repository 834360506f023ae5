// The kinds of patterns.
#include "lmdeploy/text/unicode/pattern.h"

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/utf8.h"
#include "lmdeploy/text/unicode/unicode_additions.h"
#include "lmdeploy/text/unicode/word_scanner.h"

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

// The library's table of scripts is from Unicode 9: what came later counts as unassigned, and two characters
// were still common to several scripts.
class ScriptPattern : public RegexPattern {
 public:
  using RegexPattern::RegexPattern;
  void find_all(std::string_view text, std::vector<Span>& matches) const override {
    std::string known;
    for (size_t at = 0; at < text.size();) {
      const Utf8Char c = decode_utf8(text, at);
      append_utf8(known, in_unicode_9(c));
      at += c.size;
    }
    RegexPattern::find_all(known, matches);
  }

 private:
  static char32_t in_unicode_9(Utf8Char c) {
    constexpr char32_t kUnassigned[] = {0, 0, 0x378, 0xFFF, 0x1FFFE};  // by UTF-8 length
    constexpr char32_t kCommon = 0xD7;
    if (c.code == 0x589 || c.code == 0x61C) return kCommon;
    return newer_than_unicode(9, c.code) ? kUnassigned[c.size] : c.code;
  }
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

// ISO 15924 codes of all scripts in Unicode 14 but Han, Hiragana, Katakana and Common.
constexpr std::string_view kScripts =
    "Adlm Aghb Ahom Arab Armi Armn Avst Bali Bamu Bass Batk Beng Bhks Bopo Brah Brai Bugi Buhd Cakm "
    "Cans Cari Cham Cher Chrs Copt Cpmn Cprt Cyrl Deva Diak Dogr Dsrt Dupl Egyp Elba Elym Ethi Geor "
    "Glag Gong Gonm Goth Gran Grek Gujr Guru Hang Hano Hatr Hebr Hluw Hmng Hmnp Hung Ital Java Kali "
    "Khar Khmr Khoj Kits Knda Kthi Lana Laoo Latn Lepc Limb Lina Linb Lisu Lyci Lydi Mahj Maka Mand "
    "Mani Marc Medf Mend Merc Mero Mlym Modi Mong Mroo Mtei Mult Mymr Nand Narb Nbat Newa Nkoo Nshu "
    "Ogam Olck Orkh Orya Osge Osma Ougr Palm Pauc Perm Phag Phli Phlp Phnx Plrd Prti Rjng Rohg Runr "
    "Samr Sarb Saur Sgnw Shaw Shrd Sidd Sind Sinh Sogd Sogo Sora Soyo Sund Sylo Syrc Tagb Takr Tale "
    "Talu Taml Tang Tavt Telu Tfng Tglg Thaa Thai Tibt Tirh Tnsa Toto Ugar Vaii Vith Wara Wcho Xpeo "
    "Xsux Yezi Yiii Zanb Zinh ";

}  // namespace

std::unique_ptr<Pattern> make_literal_pattern(std::string literal) {
  return std::make_unique<LiteralPattern>(std::move(literal));
}

std::unique_ptr<Pattern> make_regex_pattern(const std::string& regex) {
  if (auto scanner = make_word_scanner(regex)) return scanner;
  return std::make_unique<RegexPattern>(regex);
}

std::unique_ptr<Pattern> make_char_pattern(bool (*takes)(char32_t code)) {
  return std::make_unique<CharPattern>(takes);
}

std::unique_ptr<Pattern> make_script_pattern() {
  // A character that begins a run, and all that can go on with it; \p{Zzzz} is unassigned.
  std::string regex =
      "[\\p{Hani}\\p{Hira}\\p{Kana}\\x{30FC}][\\p{Hani}\\p{Hira}\\p{Kana}\\x{30FC}\\p{Zzzz} ]*"
      "|(?![ \\x{30FC}])\\p{Zyyy}(?:(?!\\x{30FC})[\\p{Zyyy}\\p{Zzzz} ])*";
  for (std::string_view names = kScripts; !names.empty(); names.remove_prefix(5))
    regex += cat("|\\p{", names.substr(0, 4), "}[\\p{", names.substr(0, 4), "}\\p{Zzzz} ]*");
  return std::make_unique<ScriptPattern>(regex);
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
  return replace_matches(text, matches, content);
}

std::string replace_matches(std::string_view text, const std::vector<Span>& matches,
                            std::string_view content) {
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
