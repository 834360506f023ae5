// GGUF tokenizers of all kinds, written by the test, and what is refused.
#include "lmdeploy/text/files/gguf_tokenizer.h"

#include <gtest/gtest.h>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/utf8.h"
#include "lmdeploy/formats/gguf.h"
#include "lmdeploy/text/files/gguf_pre_types.h"
#include "lmdeploy/text/golden/test_data.h"
#include "lmdeploy/text/steps/byte_level.h"

namespace lmdeploy {
namespace {

constexpr EncodeOptions kPlain = {.add_special_tokens = false};

// The keys of a tokenizer; the strings are kept alive here.
struct Content {
  std::vector<std::string> tokens, merges;
  std::vector<int64_t> types;
  std::vector<double> scores;
  std::vector<GgufItem> items;

  void add(const std::string& token, int64_t type, double score = 0) {
    tokens.push_back(token);
    types.push_back(type);
    scores.push_back(score);
  }
  void set(const std::string& key, GgufType type, GgufValue value) {
    std::erase_if(items, [&](const GgufItem& item) { return item.key == "tokenizer.ggml." + key; });
    items.push_back({"tokenizer.ggml." + key, type, std::move(value)});
  }
  std::shared_ptr<const Tokenizer> load() const {
    std::vector<GgufItem> all = items;
    const auto views = [](const std::vector<std::string>& texts) {
      return std::vector<std::string_view>(texts.begin(), texts.end());
    };
    all.push_back({"tokenizer.ggml.tokens", GgufType::kString, views(tokens)});
    all.push_back({"tokenizer.ggml.token_type", GgufType::kI32, types});
    if (!merges.empty()) all.push_back({"tokenizer.ggml.merges", GgufType::kString, views(merges)});
    if (!scores.empty()) all.push_back({"tokenizer.ggml.scores", GgufType::kF32, scores});
    const std::string path = cat(testing::TempDir(), "/gguf_tokenizer_test_",
                                 testing::UnitTest::GetInstance()->current_test_info()->name(), ".gguf");
    write_gguf(path, all, {});
    return Tokenizer::load(path);
  }
};

Content byte_level() {
  Content content;
  for (int byte = 0; byte < 256; ++byte) {
    std::string spelled;
    append_utf8(spelled, byte_level_char(static_cast<uint8_t>(byte)));
    content.add(spelled, 1);
  }
  for (const char* token : {"he", "ll", "hell", "\u0120h"}) content.add(token, 1);
  content.merges = {"h e", "l l", "he ll", "\u0120 h", "x missing"};
  content.add("<|im_start|>", 3);
  content.add("<|im_end|>", 3);
  content.add("<tool>", 4);
  content.set("model", GgufType::kString, std::string_view("gpt2"));
  content.set("pre", GgufType::kString, std::string_view("smollm"));
  content.set("bos_token_id", GgufType::kU32, int64_t{260});
  content.set("eos_token_id", GgufType::kU32, int64_t{260});
  return content;
}

Content sentencepiece() {
  Content content;
  content.add("<unk>", 2);
  content.add("<s>", 3);
  content.add("</s>", 3);
  for (int byte = 0; byte < 256; ++byte) {
    constexpr char kDigits[] = "0123456789ABCDEF";
    content.add({'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 15], '>'}, 6);
  }
  // "n" is no token by itself, yet "on" is one.
  for (const char* token : {"\u2581", "o", "e"}) content.add(token, 1, -100);
  content.add("\u2581o", 1, -2);
  content.add("on", 1, -1);
  content.add("\u2581on", 1, -3);
  content.add("one", 1, -1);
  content.set("model", GgufType::kString, std::string_view("llama"));
  return content;
}

TEST(GgufTokenizer, ByteLevel) {
  Content content = byte_level();
  content.items.push_back({"tokenizer.chat_template", GgufType::kString, std::string_view("T")});
  const auto tokenizer = content.load();
  EXPECT_EQ(tokenizer->encode("hell h12"), (std::vector<int>{258, 259, '1', '2'}));
  EXPECT_EQ(tokenizer->encode("<|im_start|>h<tool>"), (std::vector<int>{260, 'h', 262}));
  EXPECT_EQ(tokenizer->decode(std::vector<int>{260, 258, 262, 261}), "hell<tool>");
  EXPECT_EQ(tokenizer->bos_token(), "<|im_start|>");
  EXPECT_EQ(tokenizer->end_ids(), (std::vector<int>{260, 261}));  // EOS, and <|im_end|> by its name
  EXPECT_EQ(tokenizer->chat_template(), "T");
  content.set("add_bos_token", GgufType::kBool, true);
  content.set("add_eos_token", GgufType::kBool, true);
  content.set("eot_token_id", GgufType::kU32, int64_t{262});
  const auto adding = content.load();
  EXPECT_EQ(adding->encode("h"), (std::vector<int>{260, 'h', 260}));
  EXPECT_EQ(adding->end_ids(), (std::vector<int>{260, 261, 262}));
}

TEST(GgufTokenizer, SentencePieceByScores) {
  Content content = sentencepiece();
  const auto tokenizer = content.load();
  const auto id = [&](const char* token) { return *tokenizer->token_id(token); };
  EXPECT_EQ(tokenizer->encode("on"), (std::vector<int>{1, id("\u2581on")}));
  // "on" (-1) joins before "▁o" (-2); then "one" at the same score
  EXPECT_EQ(tokenizer->encode("one", kPlain), (std::vector<int>{id("\u2581"), id("one")}));
  EXPECT_EQ(tokenizer->encode("n", kPlain), (std::vector<int>{id("\u2581"), id("<0x6E>")}));
  EXPECT_EQ(tokenizer->encode("\u00E9", kPlain),
            (std::vector<int>{id("\u2581"), id("<0xC3>"), id("<0xA9>")}));
  EXPECT_EQ(tokenizer->encode("<0x41>", kPlain).size(), 7u);  // a byte token's name is plain text
  EXPECT_EQ(tokenizer->encode("</s>", {.add_special_tokens = false, .parse_special = false}).size(), 5u);
  EXPECT_EQ(tokenizer->encode("</s>", kPlain), std::vector<int>{2});
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("one on")), "one on");
  content.set("add_space_prefix", GgufType::kBool, false);
  content.set("add_bos_token", GgufType::kBool, false);
  EXPECT_EQ(content.load()->encode("one"), std::vector<int>{id("one")});
}

TEST(GgufTokenizer, RefusesWhatItCannotRead) {
  const auto refuse = [](const Content& content, ErrorCode code, const std::string& message) {
    try {
      content.load();
      ADD_FAILURE() << "no error about " << message;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code);
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
    }
  };
  Content content = byte_level();
  content.set("model", GgufType::kString, std::string_view("t5"));
  refuse(content, ErrorCode::kUnsupported, "\"t5\" is not supported");
  content.items.clear();
  refuse(content, ErrorCode::kNotFound, "tokenizer.ggml.model is missing");
  content = byte_level();
  content.merges.clear();
  refuse(content, ErrorCode::kInvalidData, "tokenizer.ggml.merges");
  content.merges = {"nospace"};
  refuse(content, ErrorCode::kInvalidData, "entry 0");
  content = byte_level();
  content.types.pop_back();
  refuse(content, ErrorCode::kInvalidData, "262 entries for 263 tokens");
  content = byte_level();
  content.set("bos_token_id", GgufType::kU32, int64_t{263});
  refuse(content, ErrorCode::kInvalidData, "263 is not below the number of tokens");
  content = sentencepiece();
  content.scores.clear();
  refuse(content, ErrorCode::kInvalidData, "tokenizer.ggml.scores");
}

TEST(GgufTokenizer, WordPieceMarksTheBeginningsOfWords) {
  Content content;
  for (const char* token : {"[UNK]", "[CLS]", "[SEP]"}) content.add(token, token[1] == 'U' ? 2 : 3);
  for (const char* token : {"\u2581hell", "o", "\u2581,", "\u2581[x"}) content.add(token, 1);
  content.set("model", GgufType::kString, std::string_view("bert"));
  content.set("unknown_token_id", GgufType::kU32, int64_t{0});
  content.set("cls_token_id", GgufType::kU32, int64_t{1});
  content.set("seperator_token_id", GgufType::kU32, int64_t{2});
  const auto tokenizer = content.load();
  EXPECT_EQ(tokenizer->encode("H\u00E9llo, xo[SEP]"), (std::vector<int>{1, 3, 4, 5, 0, 2, 2}));
  EXPECT_EQ(tokenizer->encode("hello", {.add_special_tokens = false}), (std::vector<int>{3, 4}));
  EXPECT_EQ(tokenizer->decode(std::vector<int>{1, 3, 4, 5, 3, 2}), "hello, hell");
  EXPECT_EQ(tokenizer->token_text(4), "##o");
  EXPECT_EQ(tokenizer->token_text(6), "[x");
}

TEST(GgufPreTypes, KnowTheCommonNames) {
  EXPECT_EQ(find_gguf_pre_type("smollm").regexes.size(), 2u);
  EXPECT_TRUE(find_gguf_pre_type("llama-bpe").ignore_merges);
  EXPECT_TRUE(find_gguf_pre_type("llama-bpe").add_bos);
  EXPECT_TRUE(find_gguf_pre_type("qwen2").nfc);
  EXPECT_EQ(find_gguf_pre_type("unheard-of").regexes, find_gguf_pre_type("gpt-2").regexes);
}

// Every pattern compiles; what differs between them in one text.
TEST(GgufPreTypes, CutText) {
  const auto words = [](std::string_view name, const std::string& text) {
    Words cut;
    cut.text = text;
    cut.spans = {{0, text.size()}};
    for (const auto& step : make_regex_pre_tokenizer(find_gguf_pre_type(name).regexes).steps)
      step->apply(cut);
    std::vector<std::string> found;
    for (const Span span : cut.spans) found.emplace_back(slice(cut.text, span));
    return found;
  };
  using Strings = std::vector<std::string>;
  const std::string text = "It'S 1234";
  EXPECT_EQ(words("gpt-2", text), (Strings{"It", "'", "S", " 1234"}));
  EXPECT_EQ(words("smollm", text), (Strings{"It", "'", "S", " ", "1", "2", "3", "4"}));
  EXPECT_EQ(words("llama-bpe", text), (Strings{"It", "'S", " ", "123", "4"}));
  EXPECT_EQ(words("qwen2", text), (Strings{"It", "'S", " ", "1", "2", "3", "4"}));
  EXPECT_EQ(words("gpt-4o", text), (Strings{"It'S", " ", "123", "4"}));
  EXPECT_EQ(words("kimi-k2", "a\u4E2Db"), (Strings{"a", "\u4E2D", "b"}));
  for (const char* name :
       {"tekken", "bailingmoe", "seed-coder", "deepseek-llm", "deepseek-coder", "deepseek-v3", "falcon",
        "bloom", "viking", "qwen35", "stablelm2", "dbrx", "gpt-neox"}) {
    std::string joined;
    for (const std::string& word : words(name, text)) joined += word;
    EXPECT_EQ(joined, text) << name;
  }
}

}  // namespace
}  // namespace lmdeploy
