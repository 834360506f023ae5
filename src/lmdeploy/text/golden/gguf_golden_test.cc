// Vocabularies in GGUF files: llama.cpp's own test vectors, and the same model's tokenizer.json.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/mapped_file.h"
#include "lmdeploy/text/golden/test_data.h"

namespace lmdeploy {
namespace {

std::shared_ptr<const Tokenizer> load_gguf(const std::string& name) {
  const std::string path = cat(testing::TempDir(), "/", name, "_", ::getpid(), ".gguf");
  std::ofstream(path, std::ios::binary) << read_gzip(tokenizer_data() / name / "vocab.gguf.gz");
  auto tokenizer = Tokenizer::load(path);
  std::filesystem::remove(path);
  return tokenizer;
}

std::vector<std::string> gguf_folders() { return tokenizer_data_with("vocab.gguf.gz"); }

class GgufGolden : public testing::TestWithParam<std::string> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GgufGolden);

TEST_P(GgufGolden, GivesTheIdsOfLlamaCpp) {
  const auto path = tokenizer_data() / GetParam() / "llamacpp_vectors.jsonl";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  const auto tokenizer = load_gguf(GetParam());
  const std::vector<Json> vectors = parse_json_lines(read_file(path.string()), path.string());
  EXPECT_EQ(vectors.size(), 46u);
  for (const Json& vector : vectors)
    EXPECT_EQ(tokenizer->encode(std::string(vector.at("text").as_string()),
                                {.add_special_tokens = false, .parse_special = false}),
              to_ids(vector.at("ids")))
        << vector.at("text");
}

TEST_P(GgufGolden, AgreesWithTokenizerJson) {
  const auto tokenizer = load_gguf(GetParam());
  const auto path = tokenizer_data() / GetParam() / "golden.jsonl.gz";
  int failed = 0;
  for (const Json& line : parse_json_lines(read_gzip(path), path.string())) {
    const std::string text(line.at("text").as_string());
    const std::vector<int> ids = to_ids(line.at("ids"));
    if (tokenizer->encode(text, {.add_special_tokens = false}) == ids) continue;
    if (++failed <= 5) ADD_FAILURE() << line.at("cat") << " " << line.at("text");
  }
  EXPECT_EQ(failed, 0);
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, GgufGolden, testing::ValuesIn(gguf_folders()),
                         [](const auto& test) { return test.param; });

TEST(GgufGoldenFiles, AreThere) {
  if (gguf_folders().empty()) GTEST_SKIP() << tokenizer_data() << " is not there";
  EXPECT_GE(gguf_folders().size(), 8u);
}

}  // namespace
}  // namespace lmdeploy
