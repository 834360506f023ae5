// Where Oniguruma and PCRE2 differ, long texts, and what is refused.
#include "lmdeploy/text/unicode/regex.h"

#include <gtest/gtest.h>

#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

std::vector<std::string> matches(const std::string& pattern, std::string_view text) {
  std::vector<Span> spans;
  Regex(pattern).find_all(text, spans);
  std::vector<std::string> found;
  for (const Span span : spans) found.emplace_back(slice(text, span));
  return found;
}

using Strings = std::vector<std::string>;

TEST(Regex, ClassesMeanWhatOnigurumaMeans) {
  EXPECT_EQ(matches("\\s", "a\u180Eb\u0085c\u00A0d"), (Strings{"\u0085", "\u00A0"}));  // U+180E is no space
  EXPECT_EQ(matches("\\w+", "e\u0301_9-\u0905\u093E"), (Strings{"e\u0301_9", "\u0905\u093E"}));  // marks are
  EXPECT_EQ(matches("\\W", "a\u0301-"), (Strings{"-"}));
  EXPECT_EQ(matches("[\\W]", "a\u0301-"), (Strings{"-"}));
  EXPECT_EQ(matches("[^\\S]", "a b"), (Strings{" "}));
  EXPECT_EQ(matches("\\h+", "xAf09z"), (Strings{"Af09"}));  // a hexadecimal digit, not a blank
  EXPECT_EQ(matches("\\p{Letter}+", "ab1"), (Strings{"ab"}));
  EXPECT_EQ(matches("\\p{^L}", "a1"), (Strings{"1"}));
  EXPECT_EQ(matches("\\p{Han}+", "\u4E2D\u3001\u6587"), (Strings{"\u4E2D", "\u6587"}));  // by Script
  EXPECT_EQ(matches("(?i:'s)", "it'\u017F"), (Strings{"'\u017F"}));                      // long s
}

TEST(Regex, WordsAndPosixClassesMeanWhatOnigurumaMeans) {
  EXPECT_EQ(matches("\\w+", "a\u00B2 \u00BC \u2460"), (Strings{"a\u00B2", "\u00BC"}));
  EXPECT_EQ(matches("[\\w]+|[^\\w\\s]+", "a\u00B2"), (Strings{"a", "\u00B2"}));  // not in a class
  EXPECT_EQ(matches("[\\W]", "\u00B2"), Strings{"\u00B2"});
  EXPECT_EQ(matches("\\b.", "e\u0301- \u00B9"), (Strings{"e", "-", "\u00B9"}));  // a mark is part of the word
  EXPECT_EQ(matches("\\B.", "ab-"), Strings{"b"});
  EXPECT_EQ(matches("[[:alpha:]]+", "a\u0345\u05B0-"), Strings{"a\u0345\u05B0"});
  EXPECT_EQ(matches("[[:punct:]]+", "a$\u20AC\u2460."), (Strings{"$\u20AC", "."}));
  EXPECT_EQ(matches("[[:upper:]]", "A\u24B6\u2160a"), (Strings{"A", "\u24B6", "\u2160"}));
  EXPECT_EQ(matches("[[:alnum:]]+", "a1\u0345\u00BE_"), Strings{"a1\u0345"});
  EXPECT_EQ(matches("[[:graph:]]+", "a\u2066 \uE000"), (Strings{"a\u2066", "\uE000"}));
  EXPECT_EQ(matches("[[:^space:]]+|x", "a\u180E b"), (Strings{"a\u180E", "b"}));
  EXPECT_EQ(matches("[^[:space:][:^alpha:]]+", "ab 1c"), (Strings{"ab", "c"}));
}

TEST(Regex, NestedAndIntersectedClasses) {
  EXPECT_EQ(matches("[a[bc]]+", "abcd"), (Strings{"abc"}));
  EXPECT_EQ(matches("[^a[bc]]+", "abcd"), (Strings{"d"}));
  EXPECT_EQ(matches("[\\p{L}&&[^\\p{Han}]]+", "ab\u4E2Dc1"), (Strings{"ab", "c"}));
  EXPECT_EQ(matches("[^\\p{L}&&[^\\p{Han}]]+", "ab\u4E2D1c"), (Strings{"\u4E2D1"}));
  EXPECT_EQ(matches("[a-z&&[aeiou]&&[^e]]+", "eaiob"), (Strings{"aio"}));
  EXPECT_EQ(matches("[]a]+", "a]b"), (Strings{"a]"}));  // a bracket that comes first is itself
  EXPECT_EQ(matches("[[:alpha:]]+", "ab1"), (Strings{"ab"}));
  EXPECT_EQ(matches(" ?[^(\\s|[.,!?])]+", "a (b. c"), (Strings{"a", "b", " c"}));
}

TEST(Regex, QuantifiersOfRuby) {
  EXPECT_EQ(matches("(?:\\p{N}{1,3})+", "12345"), (Strings{"12345"}));
  EXPECT_EQ(matches("\\p{N}{1,3}+", "12345"), (Strings{"12345"}));  // not possessive: repeated
  EXPECT_EQ(matches("a++b|a", "aab"), (Strings{"aab"}));
  EXPECT_EQ(matches("a{x}", "a{x}"), (Strings{"a{x}"}));  // a literal brace
  EXPECT_EQ(matches("(?m:a.b)", "a\nb"), (Strings{"a\nb"}));
  EXPECT_EQ(matches("a.b", "a\nb"), Strings{});
  EXPECT_EQ(matches("\\s+$", "a \nb  "), (Strings{" ", "  "}));  // $ ends any line
  EXPECT_EQ(matches("\\u4e2d|\\x41", "A\u4E2D"), (Strings{"A", "\u4E2D"}));
  EXPECT_EQ(matches("[\\x{1F600}-\\x{1f64F}a]+|\\x{e9}{2}", "a\U0001F601\u00E9\u00E9"),
            (Strings{"a\U0001F601", "\u00E9\u00E9"}));
}

TEST(Regex, CharactersThatAreNewerThanTheTables) {
  EXPECT_EQ(matches("\\p{S}+", "a\U0001FAE8b"), (Strings{"\U0001FAE8"}));  // an emoji of Unicode 15
  EXPECT_EQ(matches("\\p{Ll}", "\uA7DB\uA7DA"), (Strings{"\uA7DB"}));      // a letter of Unicode 16
  EXPECT_EQ(matches("\\p{Han}+", "\U00031350"), (Strings{"\U00031350"}));
}

TEST(Regex, EmptyMatches) {
  std::vector<Span> spans;
  Regex("x*").find_all("axb", spans);
  EXPECT_EQ(spans, (std::vector<Span>{{0, 0}, {1, 2}, {3, 3}}));
  spans.clear();
  Regex("(?=\u00E9)").find_all("a\u00E9\u00E9", spans);
  EXPECT_EQ(spans, (std::vector<Span>{{1, 1}, {3, 3}}));
}

TEST(Regex, RefusesWhatItCannotCompile) {
  for (const char* pattern : {"(", "[a", "a\\", "\\p{Nonsense}", "\\p{L", "*", "[\xFF]"}) {
    try {
      Regex regex{pattern};
      FAIL() << pattern;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidData) << error.what();
    }
  }
  EXPECT_THROW(Regex(std::string(5000, '[')), Error);
}

TEST(Regex, LongTextsNeedNoLimit) {
  const std::string text(1 << 20, 'a');
  EXPECT_EQ(matches("(?:a|b)+", text).size(), 1u);  // outgrows the JIT stack
  EXPECT_EQ(matches("\\s+(?!\\S)|\\s+|\\S+", text).size(), 1u);
}

}  // namespace
}  // namespace lmdeploy
