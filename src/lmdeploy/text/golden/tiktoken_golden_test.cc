// Rank files against tiktoken's own encodings: every line must be identical.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/mapped_file.h"
#include "lmdeploy/text/golden/test_data.h"

namespace lmdeploy {
namespace {

class TiktokenGolden : public testing::TestWithParam<std::string> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TiktokenGolden);

// Unpacks ranks and tiktoken.json side by side.
std::shared_ptr<const Tokenizer> load(const std::string& name) {
  const auto source = tokenizer_data() / name;
  const std::filesystem::path folder = cat(testing::TempDir(), "/", name, "_", ::getpid());
  std::filesystem::create_directories(folder);
  const std::string rules = read_file((source / "tiktoken.json").string());
  const std::string ranks(parse_json(rules, name).at("ranks_file").as_string());
  std::ofstream(folder / "tiktoken.json") << rules;
  std::ofstream(folder / ranks, std::ios::binary) << read_gzip(source / (ranks + ".gz"));
  auto tokenizer = Tokenizer::load((folder / ranks).string());
  std::filesystem::remove_all(folder);
  return tokenizer;
}

// Checks one line; returns what is wrong, or nothing.
std::string check_line(const std::shared_ptr<const Tokenizer>& tokenizer, const JsonObject& line) {
  const std::string text(line.at("text").as_string());
  const std::vector<int> ordinary = to_ids(line.at("ids_ordinary"));
  const std::vector<int> ids = line.contains("ids") ? to_ids(line.at("ids")) : ordinary;
  if (tokenizer->encode(text) != ordinary) return "ids_ordinary";
  if (tokenizer->encode(text, {.parse_special = true}) != ids) return "ids";
  if (tokenizer->decode(ordinary) != text) return "decoded ids_ordinary";
  if (tokenizer->decode(ids, /*skip_special_tokens=*/false) != text) return "decoded ids";
  if (stream_decode(tokenizer, ids, /*skip_special_tokens=*/false) != text) return "streamed ids";
  return {};
}

TEST_P(TiktokenGolden, EveryLineIsIdentical) {
  const auto tokenizer = load(GetParam());
  expect_golden_lines(GetParam(), "golden_tiktoken.jsonl.gz",
                      [&](const JsonObject& line) { return check_line(tokenizer, line); });
}

INSTANTIATE_TEST_SUITE_P(Files, TiktokenGolden,
                         testing::ValuesIn(tokenizer_data_with("golden_tiktoken.jsonl.gz")),
                         [](const auto& test) { return test.param; });

TEST(TiktokenGoldenFiles, AreThere) { expect_golden_files("golden_tiktoken.jsonl.gz", 6); }

}  // namespace
}  // namespace lmdeploy
