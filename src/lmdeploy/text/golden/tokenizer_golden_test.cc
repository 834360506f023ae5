// Real tokenizers against the reference library's encodings and decodings: every line must be identical.
#include <gtest/gtest.h>

#include "lmdeploy/core/error.h"
#include "lmdeploy/text/composed_tokenizer.h"
#include "lmdeploy/text/files/tokenizer_json.h"
#include "lmdeploy/text/golden/test_data.h"

namespace lmdeploy {
namespace {

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
  return check_decoded_prefixes(tokenizer, line, /*skip_special_tokens=*/false);
}

TEST_P(Golden, EveryLineIsIdentical) {
  const auto tokenizer = load(GetParam());
  expect_golden_lines(GetParam(), "golden.jsonl.gz",
                      [&](const JsonObject& line) { return check_line(tokenizer, line); });
}

INSTANTIATE_TEST_SUITE_P(Files, Golden, testing::ValuesIn(tokenizer_data_with("golden.jsonl.gz")),
                         [](const auto& test) { return test.param; });

TEST(GoldenFiles, AreThere) { expect_golden_files("golden.jsonl.gz", 24); }

}  // namespace
}  // namespace lmdeploy
