// Rank files written here: errors, rules, and folders.
#include "lmdeploy/text/files/tiktoken.h"

#include <gtest/gtest.h>

#include <fstream>

#include "lmdeploy/core/error.h"
#include "lmdeploy/text/files/base64.h"
#include "lmdeploy/text/golden/test_data.h"

namespace lmdeploy {
namespace {

namespace fs = std::filesystem;
constexpr EncodeOptions kPlain = {.add_special_tokens = false};

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t at = 0; at < bytes.size(); at += 3) {
    uint32_t bits = 0;
    for (size_t i = 0; i < 3; ++i)
      bits = bits << 8 | (at + i < bytes.size() ? static_cast<uint8_t>(bytes[at + i]) : 0u);
    for (size_t i = 0; i < 4; ++i)
      out.push_back(at * 4 / 3 + i <= bytes.size() * 4 / 3 ? kDigits[bits >> (18 - 6 * i) & 63] : '=');
  }
  return out;
}

// Ranks 0 to 255 are the bytes.
std::string ranks(const std::vector<std::string>& tokens) {
  std::string lines;
  for (int byte = 0; byte < 256; ++byte)
    lines += cat(base64(std::string(1, static_cast<char>(byte))), " ", byte, "\n");
  for (size_t i = 0; i < tokens.size(); ++i) lines += cat(base64(tokens[i]), " ", 256 + i, "\n");
  return lines;
}

const TiktokenRules kRules = {.pattern = " ?\\w+|\\W+", .special_tokens = {{"<|x|>", 300}}};

std::string error_of(const std::string& bytes, const TiktokenRules& rules = kRules) {
  try {
    read_tiktoken(bytes, rules, "x.tiktoken");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Base64, IsReadOrRefused) {
  for (const std::string text : {"", "a", "ab", "abc", "abcd", "\xFF\0\x7F"}) {
    EXPECT_EQ(decode_base64(base64(text)), text);
  }
  EXPECT_EQ(decode_base64("YQ"), "a");  // without padding
  EXPECT_EQ(decode_base64("Y"), std::nullopt);
  EXPECT_EQ(decode_base64("Y*=="), std::nullopt);
}

TEST(Tiktoken, JoinsTheBestNeighboursFirst) {
  const ComposedTokenizer tokenizer(read_tiktoken(ranks({"bc", "ab", " a", "abcd"}), kRules, "x.tiktoken"));
  EXPECT_EQ(tokenizer.encode("abc", {}), (std::vector<int>{'a', 256}));
  EXPECT_EQ(tokenizer.encode("abcd", {}), std::vector<int>{259});  // a word that is a token needs no merges
  EXPECT_EQ(tokenizer.encode("x a", {}), (std::vector<int>{'x', 258}));
  EXPECT_EQ(tokenizer.token_text(258), "\u0120a");
  EXPECT_EQ(tokenizer.token_bytes(258), " a");
  EXPECT_EQ(tokenizer.encode("<|x|>", {}).size(), 5u);  // plain text
  EXPECT_EQ(tokenizer.encode("<|x|>", {.parse_special = true}), std::vector<int>{300});
  EXPECT_EQ(tokenizer.decode(std::vector<int>{'a', 300}, true), "a");
  EXPECT_EQ(tokenizer.decode(std::vector<int>{'a', 300}, false), "a<|x|>");
}

TEST(Tiktoken, AnOffsetMovesIdsAndNamesTheFirst) {
  TiktokenRules rules = kRules;
  rules.id_offset = 3;
  rules.special_tokens = {{"<s>", 1}};
  const ComposedTokenizer tokenizer(read_tiktoken(ranks({"ab"}), rules, "x.tiktoken"));
  EXPECT_EQ(tokenizer.encode("ab", {}), std::vector<int>{259});
  EXPECT_EQ(tokenizer.token_text(2), "<SPECIAL_2>");
  EXPECT_EQ(tokenizer.encode("<s>", {.parse_special = true}).size(), 3u);  // never looked for
}

TEST(Tiktoken, NamesWhatIsWrong) {
  const auto expect = [](const std::string& got, const std::string& part) {
    EXPECT_NE(got.find(part), std::string::npos) << got << " lacks " << part;
    EXPECT_EQ(got.find("x.tiktoken"), 0u) << got;
  };
  expect(error_of(""), "no token stands for the single byte 0");
  expect(error_of(ranks({}) + "YWI=\n"), "line 257 is \"YWI=\", expected \"base64 rank\"");
  expect(error_of(ranks({}) + "YWI= -1"), "expected \"base64 rank\"");
  expect(error_of(ranks({}) + "YWI= 99999999"), "its rank is not below");
  expect(error_of(ranks({}) + "YWI= 7"), "a rank that another line has");
  expect(error_of(ranks({"ab"}) + "YWI= 999"), "a token that another line has");
  TiktokenRules rules = kRules;
  rules.special_tokens = {{"<|y|>", 7}};
  expect(error_of(ranks({}), rules), "the special token \"<|y|>\" has id 7, which is a token's");
}

TEST(Tiktoken, KnownNamesHaveRules) {
  EXPECT_FALSE(find_tiktoken_rules("nobody").has_value());
  EXPECT_EQ(find_tiktoken_rules("llama3")->special_tokens.size(), 256u);
  EXPECT_EQ(find_tiktoken_rules("llama3")->special_tokens.back().second, 128255);
  EXPECT_EQ(find_tiktoken_rules("qwen")->special_tokens.back(),
            (std::pair<std::string, int>{"<|extra_204|>", 151850}));
}

class TiktokenFolder : public testing::Test {
 protected:
  TiktokenFolder() { fs::create_directories(folder_); }
  ~TiktokenFolder() override { fs::remove_all(folder_); }
  std::string write(const std::string& name, std::string_view text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return (folder_ / name).string();
  }
  fs::path folder_ = fs::path(testing::TempDir()) / "tiktoken_folder";
};

TEST_F(TiktokenFolder, QwenHasItsSpecialTokens) {
  write("qwen.tiktoken", ranks({"ab"}));
  const auto tokenizer = Tokenizer::load(folder_.string());
  EXPECT_EQ(tokenizer->encode("ab<|im_start|>"), (std::vector<int>{256, 151644}));
  EXPECT_EQ(tokenizer->encode("e\u0301", kPlain), (std::vector<int>{0xC3, 0xA9}));  // NFC
  EXPECT_EQ(tokenizer->token_text(151850), "<|extra_204|>");
  EXPECT_EQ(tokenizer->end_ids(), (std::vector<int>{151643, 151645}));
}

TEST_F(TiktokenFolder, ARankFileNeedsRules) {
  const std::string path = write("own.tiktoken", ranks({"ab"}));
  EXPECT_THROW(Tokenizer::load(path), Error);
  write("tiktoken.json", R"({"pat_str": "\\w+|\\W+", "special_tokens": {"<|x|>": 300}})");
  EXPECT_EQ(Tokenizer::load(path)->encode("ab"), std::vector<int>{256});
  EXPECT_EQ(Tokenizer::load(path)->encode("<|x|>").size(), 5u);
  EXPECT_EQ(Tokenizer::load(folder_.string())->encode("<|x|>"), std::vector<int>{300});
  write("tiktoken.json", R"({"pat_str": "\\w+", "special_tokens": {"<|x|>": "y"}})");
  EXPECT_THROW(Tokenizer::load(path), Error);
}

TEST_F(TiktokenFolder, Llama3KeepsRanksInTokenizerModel) {
  const std::string path = write("tokenizer.model", ranks({"ab"}));
  EXPECT_EQ(Tokenizer::load(path)->encode("ab"), std::vector<int>{256});
  EXPECT_EQ(Tokenizer::load(folder_.string())->encode("ab<|eot_id|>"),
            (std::vector<int>{128000, 256, 128009}));
}

}  // namespace
}  // namespace lmdeploy
