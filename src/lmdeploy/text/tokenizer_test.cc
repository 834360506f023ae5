// Loading tokenizers from files and folders, and what the configuration beside them changes.
#include "lmdeploy/text/tokenizer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "lmdeploy/core/error.h"
#include "lmdeploy/text/golden/test_data.h"

namespace lmdeploy {
namespace {

namespace fs = std::filesystem;

constexpr EncodeOptions kPlain = {.add_special_tokens = false};

class Folder : public testing::Test {
 protected:
  Folder() { fs::create_directories(folder_); }
  ~Folder() override { fs::remove_all(folder_); }
  void write(const std::string& name, std::string_view text) { std::ofstream(folder_ / name) << text; }
  std::shared_ptr<const Tokenizer> load(const Json& config, const Json& json = tiny_byte_level_json()) {
    write_tokenizer_folder(folder_, json, config);
    return Tokenizer::load(folder_.string());
  }
  fs::path folder_ = fs::path(testing::TempDir()) /
                     cat("tokenizer_", testing::UnitTest::GetInstance()->current_test_info()->name());
};
using TokenizerFolder = Folder;

ErrorCode code_of(const std::function<void()>& action, const std::string& in_message) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(in_message), std::string::npos) << error.what();
    return error.code();
  }
  ADD_FAILURE() << "no error about " << in_message;
  return ErrorCode::kInternal;
}

TEST(Tokenizer, MergesWordsOfBytes) {
  const auto tokenizer = tiny_byte_level_tokenizer();
  EXPECT_EQ(tokenizer->encode("hello w"), (std::vector<int>{259, 260}));
  EXPECT_EQ(tokenizer->encode("hell\n"), (std::vector<int>{258, '\n'}));
  EXPECT_EQ(tokenizer->encode(""), std::vector<int>{});
  EXPECT_EQ(tokenizer->encode("\xFF"), (std::vector<int>{0xEF, 0xBF, 0xBD}));  // no UTF-8: U+FFFD
  EXPECT_EQ(tokenizer->vocab_size(), 267);
  EXPECT_EQ(tokenizer->token_text(260), "\u0120w");
  EXPECT_EQ(tokenizer->token_bytes(260), " w");
  EXPECT_EQ(tokenizer->token_text(-1), "");
  EXPECT_EQ(tokenizer->token_text(267), "");
  EXPECT_EQ(tokenizer->token_bytes(265), "");  // special
  EXPECT_EQ(tokenizer->token_bytes(266), "<tool>");
}

TEST(Tokenizer, ParsesSpecialTokensUnlessTold) {
  const auto tokenizer = tiny_byte_level_tokenizer();
  EXPECT_EQ(tokenizer->encode("h</s><tool>", kPlain), (std::vector<int>{'h', 265, 266}));
  EXPECT_EQ(tokenizer->encode("h</s><tool>", {.add_special_tokens = false, .parse_special = false}),
            (std::vector<int>{'h', '<', '/', 's', '>', 266}));
}

TEST(Tokenizer, F15_AControlTokensTextNamesItsId) {
  const auto tokenizer = tiny_byte_level_tokenizer();
  ASSERT_EQ(tokenizer->token_id("</s>"), 265);
  EXPECT_TRUE(tokenizer->is_special(265));
  EXPECT_FALSE(tokenizer->is_special(266));
  EXPECT_FALSE(tokenizer->is_special(-1));
  EXPECT_FALSE(tokenizer->is_special(1 << 30));
  EXPECT_EQ(tokenizer->token_id("</t>"), std::nullopt);
  EXPECT_EQ(tokenizer->decode(std::vector<int>{'a', 265}), "a");
}

TEST(Tokenizer, ManyThreadsEncodeAtOnce) {
  const auto tokenizer = tiny_byte_level_tokenizer();
  std::vector<std::thread> threads;
  std::vector<int> wrong(8);
  for (size_t t = 0; t < wrong.size(); ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i)
        if (tokenizer->encode("hello w") != std::vector<int>{259, 260}) ++wrong[t];
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(8));
}

TEST_F(TokenizerFolder, F05_AddsBosOnce) {
  const JsonObject names = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  JsonObject adds = names;
  adds["add_bos_token"] = true;
  const auto tokenizer = load(adds);
  EXPECT_EQ(tokenizer->bos_id(), 264);
  EXPECT_EQ(tokenizer->bos_token(), "<s>");
  EXPECT_EQ(tokenizer->encode("h"), (std::vector<int>{264, 'h'}));
  // A rendered chat prompt brings its own BOS.
  EXPECT_EQ(tokenizer->encode("<s>h", kPlain), (std::vector<int>{264, 'h'}));
  EXPECT_EQ(load(names)->encode("h"), (std::vector<int>{'h'}));
  adds["add_bos_token"] = false;
  adds["add_eos_token"] = true;
  EXPECT_EQ(load(adds)->encode("h"), (std::vector<int>{'h', 265}));
}

TEST_F(TokenizerFolder, ConfigOverridesThePostProcessor) {
  const auto with = [&](JsonObject config) {  // its own post-processor adds <s>
    config["bos_token"] = "<s>";
    return load(config, tiny_sentencepiece_json())->encode(".");
  };
  const std::vector<int> plain = with({{"add_bos_token", false}});
  const std::vector<int> with_bos = with({});
  EXPECT_EQ(with_bos.front(), 1);
  EXPECT_EQ(std::vector<int>(with_bos.begin() + 1, with_bos.end()), plain);
  EXPECT_EQ(with({{"add_bos_token", true}}), with_bos);  // not twice
  EXPECT_EQ(with({{"tokenizer_class", "LlamaTokenizerFast"}}), with_bos);
}

TEST_F(TokenizerFolder, LlamaClassesAddBosByDefault) {
  const JsonObject config = {{"bos_token", "<s>"}, {"tokenizer_class", "LlamaTokenizer"}};
  EXPECT_EQ(load(config)->encode("h"), (std::vector<int>{264, 'h'}));
}

TEST_F(TokenizerFolder, SpecialTokensAsObjectsAndInTheMap) {
  write(
      "special_tokens_map.json",
      R"({"bos_token": "<tool>", "eos_token": {"content": "</s>", "lstrip": false}, "pad_token": "[PAD]"})");
  const auto tokenizer = load(JsonObject{{"bos_token", JsonObject{{"content", "<s>"}}}});
  EXPECT_EQ(tokenizer->bos_token(), "<s>");  // the config wins
  EXPECT_EQ(tokenizer->eos_id(), 265);
  EXPECT_EQ(tokenizer->end_ids(), std::vector<int>{265});
  EXPECT_EQ(tokenizer->token_id("[PAD]"), 267);  // added at the end
  EXPECT_TRUE(tokenizer->is_special(267));
}

TEST_F(TokenizerFolder, AddedTokensDecoderAddsAndChangesTokens) {
  const auto tokenizer = load(JsonObject{
      {"added_tokens_decoder",
       JsonObject{{"300", JsonObject{{"content", "<new>"}, {"special", true}}},
                  {"266", JsonObject{{"content", "<tool>"}, {"rstrip", true}, {"special", false}}}}}});
  EXPECT_EQ(tokenizer->encode("<tool>  h<new>", kPlain), (std::vector<int>{266, 'h', 267}));
  EXPECT_TRUE(tokenizer->is_special(267));
}

TEST_F(TokenizerFolder, FindsTheChatTemplate) {
  EXPECT_EQ(load(JsonObject{{"chat_template", "A"}})->chat_template(), "A");
  const JsonArray named = {JsonObject{{"name", "rag"}, {"template", "R"}},
                           JsonObject{{"name", "default"}, {"template", "D"}}};
  EXPECT_EQ(load(JsonObject{{"chat_template", named}})->chat_template(), "D");
  EXPECT_EQ(load(JsonObject{})->chat_template(), "");
  write("chat_template.jinja", "J");
  EXPECT_EQ(load(JsonObject{{"chat_template", "A"}})->chat_template(), "J");
}

TEST_F(TokenizerFolder, NamesWhatIsMissing) {
  const std::string path = folder_.string();
  EXPECT_EQ(code_of([&] { Tokenizer::load(path); }, "neither tokenizer.json nor a .gguf"),
            ErrorCode::kNotFound);
  write("tokenizer.model", "x");
  EXPECT_EQ(code_of([&] { Tokenizer::load(path); }, "tokenizer.model: not a SentencePiece model"),
            ErrorCode::kInvalidData);
  write("a.gguf", "x");
  EXPECT_EQ(code_of([&] { Tokenizer::load(path); }, "a.gguf"), ErrorCode::kInvalidData);
  write("b.gguf", "x");
  EXPECT_EQ(code_of([&] { Tokenizer::load(path); }, "several GGUF models"), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { Tokenizer::load(path + "/none"); }, "does not exist"), ErrorCode::kNotFound);
  write("c.txt", "x");
  EXPECT_EQ(code_of([&] { Tokenizer::load(path + "/c.txt"); }, "neither a folder"), ErrorCode::kUnsupported);
}

TEST_F(TokenizerFolder, RefusesABadConfig) {
  const auto refuse = [&](const Json& config, const std::string& message) {
    EXPECT_EQ(code_of([&] { load(config); }, message), ErrorCode::kInvalidData);
  };
  refuse(JsonArray{}, "expected an object");
  refuse(JsonObject{{"add_bos_token", "yes"}}, "\"add_bos_token\" is \"yes\", expected a boolean");
  refuse(JsonObject{{"bos_token", 1}}, "bos_token is an integer");
  refuse(JsonObject{{"added_tokens_decoder", JsonObject{{"x", JsonObject()}}}}, "token ids as keys");
  refuse(JsonObject{{"chat_template", 7}}, "chat_template");
}

// The smallest tokenizer.json, with one part replaced.
std::string json_with(const std::string& key, const std::string& value) {
  JsonObject root = {
      {"model",
       JsonObject{{"type", "BPE"}, {"vocab", JsonObject{{"a", 0}, {"b", 1}}}, {"merges", JsonArray{}}}}};
  root[key] = parse_json(value, "test");
  return to_json_text(root);
}

TEST(TokenizerJson, RefusesModelsAndPartsByName) {
  const auto refuse = [](const std::string& key, const std::string& value, const std::string& message) {
    EXPECT_EQ(code_of([&] { tokenizer_from_json(json_with(key, value)); }, message), ErrorCode::kUnsupported);
  };
  refuse("model", R"({"type": "Magic"})", "model: tokenizer model \"Magic\"");
  refuse("normalizer", R"({"type": "Sequence", "normalizers": [{"type": "Magic"}]})",
         "normalizer: [0]: normalizer \"Magic\"");
  refuse("pre_tokenizer", R"({"type": "Magic"})", "pre-tokenizer \"Magic\"");
  refuse("post_processor", R"({"type": "Magic"})", "post-processor \"Magic\"");
  refuse("decoder", R"({"type": "Magic"})", "decoder \"Magic\"");
  refuse("post_processor", R"({"type": "Sequence", "processors": [{"type": "TemplateProcessing",
           "single": [{"SpecialToken": {"id": "a"}}, {"Sequence": {"id": "A"}}],
           "special_tokens": {"a": {"ids": [0]}}}, {"type": "ByteLevel"},
           {"type": "BertProcessing", "sep": ["b", 1], "cls": ["a", 0]}]})",
         "post_processor: [2]: post-processor \"BertProcessing\" after a TemplateProcessing");
}

TEST(TokenizerJson, KnowsFourModels) {
  const auto encode = [](const std::string& model, const std::string& text) {
    return tokenizer_from_json(json_with("model", model))->encode(text);
  };
  const std::string scores = R"("vocab": [["?", 0.0], ["a", -1.0], ["ab", -1.5]], "unk_id": 0})";
  EXPECT_EQ(encode(R"({"type": "Unigram", )" + scores, "aabc"), (std::vector<int>{1, 2, 0}));
  EXPECT_EQ(encode("{" + scores, "aabc"), (std::vector<int>{1, 2, 0}));  // old files do not name it
  const std::string words = R"("vocab": {"?": 0, "ab": 1, "##c": 2}, "unk_token": "?"})";
  EXPECT_EQ(encode(R"({"type": "WordPiece", )" + words, "abcc"), (std::vector<int>{1, 2, 2}));
  EXPECT_EQ(encode(R"({"type": "WordPiece", "max_input_chars_per_word": 3, )" + words, "abcc"),
            std::vector<int>{0});
  EXPECT_EQ(encode(R"({"type": "WordPiece", )" + words, "abcd"), std::vector<int>{0});
  EXPECT_EQ(encode(R"({"type": "WordLevel", )" + words, "ab"), std::vector<int>{1});
  EXPECT_EQ(encode(R"({"type": "WordLevel", )" + words, "abc"), std::vector<int>{0});
  // Without a token for unknown words there is no answer, as in the library.
  EXPECT_EQ(code_of([&] { encode(R"({"type": "WordLevel", "vocab": {"a": 0}})", "b"); }, "\"b\" is not in"),
            ErrorCode::kInvalidData);
}

// "first": the prefix goes where the input begins, and nowhere when a normalizer has dropped that beginning.
TEST(TokenizerJson, TheFirstPrefixNeedsTheBeginningOfTheInput) {
  const auto encode = [](const std::string& normalizer, const std::string& text) {
    JsonObject root =
        parse_json(json_with("pre_tokenizer", R"({"type": "Metaspace", "prepend_scheme": "first"})"), "test")
            .as_object();
    root["normalizer"] = parse_json(normalizer, "test");
    root["model"] = JsonObject{
        {"type", "WordLevel"}, {"vocab", JsonObject{{"a", 0}, {"\u2581a", 1}}}, {"unk_token", "a"}};
    return tokenizer_from_json(to_json_text(root))->encode(text);
  };
  EXPECT_EQ(encode(R"({"type": "Strip"})", "a"), std::vector<int>{1});
  EXPECT_EQ(encode(R"({"type": "Strip"})", " a "), std::vector<int>{0});
  EXPECT_EQ(encode(R"({"type": "Nmt"})",
                   "\x11\x01"
                   "a\x11"),
            std::vector<int>{0});
  EXPECT_EQ(encode(R"({"type": "StripAccents"})", "a\u0301"), std::vector<int>{1});
  const std::string replace = R"({"type": "Replace", "content": "a", "pattern": {"Regex": "b+"}})";
  EXPECT_EQ(encode(replace, "b"), std::vector<int>{1});
  EXPECT_EQ(encode(replace, "bb"), std::vector<int>{0});
  EXPECT_EQ(encode(R"({"type": "Sequence", "normalizers": [{"type": "Strip"}, {"type": "NFC"}]})", " a"),
            std::vector<int>{0});
}

TEST(TokenizerJson, RefusesBrokenFiles) {
  const auto refuse = [](const std::string& key, const std::string& value, const std::string& message) {
    EXPECT_EQ(code_of([&] { tokenizer_from_json(json_with(key, value)); }, message), ErrorCode::kInvalidData);
  };
  const auto bpe = [](const std::string& rest) { return R"({"type": "BPE", )" + rest + "}"; };
  refuse("model", bpe(R"("merges": [])"), "\"vocab\" is missing");
  refuse("model", bpe(R"("vocab": {"a": -1}, "merges": [])"), "the id of \"a\" is -1");
  refuse("model", bpe(R"("vocab": {"a": 2000000000}, "merges": [])"), "the id of \"a\" is 2000000000");
  refuse("model", bpe(R"("vocab": {"a": 0, "b": 0}, "merges": [])"), "have the same id 0");
  refuse("model", bpe(R"("vocab": {"a": 0}, "merges": ["a"])"), "merges[0]");
  refuse("model", bpe(R"("vocab": {"a": 0}, "merges": [["a", "a", "a"]])"), "merges[0]");
  refuse("model", bpe(R"("vocab": {"a": 0}, "merges": ["a a"])"), "needs the token \"aa\"");
  refuse("model", R"({"type": "Unigram", "vocab": [["a"]]})", "\"vocab[0]\" is [\"a\"]");
  refuse("model", R"({"type": "Unigram", "vocab": [["a", 0]], "unk_id": 1})", "\"unk_id\" is 1");
  refuse("normalizer", R"({"type": "Precompiled", "precompiled_charsmap": "*"})", "expected base64");
  refuse("normalizer", R"({"type": "Precompiled", "precompiled_charsmap": "AAAA"})",
         "character map has 3 bytes");
  refuse("pre_tokenizer", R"({"type": "FixedLength", "length": 0})", "\"length\" is 0");
  refuse("pre_tokenizer", R"({"type": "CharDelimiterSplit", "delimiter": "--"})", "one character");
  refuse("pre_tokenizer", R"({"type": "Split", "pattern": {"Regex": "("}})", "regular expression");
  refuse("pre_tokenizer", R"({"type": "Split", "pattern": {}})", "neither \"String\" nor \"Regex\"");
  refuse("pre_tokenizer", R"({"type": "Split", "pattern": {"String": " "}, "behavior": "Odd"})", "behavior");
  refuse("post_processor", R"({"type": "TemplateProcessing", "single": []})", "single");
  refuse("added_tokens", R"([{"id": 5}])", "added_tokens[0]: \"content\" is missing");
  EXPECT_EQ(code_of([] { tokenizer_from_json("{"); }, "not valid JSON"), ErrorCode::kInvalidData);
  EXPECT_EQ(code_of([] { tokenizer_from_json("[]"); }, "expected an object"), ErrorCode::kInvalidData);
}

// The id in the file gives way to the vocabulary's, or to the next free one counted from the vocabulary's
// size.
TEST(TokenizerJson, AddedTokensGetTheIdsOfTheLibrary) {
  const auto tokenizer = tokenizer_from_json(
      json_with("added_tokens", R"([{"id": 77, "content": "<x>", "special": true}, {"id": 9, "content": "b"},
                                    {"id": 78, "content": "<y>"}])"));
  EXPECT_EQ(tokenizer->token_id("<x>"), 2);
  EXPECT_EQ(tokenizer->token_id("b"), 1);
  EXPECT_EQ(tokenizer->token_id("<y>"), 3);
  EXPECT_EQ(tokenizer->vocab_size(), 4);
  // Gaps do not count: the new ids are the numbers of tokens before.
  JsonObject root = parse_json(json_with("added_tokens", R"([{"content": "b"}, {"content": "<x>"},
                                                             {"content": "<y>"}])"),
                               "test")
                        .as_object();
  root["model"].as_object()["vocab"] = JsonObject{{"a", 0}, {"b", 5}};
  const auto with_gaps = tokenizer_from_json(to_json_text(root));
  EXPECT_EQ(with_gaps->encode("b<x><y>"), (std::vector<int>{5, 2, 3}));
}

// White space that a token has taken in is not found again: the next one is left out when nothing remains of
// it.
TEST(TokenizerJson, AddedTokensShareNoWhiteSpace) {
  const auto encode = [](const std::string& flags, const std::string& text) {
    const std::string token = R"({"id": 2, "content": "  ", "special": true)" + flags + "}";
    return tokenizer_from_json(json_with("added_tokens", "[" + token + "]"))->encode(text);
  };
  EXPECT_EQ(encode("", "a    b"), (std::vector<int>{0, 2, 2, 1}));
  EXPECT_EQ(encode(R"(, "lstrip": true, "rstrip": true)", "a    b"), (std::vector<int>{0, 2, 1}));
  EXPECT_EQ(encode(R"(, "rstrip": true)", "a    b"),
            (std::vector<int>{0, 2, 2, 1}));  // as the library has it
}

}  // namespace
}  // namespace lmdeploy
