// Repair of broken UTF-8, whole and in pieces.
#include "lmdeploy/core/utf8.h"

#include <gtest/gtest.h>

#include "lmdeploy/core/random.h"

namespace lmdeploy {
namespace {

TEST(Utf8, RepairsByMaximalSubparts) {
  EXPECT_EQ(repair_utf8("plain text"), "plain text");
  EXPECT_EQ(repair_utf8("\xF0\x9F"), "\uFFFD");  // one unfinished character
  EXPECT_EQ(repair_utf8("\xF0\x9F"
                        "a"),
            "\uFFFD"
            "a");
  EXPECT_EQ(repair_utf8("\xFF\xFE"), "\uFFFD\uFFFD");
  EXPECT_EQ(repair_utf8("\xE0\x80\x80"), "\uFFFD\uFFFD\uFFFD");  // overlong: no prefix of any character
  EXPECT_EQ(repair_utf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");  // a surrogate
  EXPECT_EQ(repair_utf8("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");  // past U+10FFFF
  EXPECT_EQ(repair_utf8("\xC3\xA9\xC3"), "\u00E9\uFFFD");
  // Unicode 15, table 3-8
  EXPECT_EQ(repair_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), "\uFFFD\uFFFD\uFFFD\uFFFD\x41");
}

TEST(Utf8, Checks) {
  EXPECT_TRUE(is_utf8("\xF4\x8F\xBF\xBF"));
  EXPECT_TRUE(is_utf8(std::string(20, 'a') + "\u9C78"));
  EXPECT_FALSE(is_utf8(std::string(20, 'a') + "\x80"));
  EXPECT_FALSE(is_utf8("\xC3"));
  EXPECT_TRUE(is_ascii("0123456789abcdef"));
  EXPECT_FALSE(is_ascii("0123456789\u00E9"));
}

TEST(Utf8, AppendAndDecodeAreInverse) {
  for (const char32_t code : {0x0u, 0x41u, 0x7Fu, 0x80u, 0x7FFu, 0x800u, 0xFFFFu, 0x10000u, 0x10FFFFu}) {
    std::string text;
    append_utf8(text, code);
    EXPECT_TRUE(is_utf8(text));
    EXPECT_EQ(decode_utf8(text, 0).code, code);
    EXPECT_EQ(decode_utf8(text, 0).size, text.size());
  }
}

TEST(Utf8Assembler, GivesWholeCharactersOnly) {
  Utf8Assembler assembler;
  std::string out;
  assembler.push("\xE9\xB2", out);
  EXPECT_EQ(out, "");
  assembler.push("\xB8", out);
  EXPECT_EQ(out, "\u9CB8");
  assembler.push("\xF0", out);
  assembler.finish(out);
  EXPECT_EQ(out, "\u9CB8\uFFFD");
}

TEST(Utf8Assembler, EqualsOneRepairForAnyPieces) {
  constexpr char kBytes[] = "a\x80\xBF\xC3\xA9\xE0\xED\x9F\xF0\xF4\xFF";
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    Rng rng(seed);
    Utf8Assembler assembler;
    std::string all, out;
    for (uint64_t pieces = rng.below(6); pieces > 0; --pieces) {
      std::string piece;
      for (uint64_t size = rng.below(5); size > 0; --size)
        piece.push_back(kBytes[rng.below(sizeof(kBytes) - 1)]);
      all += piece;
      assembler.push(piece, out);
      EXPECT_TRUE(is_utf8(out));
    }
    assembler.finish(out);
    EXPECT_EQ(out, repair_utf8(all)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace lmdeploy
