// SentencePiece models against SentencePiece's own encodings and decodings: every line must be identical.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "lmdeploy/core/error.h"
#include "lmdeploy/text/golden/test_data.h"

namespace lmdeploy {
namespace {

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
  return check_decoded_prefixes(tokenizer, line, /*skip_special_tokens=*/true);
}

TEST_P(SentencePieceGolden, EveryLineIsIdentical) {
  const auto tokenizer = load(GetParam());
  expect_golden_lines(GetParam(), "golden_spm.jsonl.gz",
                      [&](const JsonObject& line) { return check_line(tokenizer, line); });
}

INSTANTIATE_TEST_SUITE_P(Files, SentencePieceGolden,
                         testing::ValuesIn(tokenizer_data_with("golden_spm.jsonl.gz")),
                         [](const auto& test) { return test.param; });

TEST(SentencePieceGoldenFiles, AreThere) { expect_golden_files("golden_spm.jsonl.gz", 16); }

}  // namespace
}  // namespace lmdeploy
