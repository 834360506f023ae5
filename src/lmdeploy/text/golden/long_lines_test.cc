// Lines of a megabyte that give no place to cut. Work that grew with the square of the length would take
// hours, and CTest stops a test after ten minutes: the guard needs no clock.
#include <gtest/gtest.h>

#include "lmdeploy/text/golden/test_data.h"
#include "lmdeploy/text/unicode/word_scanner.h"

namespace lmdeploy {
namespace {

constexpr size_t kLineBytes = size_t{1} << 20;

constexpr std::string_view kUnits[] = {"a",  "aA",     "0",       " ",          "\n",      " \n", "'s",
                                       "<s", "\u0301", "\u4E2DA", "\U0001F600", "\xED\xA0"};  // no UTF-8

void encode_long_lines(const std::shared_ptr<const Tokenizer>& tokenizer) {
  for (const std::string_view unit : kUnits) {
    std::string line;
    while (line.size() < kLineBytes) line.append(unit);
    const std::vector<int> ids = tokenizer->encode(line, {.add_special_tokens = false});
    EXPECT_TRUE(tokenizer->decode(ids) == line || unit == "\xED\xA0") << unit;
  }
}

// Runs of "a" join again and again, so that merging has its full work too.
std::shared_ptr<const Tokenizer> with_pattern(std::string_view regex) {
  Json json = tiny_byte_level_json();
  JsonObject& model = json.at("model").as_object();
  int id = 300;
  for (std::string run = "a"; run.size() < 32; run += run) {
    model["vocab"].as_object()[run + run] = id++;
    model["merges"].as_array().push_back(JsonArray{Json(run), Json(run)});
  }
  json.as_object()["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}, {"invert", false}},
        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  return tokenizer_from_json(to_json_text(json));
}

TEST(LongLines, OfEachWordScanner) {
  for (const std::string_view regex : word_scanner_regexes()) encode_long_lines(with_pattern(regex));
}

TEST(LongLines, OfTheRegexEngine) {
  encode_long_lines(with_pattern(
      R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"));
}

TEST(LongLines, OfSentencePiece) { encode_long_lines(tiny_sentencepiece_tokenizer()); }

}  // namespace
}  // namespace lmdeploy
