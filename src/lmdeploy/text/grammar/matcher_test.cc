// Masks against the slow way: a token may come when a copy of the matcher accepts it.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "lmdeploy/core/expect_error.h"
#include "lmdeploy/core/random.h"
#include "lmdeploy/text/grammar/compile.h"

namespace lmdeploy::grammar {
namespace {

// Tokens that end and begin in the middle of everything.
std::vector<std::string> words() {
  std::vector<std::string> out = {"\"",
                                  "\":",
                                  "\": ",
                                  "\": \"",
                                  "\",",
                                  "\", \"",
                                  "\"}",
                                  "\"]",
                                  "},{\"",
                                  "[[",
                                  "]]",
                                  "{\"",
                                  "a",
                                  "aa",
                                  "ab\"",
                                  "abc",
                                  "abcd",
                                  "12",
                                  "123",
                                  "1,",
                                  "-1",
                                  "0.5",
                                  "\\n",
                                  "\\",
                                  "\\u00",
                                  "\\\"",
                                  "\n",
                                  "\n  ",
                                  "    ",
                                  " \"",
                                  "\xC3",
                                  "\xA9",
                                  "\xC3\xA9",
                                  "\xC3\xA9x",
                                  "x\xC3",
                                  "\xF0\x9F",
                                  "\x98\x80",
                                  "\x98\x80\"",
                                  "true",
                                  "tru",
                                  "null,",
                                  "], [",
                                  "\xE6\x97\xA5\xE6\x9C\xAC",
                                  "name",
                                  "\"name",
                                  "name\"",
                                  "kids\": [",
                                  "hello world, this is a long token of plain text!"};
  for (int length = 2; length < 40; length += 5) out.emplace_back(static_cast<size_t>(length), 'z');
  for (int length = 2; length < 30; length += 9) out.emplace_back(static_cast<size_t>(length), ' ');
  return out;
}

std::shared_ptr<const Vocabulary> vocabulary() {
  std::vector<std::string> bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
  for (std::string& word : words()) bytes.push_back(std::move(word));
  bytes.insert(bytes.begin() + 7, "");  // an id without text
  return std::make_shared<const Vocabulary>(std::move(bytes));
}

const char* const kSchemas[] = {
    R"({})",
    R"({"type":"object","properties":{"name":{"type":"string"},"kids":{"type":"array","items":{"$ref":"#"}}},"required":["name"]})",
    R"({"type":"string","maxLength":7})",
    R"({"type":"string","minLength":30,"maxLength":60})",
    R"({"type":"string","minLength":300})",
    R"({"type":"string","pattern":"^[a-z ]{3,9}$"})",
    R"({"type":"string","pattern":"z{4}"})",
    R"({"type":"string","pattern":"^[^<>]{1,20}$"})",
    R"({"type":"string","format":"email"})",
    R"({"anyOf":[{"type":"string","pattern":"^[a-z]{1,6}$"},{"type":"string","pattern":"^[ a-zA-Z0-9]{2,9}$"}]})",
    R"({"type":"array","items":{"type":"integer"},"minItems":3,"maxItems":400})",
    R"({"type":"array","items":{"type":"string","maxLength":500},"minItems":300,"maxItems":400})",
    R"({"anyOf":[{"type":"string","maxLength":3},{"type":"string","pattern":"^a"},{"type":"array","items":{"type":"number"}}]})",
    R"({"type":"object","additionalProperties":{"enum":["a","aa",null,12]},"maxProperties":5})",
    R"({"type":"object","properties":{"name":{},"names":{},"nam":{}},"additionalProperties":{"type":"number","minimum":0.5}})",
};

std::shared_ptr<const CompiledGrammar> grammar_of(const std::string& schema) {
  ResponseFormat format;
  format.kind = ResponseFormat::Kind::kJsonSchema;
  format.schema = parse_json(schema, "schema");
  return compile(format, vocabulary(), "f");
}

std::vector<int> tokens_of(const Bits& mask) {
  std::vector<int> ids;
  for (size_t id = 0; id < mask.size() * 32; ++id)
    if ((mask[id / 32] >> (id % 32) & 1) != 0) ids.push_back(static_cast<int>(id));
  return ids;
}

// They spell the beginning of what must come, each in the longest token that fits.
void expect_guesses(Matcher matcher, const std::string& forced, const Vocabulary& vocab) {
  std::vector<int> ids;
  matcher.guess(ids, 5);
  std::string_view left = forced;
  for (const int id : ids) {
    const std::string_view bytes = vocab.bytes(id);
    ASSERT_TRUE(left.starts_with(bytes)) << bytes << " of " << left;
    for (int other = 0; other < static_cast<int>(vocab.size()); ++other)
      ASSERT_TRUE(vocab.bytes(other).size() <= bytes.size() || !left.starts_with(vocab.bytes(other)));
    ASSERT_TRUE(matcher.accept(id));
    left.remove_prefix(bytes.size());
  }
  ASSERT_TRUE(ids.size() == 5 || left.empty()) << "all bytes are tokens here";
}

class Masks : public ::testing::TestWithParam<const char*> {};

TEST_P(Masks, HoldTheTokensThatAreAccepted) {
  const auto grammar = grammar_of(GetParam());
  const Vocabulary& vocab = grammar->vocabulary();
  Rng rng(5);
  int ended = 0;
  for (int run = 0; run < 20; ++run) {
    Matcher matcher = grammar->matcher();
    for (int step = 0; step < 120 && !matcher.is_complete(); ++step) {
      Bits mask(vocab.num_words() + 1, ~0u);
      matcher.fill_mask(mask);
      std::vector<int> want;
      for (int id = 0; id < static_cast<int>(vocab.size()); ++id)
        if (Matcher copy = matcher; copy.accept(id)) want.push_back(id);
      ASSERT_EQ(tokens_of(mask), want) << "run " << run << ", step " << step;
      ASSERT_TRUE(!want.empty() || matcher.can_stop()) << "a dead end";
      if (want.empty()) break;
      const std::string forced = matcher.forced_bytes();
      expect_guesses(matcher, forced, vocab);
      const int token = want[rng.below(want.size())];
      const std::string_view bytes = vocab.bytes(token);
      const size_t both = std::min(bytes.size(), forced.size());
      ASSERT_EQ(bytes.substr(0, both), forced.substr(0, both));
      ASSERT_TRUE(matcher.accept(token));
    }
    ended += matcher.is_complete();
  }
  RecordProperty("ended", ended);
}
INSTANTIATE_TEST_SUITE_P(All, Masks, ::testing::ValuesIn(kSchemas));

TEST(Matcher, RefusedTokensChangeNothing) {
  Matcher matcher = grammar_of(R"({"enum":["ab"]})")->matcher();
  EXPECT_FALSE(matcher.accept_bytes("\"x"));
  EXPECT_FALSE(matcher.accept(-1) || matcher.accept(7) || matcher.accept(1 << 30));
  EXPECT_EQ(matcher.forced_bytes(), "\"ab\"");
  EXPECT_EQ(matcher.forced_bytes(2), "\"a");
  EXPECT_TRUE(matcher.accept_bytes("\"ab\"") && matcher.is_complete());
  EXPECT_EQ(matcher.forced_bytes(), "");
}

TEST(Matcher, NestsDeeplyButNotWithoutEnd) {
  const auto grammar = grammar_of(R"({"type":"array","items":{"$ref":"#"}})");
  Matcher matcher = grammar->matcher();
  EXPECT_TRUE(matcher.accept_bytes(std::string(200, '[') + std::string(200, ']')));
  EXPECT_TRUE(matcher.is_complete());
  Matcher deep = grammar->matcher();
  EXPECT_FALSE(deep.accept_bytes(std::string(5000, '[')));
}

// The shared states outgrow their bound many times; answers go on where they were.
TEST(Matcher, OutlivesTheStatesItsGrammarForgets) {
  const auto grammar = grammar_of(
      R"({"type":"array","items":{"type":"array","items":{"type":"integer"},"maxItems":200000},"maxItems":1000000})");
  Matcher matcher = grammar->matcher();
  const auto first = grammar->automaton();
  ASSERT_TRUE(matcher.accept_bytes("[["));
  std::string piece;
  for (int i = 0; i < 1000; ++i) piece += "12,";
  for (int i = 0; i < 150; ++i) ASSERT_TRUE(matcher.accept_bytes(piece)) << i;
  EXPECT_NE(grammar->automaton(), first);
  EXPECT_EQ(first.use_count(), 1) << "the matcher has moved on";
  EXPECT_LT(grammar->automaton()->memory(), size_t{200} << 20);
  EXPECT_TRUE(matcher.accept_bytes("1],[2]]") && matcher.is_complete());
}

TEST(Matcher, OneGrammarServesManyThreads) {
  const auto grammar = grammar_of(kSchemas[1]);
  std::vector<std::jthread> threads;
  for (uint64_t seed = 0; seed < 4; ++seed)
    threads.emplace_back([&grammar, seed] {
      Rng rng(seed);
      for (int run = 0; run < 10; ++run) {
        const std::unique_ptr<TokenMatcher> matcher = grammar->start();
        Bits mask(grammar->vocabulary().num_words());
        for (int step = 0; step < 100 && !matcher->is_complete(); ++step) {
          matcher->fill_mask(mask);
          const std::vector<int> ids = tokens_of(mask);
          EXPECT_TRUE(matcher->accept(ids[rng.below(ids.size())]));
        }
      }
    });
}

TEST(Vocabulary, NeedsTokensForAllBytes) {
  expect_error(ErrorCode::kUnsupported, {"the byte 32", "byte-level"}, [] { Vocabulary({"a", "b"}); });
}

// Characters whose bytes are not all there could be begun, but not ended.
TEST(Vocabulary, BytesThatAreNotThereAreNeverNeeded) {
  std::vector<std::string> bytes;
  for (int byte = 0; byte < 256; ++byte)
    bytes.emplace_back(byte == 0xA9 || byte == 0xF1 ? "" : std::string(1, static_cast<char>(byte)));
  for (const char* word : {"\xC3\xA9", "\xF1\x80", "a\xC3\xA9"}) bytes.emplace_back(word);
  ResponseFormat format;
  format.kind = ResponseFormat::Kind::kJsonSchema;
  format.schema = parse_json(R"({"type":"string"})", "schema");
  const auto grammar = compile(format, std::make_shared<const Vocabulary>(std::move(bytes)), "f");
  Matcher matcher = grammar->matcher();
  ASSERT_TRUE(matcher.accept_bytes("\""));
  Bits mask(grammar->vocabulary().num_words());
  matcher.fill_mask(mask);
  for (const int id : tokens_of(mask)) {
    Matcher copy = matcher;
    EXPECT_TRUE(copy.accept(id)) << id;
    EXPECT_LT(id, 256) << "they hold a byte that is not there";
  }
  ASSERT_TRUE(matcher.accept_bytes("\xC3"));
  EXPECT_FALSE(matcher.accept_bytes("\xA9"));
  EXPECT_TRUE(matcher.accept_bytes("\xA8\""));
}

TEST(ResponseFormat, F39_MisspeltTypesAndFields) {
  const auto read = [](const char* text) {
    return read_response_format(parse_json(text, "t"), "response_format");
  };
  EXPECT_EQ(read(R"({"type":"text"})").kind, ResponseFormat::Kind::kText);
  EXPECT_TRUE(read(R"({"type":"json_object","compact":true})").compact);
  const ResponseFormat schema =
      read(R"({"type":"json_schema","json_schema":{"name":"x","schema":{"type":"null"},"strict":true}})");
  EXPECT_TRUE(schema.strict && schema.schema == parse_json(R"({"type":"null"})", "t"));
  EXPECT_EQ(read(R"({"type":"regex_schema","regex_schema":"a+"})").pattern, "a+");
  EXPECT_EQ(read(R"({"type":"choice","choice":["a","b"]})").choices.size(), 2u);
  const std::pair<const char*, std::vector<std::string>> kBad[] = {
      {R"({"type":"json_shema"})", {"response_format.type", "json_shema", "json_schema"}},
      {R"({})", {"response_format.type", "nothing"}},
      {R"([])", {"response_format", "an array"}},
      {R"({"type":"json_schema"})", {"response_format.json_schema", "nothing"}},
      {R"({"type":"json_schema","json_schema":null})", {"response_format.json_schema", "null"}},
      {R"({"type":"json_schema","json_schema":{"name":"x"}})",
       {"response_format.json_schema.schema", "nothing"}},
      {R"({"type":"json_schema","json_schema":{"schema":[]}})",
       {"response_format.json_schema.schema", "an array"}},
      {R"({"type":"json_object","compct":true})", {"compct", "compact"}},
      {R"({"type":"choice","choice":[]})", {"response_format.choice", "empty"}},
      {R"({"type":"choice","choice":["a",1]})", {"response_format.choice[1]", "an integer"}},
      {R"({"type":"regex_schema","regex_schema":1})", {"response_format.regex_schema", "an integer"}}};
  for (const auto& [text, expected] : kBad)
    expect_error(ErrorCode::kInvalidArgument, expected, [&] { read(text); });
}

}  // namespace
}  // namespace lmdeploy::grammar
