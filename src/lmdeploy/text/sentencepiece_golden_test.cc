// SentencePiece models against SentencePiece's own encodings and decodings: every line must be identical.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "lmdeploy/core/error.h"
#include "lmdeploy/text/test_data.h"

namespace lmdeploy {
namespace {

constexpr int kMaxShown = 5;

class SentencePieceGolden : public testing::TestWithParam<std::string> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SentencePieceGolden);

std::shared_ptr<const Tokenizer> load(const std::string& name) {
  const std::string path = cat(testing::TempDir(), "/", name, "_", ::getpid(), ".model");
  std::ofstream(path, std::ios::binary) << read_gzip(tokenizer_data() / name / "tokenizer.model.gz");
  auto tokenizer = Tokenizer::load(path);
  std::filesystem::remove(path);
  return tokenizer;
}

// Checks one line; returns what is wrong, or nothing.
std::string check_line(const std::shared_ptr<const Tokenizer>& tokenizer, const JsonObject& line) {
  const std::string text(line.at("text").as_string());
  const std::vector<int> ids = to_ids(line.at("ids"));
  const std::string dec = line.contains("dec") ? std::string(line.at("dec").as_string()) : text;
  const std::vector<int> got = tokenizer->encode(text, {.add_special_tokens = false});
  if (got != ids) return cat("ids, got ", testing::PrintToString(got).substr(0, 300), ",");
  if (tokenizer->decode(ids) != dec) return cat("dec, got \"", tokenizer->decode(ids), "\",");
  if (stream_decode(tokenizer, ids, true) != dec) return "streamed dec";
  if (!line.contains("dec_prefix")) return {};
  for (const Json& prefix : line.at("dec_prefix").as_array()) {
    const auto count = static_cast<std::ptrdiff_t>(prefix.at(0).as_int64());
    const std::vector<int> first(ids.begin(), ids.begin() + count);
    const std::string want(prefix.at(1).as_string());
    if (tokenizer->decode(first) != want) return cat("dec_prefix ", count);
    if (stream_decode(tokenizer, first, true) != want) return cat("streamed dec_prefix ", count);
  }
  return {};
}

TEST_P(SentencePieceGolden, EveryLineIsIdentical) {
  const auto tokenizer = load(GetParam());
  const auto path = tokenizer_data() / GetParam() / "golden_spm.jsonl.gz";
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

INSTANTIATE_TEST_SUITE_P(Files, SentencePieceGolden,
                         testing::ValuesIn(tokenizer_data_with("golden_spm.jsonl.gz")),
                         [](const auto& test) { return test.param; });

TEST(SentencePieceGoldenFiles, AreThere) {
  const size_t count = tokenizer_data_with("golden_spm.jsonl.gz").size();
  if (count == 0) GTEST_SKIP() << tokenizer_data() << " is not there";
  EXPECT_GE(count, 16u);
}

}  // namespace
}  // namespace lmdeploy
