// Real tokenizers against the reference library's encodings and decodings: every line must be identical.
#include <gtest/gtest.h>

#include "lmdeploy/core/error.h"
#include "lmdeploy/text/composed_tokenizer.h"
#include "lmdeploy/text/test_data.h"
#include "lmdeploy/text/tokenizer_json.h"

namespace lmdeploy {
namespace {

constexpr int kMaxShown = 5;

class Golden : public testing::TestWithParam<std::string> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Golden);

std::shared_ptr<const Tokenizer> load(const std::string& name) {
  const auto path = tokenizer_data() / name / "tokenizer.json.gz";
  return tokenizer_from_json(read_gzip(path));
}

// Checks one line; returns what is wrong, or nothing.
std::string check_line(const std::shared_ptr<const Tokenizer>& tokenizer, const JsonObject& line) {
  const std::string text(line.at("text").as_string());
  const std::vector<int> ids = to_ids(line.at("ids"));
  const std::vector<int> ids_special = line.contains("ids_special") ? to_ids(line.at("ids_special")) : ids;
  const auto text_or = [&](const char* key, const std::string& fallback) {
    return line.contains(key) ? std::string(line.at(key).as_string()) : fallback;
  };
  const std::string dec_skip = text_or("dec_skip", text), dec = text_or("dec", dec_skip);
  if (tokenizer->encode(text, {.add_special_tokens = false}) != ids) return "ids";
  if (tokenizer->encode(text) != ids_special) return "ids_special";
  if (tokenizer->decode(ids_special, true) != dec_skip) return "dec_skip";
  if (tokenizer->decode(ids_special, false) != dec) return "dec";
  if (stream_decode(tokenizer, ids_special, true) != dec_skip) return "streamed dec_skip";
  if (stream_decode(tokenizer, ids_special, false) != dec) return "streamed dec";
  if (!line.contains("dec_prefix")) return {};
  for (const Json& prefix : line.at("dec_prefix").as_array()) {
    const auto count = static_cast<std::ptrdiff_t>(prefix.at(0).as_int64());
    const std::vector<int> first(ids.begin(), ids.begin() + count);
    const std::string want(prefix.at(1).as_string());
    if (tokenizer->decode(first, false) != want) return cat("dec_prefix ", count);
    if (stream_decode(tokenizer, first, false) != want) return cat("streamed dec_prefix ", count);
  }
  return {};
}

TEST_P(Golden, EveryLineIsIdentical) {
  const auto tokenizer = load(GetParam());
  const auto path = tokenizer_data() / GetParam() / "golden.jsonl.gz";
  int failed = 0, total = 0;
  for (const Json& line : parse_json_lines(read_gzip(path), path.string())) {
    ++total;
    const std::string wrong = check_line(tokenizer, line.as_object());
    if (!wrong.empty() && ++failed <= kMaxShown)
      ADD_FAILURE() << wrong << " of " << to_json_text(line).substr(0, 1000);
  }
  EXPECT_EQ(failed, 0) << "of " << total << " lines";
  EXPECT_GT(total, 1000);
}

INSTANTIATE_TEST_SUITE_P(Files, Golden, testing::ValuesIn(tokenizer_data_with("golden.jsonl.gz")),
                         [](const auto& test) { return test.param; });

TEST(GoldenFiles, AreThere) {
  const size_t count = tokenizer_data_with("golden.jsonl.gz").size();
  if (count == 0) GTEST_SKIP() << tokenizer_data() << " is not there";
  EXPECT_GE(count, 24u);
}

}  // namespace
}  // namespace lmdeploy
