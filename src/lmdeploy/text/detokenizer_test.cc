// Streamed decoding: whole characters only, and joined the same text as decode().
#include <gtest/gtest.h>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/random.h"
#include "lmdeploy/core/utf8.h"
#include "lmdeploy/text/golden/test_data.h"

namespace lmdeploy {
namespace {

using Strings = std::vector<std::string>;

std::vector<int> ids_of(const std::shared_ptr<const Tokenizer>& tokenizer, const Strings& tokens) {
  std::vector<int> ids;
  for (const std::string& token : tokens) {
    const auto id = tokenizer->token_id(token);
    EXPECT_TRUE(id.has_value()) << token;
    ids.push_back(id.value_or(-1));
  }
  return ids;
}

// Not the vocabulary's spelling: that has a letter for the space and for each byte.
TEST(Detokenizer, F23_ATokenIsRealTextAndTrueBytes) {
  const auto tokenizer = tiny_byte_level_tokenizer();
  const std::vector<int> ids = ids_of(tokenizer, {"\u0120ok", "\u00E9\u00B2"});
  EXPECT_EQ(tokenizer->decode({&ids[0], 1}), " ok");
  EXPECT_EQ(tokenizer->token_bytes(ids[0]), " ok");
  EXPECT_EQ(tokenizer->decode({&ids[1], 1}), "\uFFFD");
  EXPECT_EQ(tokenizer->token_bytes(ids[1]), "\xE9\xB2");
}

TEST(Detokenizer, F01_NeverCutsACharacter) {
  const auto tokenizer = tiny_byte_level_tokenizer();
  const std::vector<int> ids = ids_of(tokenizer, {"\u00E9\u00B2", "\u00B8", "\u0120ok"});
  EXPECT_EQ(tokenizer->token_bytes(ids[0]), "\xE9\xB2");
  Detokenizer detokenizer(tokenizer, true);
  EXPECT_EQ(detokenizer.push({&ids[0], 1}), "");
  EXPECT_EQ(detokenizer.push({&ids[1], 1}), "\u9CB8");
  EXPECT_EQ(detokenizer.push({&ids[2], 1}), " ok");
  EXPECT_EQ(detokenizer.finish(), "");
  EXPECT_EQ(tokenizer->decode(ids), "\u9CB8 ok");
}

TEST(Detokenizer, F02_EndsInTheMiddleOfACharacter) {
  const auto tokenizer = tiny_byte_level_tokenizer();
  const std::vector<int> ids = {'h', 0xF0, 0x9F};
  EXPECT_EQ(stream_pieces(tokenizer, ids, true), (Strings{"h", "\uFFFD"}));
  EXPECT_EQ(tokenizer->decode(ids), "h\uFFFD");
}

TEST(Detokenizer, F03_KeepsSentencePieceSpaces) {
  const auto tokenizer = tiny_sentencepiece_tokenizer();
  const std::vector<int> ids =
      ids_of(tokenizer, {"\u2581Daily", "\u2581news", "\u2581at", "\u2581nine", "."});
  EXPECT_EQ(stream_pieces(tokenizer, ids, true), (Strings{"Daily", " news", " at", " nine", "."}));
  EXPECT_EQ(tokenizer->decode(ids), "Daily news at nine.");
  EXPECT_EQ(tokenizer->encode("Daily news at nine.", {.add_special_tokens = false}), ids);
}

std::shared_ptr<const Tokenizer> with_clean_up(bool clean_up) {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / cat("clean_up_", clean_up ? "on" : "off");
  write_tokenizer_folder(folder, tiny_byte_level_json(),
                         JsonObject{{"clean_up_tokenization_spaces", clean_up}});
  return Tokenizer::load(folder.string());
}

TEST(Detokenizer, F04_KeepsLettersAfterAnApostrophe) {
  const std::string text = "say ( 's ) or ( 'v ) , it is n't .";
  for (const bool clean_up : {false, true}) {
    const auto tokenizer = with_clean_up(clean_up);
    const std::vector<int> ids = tokenizer->encode(text);
    EXPECT_EQ(tokenizer->decode(ids), clean_up ? "say ('s ) or ( 'v ), it isn't." : text);
    EXPECT_EQ(stream_decode(tokenizer, ids, true), tokenizer->decode(ids));
  }
}

TEST(Detokenizer, F06_HidesSpecialTokensOnly) {
  const auto tokenizer = tiny_byte_level_tokenizer();
  const std::vector<int> ids = ids_of(tokenizer, {"<s>", "h", "i", "<tool>", "\u0120", "t", "</s>"});
  EXPECT_EQ(tokenizer->decode(ids, true), "hi<tool> t");
  EXPECT_EQ(tokenizer->decode(ids, false), "<s>hi<tool> t</s>");
  for (const bool skip : {false, true})
    EXPECT_EQ(stream_decode(tokenizer, ids, skip), tokenizer->decode(ids, skip));
}

TEST(Detokenizer, F21_APieceForEachToken) {
  const auto tokenizer = tiny_byte_level_tokenizer();
  const std::vector<int> ids =
      ids_of(tokenizer, {"h", "\u00E9\u00B2", "\u00B8", "</s>", "\u0120ok", "\u00E9\u00B2"});
  EXPECT_EQ(tokenizer->decode_pieces(ids), (Strings{"h", "", "\u9CB8", "", " ok", "\uFFFD"}));
  EXPECT_EQ(tokenizer->decode_pieces({}), Strings{});
}

// A run of byte tokens is one text or, if any byte is wrong, one U+FFFD a byte: it is only certain at its
// end.
TEST(Detokenizer, HoldsARunOfByteTokens) {
  const auto tokenizer = tiny_sentencepiece_tokenizer();
  const Strings character = {"<0xE4>", "<0xB8>", "<0xAD>"};
  EXPECT_EQ(stream_pieces(tokenizer, ids_of(tokenizer, character), true), (Strings{"\u4E2D"}));
  EXPECT_EQ(tokenizer->decode(ids_of(tokenizer, {"<0xE4>", "<0xB8>", "<0xAD>", "<0xFF>", "."})),
            "\uFFFD\uFFFD\uFFFD\uFFFD.");
  const std::vector<int> ids = ids_of(tokenizer, {"<0xE4>", "<0xB8>", "<0xAD>", "a"});
  EXPECT_EQ(stream_pieces(tokenizer, ids, true), (Strings{"\u4E2Da"}));
}

TEST(Detokenizer, EqualsDecodeForRandomIds) {
  const std::shared_ptr<const Tokenizer> tokenizers[] = {tiny_byte_level_tokenizer(),
                                                         tiny_sentencepiece_tokenizer(), with_clean_up(true)};
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    Rng rng(seed);
    const auto& tokenizer = tokenizers[seed % 3];
    std::vector<int> ids;
    for (uint64_t count = rng.below(20); count > 0; --count)
      ids.push_back(static_cast<int>(rng.below(static_cast<uint64_t>(tokenizer->vocab_size()) + 4)) - 2);
    const bool skip = rng.below(2) == 0;
    Detokenizer detokenizer(tokenizer, skip);
    std::string joined;
    for (size_t at = 0; at < ids.size();) {
      const size_t count = std::min<size_t>(ids.size() - at, 1 + rng.below(3));
      const std::string piece = detokenizer.push(std::span(ids).subspan(at, count));
      EXPECT_TRUE(is_utf8(piece));
      joined += piece;
      at += count;
    }
    joined += detokenizer.finish();
    EXPECT_EQ(joined, tokenizer->decode(ids, skip)) << "seed " << seed;
    std::string rebuilt;
    for (const std::string& piece : tokenizer->decode_pieces(ids, skip)) rebuilt += piece;
    EXPECT_EQ(rebuilt, joined) << "seed " << seed;
  }
}

// The stream that a Tokenizer gets without writing its own.
class PlainTokenizer : public Tokenizer {
 public:
  std::vector<int> encode(std::string_view, const EncodeOptions&) const override { return {}; }
  std::string decode(std::span<const int>, bool) const override { return {}; }
  int vocab_size() const override { return 3; }
  std::string_view token_text(int id) const override { return id == 2 ? "<end>" : ""; }
  std::string token_bytes(int id) const override { return id == 0 ? "\xC3" : id == 1 ? "\xA9!" : ""; }
  std::optional<int> token_id(std::string_view) const override { return std::nullopt; }
  bool is_special(int id) const override { return id == 2; }
  std::optional<int> bos_id() const override { return std::nullopt; }
  std::optional<int> eos_id() const override { return std::nullopt; }
  std::vector<int> end_ids() const override { return {}; }
  std::string bos_token() const override { return {}; }
  std::string eos_token() const override { return {}; }
  std::string chat_template() const override { return {}; }
};

TEST(Detokenizer, JoinsBytesByDefault) {
  const auto tokenizer = std::make_shared<PlainTokenizer>();
  EXPECT_EQ(stream_pieces(tokenizer, {0, 1, 2, 7}, true), (Strings{"\u00E9!"}));
  EXPECT_EQ(stream_decode(tokenizer, {0, 1, 2, 0}, false), "\u00E9!<end>\uFFFD");
}

}  // namespace
}  // namespace lmdeploy
