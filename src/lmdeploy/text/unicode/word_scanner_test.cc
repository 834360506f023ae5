// The scanners against the regex engine.
#include "lmdeploy/text/unicode/word_scanner.h"

#include <gtest/gtest.h>

#include "lmdeploy/core/random.h"
#include "lmdeploy/core/utf8.h"
#include "lmdeploy/text/unicode/char_class.h"

namespace lmdeploy {
namespace {

std::vector<Span> spans_of(const Pattern& pattern, std::string_view text) {
  std::vector<Span> spans;
  pattern.find_all(text, spans);
  return spans;
}

// Characters that the expressions name, and some of every class; the rest comes from all of Unicode.
constexpr std::u32string_view kTelling =
    U"''''ssStTrReEvVlLmMdD\u017F   "
    U"\t\n\n\r\v\u0085\u00A0\u2028\u3000\u180E\u200B\u200D0123\u0663\u2160\u00BD"
    U"//"
    U".,-_$+<!"
    U"\u00A1\u3002\u4E2D\u6587\u3042\uAC00\u01C5\u01C8\u02B0\u00AA\u0301\u0308\u0903\u20DD\u00C9\u00DF"
    U"\u0416\u0436\u05D0\u0627\u0E01\u1E9E\U0001F600\U0001FAE8\U00031350\uA7DB\U00010400\U00010428\U000E0041"
    U"\0";

std::string random_text(Rng& rng) {
  std::string text;
  for (uint64_t left = rng.below(24); left > 0; --left) {
    char32_t code = kTelling[rng.below(kTelling.size())];
    if (rng.below(8) == 0) code = static_cast<char32_t>(rng.below(rng.below(2) == 0 ? 0x3000 : 0x110000));
    if (code >= 0xD800 && code < 0xE000) code = U'\uFFFD';
    for (uint64_t copies = rng.below(6) == 0 ? 4 : 1; copies > 0; --copies) append_utf8(text, code);
  }
  return text;
}

TEST(WordScanner, FindsWhatTheRegexEngineFinds) {
  constexpr int kTexts = 40'000;
  Rng rng(11);
  for (const std::string_view regex : word_scanner_regexes()) {
    const auto scanner = make_word_scanner(regex);
    const Regex engine{std::string(regex)};
    for (int i = 0; i < kTexts; ++i) {
      const std::string text = random_text(rng);
      std::vector<Span> want;
      engine.find_all(text, want);
      ASSERT_EQ(spans_of(*scanner, text), want) << regex << "\non " << testing::PrintToString(text);
    }
  }
}

TEST(WordScanner, TakesNoOtherExpression) {
  EXPECT_EQ(make_word_scanner("\\s+"), nullptr);
  EXPECT_EQ(make_word_scanner(std::string(word_scanner_regexes()[0]) + "|x"), nullptr);
}

TEST(CharClass, AgreesWithTheRegexEngineOnAllCharacters) {
  using namespace char_class;
  const std::pair<uint8_t, const char*> classes[] = {{kLetter, "\\p{L}"},
                                                     {kMark, "\\p{M}"},
                                                     {kNumber, "\\p{N}"},
                                                     {kSpace, "\\s"},
                                                     {kBreak, "[\\r\\n]"},
                                                     {kOpening, "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"},
                                                     {kClosing, "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"}};
  std::string all;
  for (char32_t code = 0; code < 0x110000; ++code)
    if (code < 0xD800 || code >= 0xE000) append_utf8(all, code);
  for (const auto& [bit, regex] : classes) {
    std::vector<Span> want, got;
    Regex(regex).find_all(all, want);
    for (size_t at = 0; at < all.size();) {
      const Utf8Char c = decode_utf8(all, at);
      if (CharClassTable::get()[c.code] & bit) got.push_back({at, at + c.size});
      at += c.size;
    }
    EXPECT_EQ(got, want) << regex;
  }
}

}  // namespace
}  // namespace lmdeploy
