// Normal forms, classes, lower case, and the characters that Unicode 15 and 16 added.
#include "lmdeploy/text/unicode/unicode.h"

#include <gtest/gtest.h>

#include "lmdeploy/core/utf8.h"
#include "lmdeploy/text/steps/byte_level.h"
#include "lmdeploy/text/unicode/unicode_additions.h"

namespace lmdeploy {
namespace {

TEST(Unicode, NormalForms) {
  EXPECT_EQ(normalize_unicode("plain", NormalForm::kNfkd), "plain");
  EXPECT_EQ(normalize_unicode("e\u0301", NormalForm::kNfc), "\u00E9");
  EXPECT_EQ(normalize_unicode("\u00E9", NormalForm::kNfd), "e\u0301");
  EXPECT_EQ(normalize_unicode("\uFB01\u00B2", NormalForm::kNfkc), "fi2");
  EXPECT_EQ(normalize_unicode("\u1100\u1161\u11A8", NormalForm::kNfc), "\uAC01");  // Hangul
  EXPECT_EQ(normalize_unicode("a\u0323\u0307", NormalForm::kNfc), "\u1EA1\u0307");
  EXPECT_EQ(normalize_unicode(std::string_view("a\0\u0301", 4), NormalForm::kNfc),
            std::string("a\0\u0301", 4));
  EXPECT_EQ(normalize_unicode("\u4E2D\u3042\uAC00\u0416", NormalForm::kNfc), "\u4E2D\u3042\uAC00\u0416");
}

// Characters newer than Unicode 9 neither change nor let their neighbours meet; U+11A7 is no final consonant.
TEST(Unicode, NormalFormsAreThoseOfUnicode9) {
  for (const char* text : {"\u32FF", "\U0001FBF4", "\U0001E035", "\U00011938", "\U0001FBF0"})
    for (const NormalForm form : {NormalForm::kNfc, NormalForm::kNfd, NormalForm::kNfkc, NormalForm::kNfkd})
      EXPECT_EQ(normalize_unicode(text, form), text);
  EXPECT_EQ(normalize_unicode("\u1ABB\u1AC4", NormalForm::kNfc), "\u1ABB\u1AC4");  // not put into order
  EXPECT_EQ(normalize_unicode("e\u1ABF\u0301", NormalForm::kNfc), "e\u1ABF\u0301");
  EXPECT_EQ(normalize_unicode("\uFB01\u1ABF\u00B2", NormalForm::kNfkc), "fi\u1ABF2");
  EXPECT_EQ(normalize_unicode("\u1106\u116F\u11A7", NormalForm::kNfc), "\uBB50\u11A7");
}

// The blocks that NFC skips really do not change: whatever stands beside them.
TEST(Unicode, NfcSkipsOnlyWhatItMay) {
  for (char32_t code = 1; code < 0x20000; ++code) {
    if (code >= 0xD800 && code <= 0xDFFF) continue;
    std::string alone, after_letter;
    append_utf8(alone, code);
    after_letter = "a" + alone;
    const std::string nfd = normalize_unicode(alone, NormalForm::kNfd);
    const std::string nfc = normalize_unicode(alone, NormalForm::kNfc);
    EXPECT_EQ(normalize_unicode(nfd, NormalForm::kNfc), nfc)
        << "U+" << std::hex << static_cast<uint32_t>(code);
    EXPECT_EQ(normalize_unicode(normalize_unicode(after_letter, NormalForm::kNfd), NormalForm::kNfc),
              normalize_unicode(after_letter, NormalForm::kNfc))
        << "U+" << std::hex << static_cast<uint32_t>(code);
  }
}

TEST(Unicode, Classes) {
  EXPECT_TRUE(is_white_space(0x85));
  EXPECT_TRUE(is_white_space(0x3000));
  EXPECT_FALSE(is_white_space(0x180E));
  EXPECT_FALSE(is_white_space(0x200B));
  EXPECT_TRUE(is_punctuation('$'));  // ASCII symbols count
  EXPECT_TRUE(is_punctuation(0x3002));
  EXPECT_FALSE(is_punctuation(0x20AC));  // a currency sign does not
  EXPECT_TRUE(is_numeric(0xBD));
  EXPECT_TRUE(is_numeric(0x2167));
  EXPECT_TRUE(is_mark(0x301));
  for (const char32_t code : {U'a', U'_', U'7', U'\u0301', U'\u24B6', U'\u200D'})
    EXPECT_TRUE(is_word_char(code));
  for (const char32_t code : {U'-', U' ', U'\u00BD', U'\u200B'}) EXPECT_FALSE(is_word_char(code));
}

// Each class has the tables of another version.
TEST(Unicode, ClassesAreAsOldAsTheLibrarysTables) {
  for (const char32_t code : {0x2E43, 0x1E95E, 0x1145B}) EXPECT_FALSE(is_punctuation(code));  // newer than 8
  for (const char32_t code : {0x166D, 0x111C9}) EXPECT_TRUE(is_punctuation(code));            // no longer
  for (const char32_t code : {0x8D4, 0x1885, 0xA9BD, 0x111C9}) EXPECT_FALSE(is_nonspacing_mark(code));
  for (const char32_t code : {0x1734, 0x1171E, 0x301}) EXPECT_TRUE(is_nonspacing_mark(code));
  for (const char32_t code : {0x7FD, 0x1AC1, 0x1E2EE, 0x111C9}) EXPECT_FALSE(is_mark(code));  // newer than 9
  for (const char32_t code : {0x8D4, 0x1885, 0x1CF2, 0x1171E}) EXPECT_TRUE(is_mark(code));
  EXPECT_FALSE(is_control(0x8E2));
  for (const char32_t code : {0x11DE0, 0x16FF4}) EXPECT_TRUE(is_numeric(code));  // Unicode 17
  std::string out;
  for (const char32_t code : {0xA7CE, 0x16EA0}) append_lower(out, code);
  EXPECT_EQ(out, "\uA7CF\U00016EBB");
}

TEST(Unicode, LowerCaseGoesCharacterByCharacter) {
  std::string out;
  for (const char32_t code : {U'A', U'\u0130', U'\u03A3', U'\uA7DA', U'\u4E2D'}) append_lower(out, code);
  EXPECT_EQ(out, "ai\u0307\u03C3\uA7DB\u4E2D");  // no final sigma
}

TEST(Unicode, WhiteSpaceAtTheEnds) {
  EXPECT_EQ(leading_white_space("\u3000 a"), 4u);
  EXPECT_EQ(trailing_white_space("a \u0085"), 3u);
  EXPECT_EQ(trailing_white_space(" \n"), 2u);
  EXPECT_EQ(leading_white_space(""), 0u);
}

TEST(UnicodeAdditions, TwinsHaveTheSameCategoryAndLength) {
  int additions = 0;
  for (char32_t code = 0; code < 0x110000; ++code) {
    const char32_t twin = older_twin(code);
    if (twin == code) continue;
    ++additions;
    EXPECT_EQ(older_twin(twin), twin);
    EXPECT_EQ(general_category(twin), general_category(code)) << std::hex << static_cast<uint32_t>(code);
    std::string text, twin_text;
    append_utf8(text, code);
    append_utf8(twin_text, twin);
    EXPECT_EQ(text.size(), twin_text.size());
    EXPECT_TRUE(holds_additions("a" + text));
    EXPECT_EQ(with_older_twins("a" + text), "a" + twin_text);
  }
  // Unicode 15.0, 15.1 and 16.0, and U+1171E, whose category changed.
  EXPECT_EQ(additions, 4489 + 627 + 5185 + 1);
  EXPECT_FALSE(holds_additions("a\u4E2D\U0001F600"));
}

TEST(ByteLevel, IsABijection) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  std::string spelled;
  append_byte_level(spelled, all);
  EXPECT_EQ(byte_level_bytes(spelled), all);
  EXPECT_EQ(byte_level_char(' '), U'\u0120');
  EXPECT_EQ(byte_level_char('\n'), U'\u010A');
  EXPECT_EQ(byte_level_char(0xAD), U'\u0143');
  EXPECT_EQ(byte_level_bytes("a b"), std::nullopt);
}

TEST(Unicode, MarksOfAnyVersionStayInTheGrapheme) {
  for (const char32_t mark : {0x301, 0x897, 0x1ACF, 0x1ADD, 0x1AE0, 0x10EFA, 0x113D0, 0x1612F, 0x1E6F5}) {
    std::string text = "L";
    append_utf8(text, mark);
    EXPECT_EQ(grapheme_cluster_size(text + "x"), text.size()) << static_cast<uint32_t>(mark);
  }
  for (const char32_t other : {0x41, 0x896, 0x1ADE, 0x113C1, 0x113D1, 0x16130, 0x1E6F6}) {
    std::string text = "L";
    append_utf8(text, other);
    EXPECT_EQ(grapheme_cluster_size(text), 1u) << static_cast<uint32_t>(other);
  }
  EXPECT_EQ(grapheme_cluster_size("\U000113D1L"), 5u);
  EXPECT_EQ(grapheme_cluster_size("\U00011A3AL"), 4u);
}

}  // namespace
}  // namespace lmdeploy
