// SentencePiece models written here: errors of the file, white space rules, and folders.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <limits>

#include "lmdeploy/core/error.h"
#include "lmdeploy/text/files/sentencepiece_file.h"
#include "lmdeploy/text/files/sentencepiece_tokenizer.h"
#include "lmdeploy/text/golden/test_data.h"
#include "lmdeploy/text/model/byte_fallback.h"

namespace lmdeploy {
namespace {

namespace fs = std::filesystem;
using namespace std::string_view_literals;
using Type = SentencePiece::Type;
constexpr EncodeOptions kPlain = {.add_special_tokens = false};

// Protocol buffer fields.
std::string varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  return out + static_cast<char>(value);
}
std::string field(int number, std::string_view bytes) {
  return varint(static_cast<uint64_t>(number) << 3 | 2) + varint(bytes.size()) + std::string(bytes);
}
std::string field(int number, int value) {
  return varint(static_cast<uint64_t>(number) << 3) + varint(static_cast<uint64_t>(int64_t{value}));
}
std::string field(int number, float value) {
  std::string bytes(4, '\0');
  std::memcpy(bytes.data(), &value, 4);
  return varint(static_cast<uint64_t>(number) << 3 | 5) + bytes;
}
std::string piece(std::string_view text, float score, Type type = Type::kNormal) {
  return field(1, field(1, text) + field(2, score) + field(3, static_cast<int>(type)));
}

const std::string kSpecial =
    piece("<unk>", 0, Type::kUnknown) + piece("<s>", 0, Type::kControl) + piece("</s>", 0, Type::kControl);
// ids: 3 "▁", 4 "a", 5 "b", 6 "▁a", 7 "ab"
const std::string kPieces = kSpecial + piece("\u2581", -2) + piece("a", -3) + piece("b", -4) +
                            piece("\u2581a", -1) + piece("ab", -5) + piece("<u>", 0, Type::kUserDefined);
constexpr int kBpe = 2, kWord = 3;

std::string model(int type, const std::string& trainer = "", const std::string& normalizer = "") {
  return kPieces + field(2, field(3, type) + trainer) + field(3, normalizer);
}

std::shared_ptr<const Tokenizer> load(const std::string& bytes,
                                      SentencePieceUse use = SentencePieceUse::kFile) {
  return std::make_shared<ComposedTokenizer>(read_sentencepiece_tokenizer(bytes, "x.model", use));
}

std::string error_of(const std::string& bytes) {
  try {
    read_sentencepiece_file(bytes, "x.model");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(SentencePieceFile, NamesWhatIsWrong) {
  const auto expect = [](const std::string& bytes, const std::string& part) {
    EXPECT_NE(error_of(bytes).find(part), std::string::npos) << error_of(bytes) << " lacks " << part;
    EXPECT_EQ(error_of(bytes).find("x.model"), 0u) << error_of(bytes);
  };
  expect("", "found 0 pieces");
  expect("\x0A\xFF\xFF\xFF\xFF\x0F", "4294967295 bytes, but 0 are left");
  expect("\x0A", "says 1 bytes, but 0 are left");
  expect("\x0B", "wire type 3");
  expect(std::string(11, '\xFF'), "more than ten bytes");
  expect(piece("a", 0), "no piece is of type UNKNOWN");
  expect(kSpecial + piece("?", 0, Type::kUnknown), "pieces 0 and 3 are both of type UNKNOWN");
  expect(kSpecial + piece("", 0), "piece 3 is empty");
  expect(kSpecial + piece("<s>", 0), "piece 3, \"<s>\", is there twice");
  expect(kSpecial + piece("\xFF", 0), "not UTF-8");
  expect(kSpecial + piece("a", -std::numeric_limits<float>::infinity()), "score of piece 3 is not finite");
  expect(kSpecial + piece("a", 0, static_cast<Type>(7)), "piece 3 has type 7");
  expect(kSpecial + field(1, field(1, 5)), "wire type 0, expected 2");
  expect(kSpecial + field(2, field(3, 9)), "model_type is 9");
  expect(kSpecial + field(5, field(2, "map")), "denormalizer_spec");
  expect(kSpecial + piece("a", 0, Type::kUnused) + field(2, field(3, kBpe)), "piece 3, \"a\", is UNUSED");
}

TEST(SentencePieceFile, EachCutIsRefusedOrRead) {
  const std::string bytes = model(kBpe);
  for (size_t size = 0; size < bytes.size(); ++size) error_of(bytes.substr(0, size));  // without a crash
  EXPECT_EQ(error_of(bytes), "no error");
}

TEST(SentencePieceFile, BrokenCharacterMapsAreErrors) {
  for (const std::string_view map :
       {"abc"sv, "\xFF\xFF\xFF\x7F...."sv, "\x05\0\0\0....."sv, "\0\0\0\0"sv, "\x04\0\0\0....\xFF"sv})
    EXPECT_THROW(load(model(kBpe, "", field(2, map))), Error);
}

TEST(SentencePiece, WhiteSpaceFollowsTheOptions) {
  const std::string text = " a  a ";
  const auto ids = [&](const std::string& normalizer) {
    return load(model(kBpe, "", normalizer))->encode(text, kPlain);
  };
  EXPECT_EQ(ids(""), (std::vector<int>{6, 6}));
  EXPECT_EQ(ids(field(4, 0)), (std::vector<int>{3, 6, 3, 6, 3}));
  EXPECT_EQ(ids(field(3, 0) + field(4, 0)), (std::vector<int>{6, 3, 6, 3}));
  EXPECT_EQ(load(model(kWord, field(24, 1)))->encode("a", kPlain), std::vector<int>{0});  // "a▁"
}

TEST(SentencePiece, AFileByItselfTakesControlTextAsText) {
  const auto tokenizer = load(model(kBpe));
  EXPECT_EQ(tokenizer->encode("a<s>", kPlain), (std::vector<int>{6, 0}));
  EXPECT_EQ(tokenizer->encode("a<s>", {.add_special_tokens = false, .parse_special = true}),
            (std::vector<int>{6, 1}));
  EXPECT_EQ(tokenizer->encode("a<u>a", kPlain), (std::vector<int>{6, 8, 4}));
  EXPECT_EQ(tokenizer->encode("a"), (std::vector<int>{1, 6}));
  EXPECT_EQ(tokenizer->bos_id(), 1);
  EXPECT_EQ(tokenizer->eos_token(), "</s>");
  const std::vector<int> all = {1, 6, 6, 0, 7, 2};
  EXPECT_EQ(tokenizer->decode(all), "a a \u2047 ab");
  EXPECT_EQ(tokenizer->decode(all, /*skip_special_tokens=*/false), "<s> a a \u2047 ab</s>");
}

TEST(SentencePiece, BytesBecomeCharactersOrReplacements) {
  std::string pieces = kSpecial;
  for (int byte = 0; byte < 256; ++byte) pieces += piece(fallback_spelling(byte), 0, Type::kByte);
  const auto tokenizer = load(pieces + field(2, field(3, kBpe)));
  const auto id = [](int byte) { return 3 + byte; };
  EXPECT_EQ(tokenizer->encode("\u00E9", kPlain),
            (std::vector<int>{id(0xE2), id(0x96), id(0x81), id(0xC3), id(0xA9)}));
  const std::vector<int> ids = {id(0xC3), id(0xA9), id(0xE2), id(0x96), id('x'), id(0xFF), id(0xC3)};
  const std::string want = "\u00E9\uFFFD\uFFFDx\uFFFD\uFFFD";
  EXPECT_EQ(tokenizer->decode(ids), want);
  EXPECT_EQ(stream_decode(tokenizer, ids, true), want);
  EXPECT_EQ(stream_pieces(tokenizer, ids, true).front(), "\u00E9");  // not held until the run ends
}

class SentencePieceFolder : public testing::Test {
 protected:
  SentencePieceFolder() { fs::create_directories(folder_); }
  ~SentencePieceFolder() override { fs::remove_all(folder_); }
  std::shared_ptr<const Tokenizer> load(std::string_view config) {
    std::ofstream(folder_ / "tokenizer.model", std::ios::binary) << model(kBpe, "", field(4, 0));
    std::ofstream(folder_ / "tokenizer_config.json") << config;
    return Tokenizer::load(folder_.string());
  }
  fs::path folder_ = fs::path(testing::TempDir()) / "sentencepiece_folder";
};

TEST_F(SentencePieceFolder, ThePrefixSpaceIsLegacyUnlessSaidOtherwise) {
  EXPECT_EQ(load("{}")->encode("a<s>a", kPlain), (std::vector<int>{6, 1, 6}));
  EXPECT_EQ(load(R"({"legacy": true})")->encode("a<s>a", kPlain), (std::vector<int>{6, 1, 6}));
  EXPECT_EQ(load(R"({"legacy": false})")->encode("a<s>a", kPlain), (std::vector<int>{6, 1, 4}));
}

// added_tokens.json, as a slow tokenizer of transformers writes it: its ids count, gaps included.
TEST_F(SentencePieceFolder, AddedTokensKeepTheirIds) {
  const auto write = [&](const char* name, std::string_view text) { std::ofstream(folder_ / name) << text; };
  write("added_tokens.json", R"({"<tool>": 20, "<|end|>": 12, "ab": 15})");
  write("special_tokens_map.json", R"({"eos_token": {"content": "<|end|>"}, "pad_token": "<pad>"})");
  const auto tokenizer = load(R"({"legacy": false, "bos_token": "<s>"})");
  EXPECT_EQ(tokenizer->encode("a<tool>a<|end|> ab<pad>"),
            (std::vector<int>{1, 6, 20, 4, 12, 3, 15, *tokenizer->token_id("<pad>")}));
  EXPECT_EQ(tokenizer->token_id("<pad>"), 11);  // nine pieces, <tool> and <|end|> come first
  EXPECT_EQ(tokenizer->decode(std::vector<int>{6, 20, 12, 15}), "a<tool>ab");
  EXPECT_EQ(tokenizer->eos_id(), 12);
  EXPECT_FALSE(tokenizer->is_special(20));
  EXPECT_TRUE(tokenizer->is_special(12));
  // As in transformers, the file counts only where tokenizer_config.json does not list the tokens itself.
  EXPECT_EQ(load(R"({"added_tokens_decoder": {"30": {"content": "<x>", "normalized": true}}})")
                ->encode("<x>", kPlain),
            std::vector<int>{30});
  EXPECT_EQ(load(R"({"added_tokens_decoder": {}})")->token_id("<tool>"), std::nullopt);
  write("added_tokens.json", R"({"<tool>": -1})");
  EXPECT_NE(lmdeploy::error_of([&] { load("{}"); }, ErrorCode::kInvalidData).find("\"<tool>\" is -1"),
            std::string::npos);
}

TEST_F(SentencePieceFolder, ConfigDecidesAboutBos) {
  EXPECT_EQ(load("{}")->encode("a"), (std::vector<int>{1, 6}));
  EXPECT_EQ(load(R"({"add_bos_token": false, "add_eos_token": true})")->encode("a"),
            (std::vector<int>{6, 2}));
  EXPECT_EQ(load("{}")->decode(std::vector<int>{1, 6, 0, 7, 2}), "aab");
}

}  // namespace
}  // namespace lmdeploy
