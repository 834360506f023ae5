// Single parts of tokenizer.json against the reference library.
#include <gtest/gtest.h>

#include "lmdeploy/core/error.h"
#include "lmdeploy/text/golden/test_data.h"
#include "lmdeploy/text/steps/decoder.h"
#include "lmdeploy/text/steps/normalizer.h"
#include "lmdeploy/text/steps/pre_tokenizer.h"

namespace lmdeploy {
namespace {

// Precompiled maps are long; the cases name the tokenizer that has one ("... of tokenizers/NAME").
Json with_charsmap(const Json& config) {
  const Json* see = config.as_object().if_contains("see");
  if (see == nullptr) return config;
  const std::string text(see->as_string());
  const auto path = tokenizer_data() / text.substr(text.rfind('/') + 1) / "tokenizer.json.gz";
  const Json tokenizer = parse_json(read_gzip(path), path.string());
  return tokenizer.at("normalizer").at("normalizers").at(0);
}

struct Output : DecodeStage {
  void push(std::string_view part, bool) override { text.append(part); }
  void finish() override {}
  std::string text;
};

std::string decode(const DecoderChain& chain, const JsonArray& tokens) {
  Output output;
  std::vector<std::unique_ptr<DecodeStage>> stages;
  DecodeStage* first = &output;
  for (size_t i = chain.size(); i-- > 0;) first = stages.emplace_back(chain[i]->start(*first)).get();
  for (const Json& token : tokens) first->push(token.as_string(), true);
  first->finish();
  return output.text;
}

void check_normalizer(const Json& config, const Json& test) {
  const auto normalizer = read_normalizer(config, "normalizer");
  EXPECT_EQ(normalizer->apply(std::string(test.at("text").as_string())), test.at("out").as_string());
}

void check_pre_tokenizer(const Json& config, const Json& test) {
  PreTokenizerChain chain = read_pre_tokenizer(config, "pre_tokenizer");
  spell_bytes(chain);
  Words words;
  words.text = std::string(test.at("text").as_string());
  if (!words.text.empty()) words.spans = {{0, words.text.size()}};
  words.at_start = true;
  for (const auto& step : chain.steps) step->apply(words);
  std::vector<std::string> got, want;
  for (const Span span : words.spans) got.emplace_back(slice(words.text, span));
  for (const Json& piece : test.at("pieces").as_array()) want.emplace_back(piece.at(0).as_string());
  EXPECT_EQ(got, want);
}

void check_decoder(const Json& config, const Json& test) {
  EXPECT_EQ(decode(read_decoder(config, "decoder"), test.at("tokens").as_array()),
            test.at("out").as_string());
}

void check_tokenizer(const std::shared_ptr<const Tokenizer>& tokenizer, const Json& test) {
  const std::vector<int> ids = to_ids(test.at("ids"));
  EXPECT_EQ(tokenizer->encode(std::string(test.at("text").as_string())), ids);
  EXPECT_EQ(tokenizer->decode(ids, false), test.at("dec").as_string());
  if (test.as_object().contains("dec_skip")) {
    EXPECT_EQ(tokenizer->decode(ids, true), test.at("dec_skip").as_string());
  }
}

void check(const Json& component) {
  const Json config = with_charsmap(component.at("config"));
  const std::string kind(component.at("kind").as_string());
  std::shared_ptr<const Tokenizer> tokenizer;
  if (kind == "tokenizer") tokenizer = tokenizer_from_json(to_json_text(config));
  for (const Json& test : component.at("cases").as_array()) {
    SCOPED_TRACE(cat(kind, " ", to_json_text(config).substr(0, 300), " on ", to_json_text(test)));
    if (kind == "normalizer") check_normalizer(config, test);
    if (kind == "pre_tokenizer") check_pre_tokenizer(config, test);
    if (kind == "decoder") check_decoder(config, test);
    if (kind == "tokenizer") check_tokenizer(tokenizer, test);
    if (testing::Test::HasFailure()) return;
  }
}

int check_all(const Json& components) {
  int checked = 0;
  for (const Json& component : components.as_array()) {
    check(component);
    ++checked;
  }
  return checked;
}

// A selection of the cases below.
TEST(ComponentsGolden, SelectedCasesAreIdentical) {
  EXPECT_EQ(check_all(read_json_file(LMDEPLOY_SOURCE_DIR "/tests/data/text/components.json")), 87);
}

TEST(ComponentsGolden, EveryCaseIsIdentical) {
  const auto path = tokenizer_data() / "components.json.gz";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  EXPECT_EQ(check_all(parse_json(read_gzip(path), path.string())), 89);
}

}  // namespace
}  // namespace lmdeploy
