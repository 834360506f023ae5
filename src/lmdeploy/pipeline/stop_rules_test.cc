#include "lmdeploy/pipeline/stop_rules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "lmdeploy/pipeline/scripted_tokenizer.h"
#include "lmdeploy/text/chat/chat_template.h"

namespace lmdeploy {
namespace {

/// A template that only has stop words.
class StopWordTemplate : public ChatTemplate {
 public:
  std::string name() const override { return "test"; }
  std::string render(const Json&, const RenderOptions&) const override { return ""; }
  const std::vector<std::string>& stop_words() const override { return words; }
  std::vector<std::string> words;
};

TEST(StopRules, F15_ControlTokenTextBecomesItsId) {
  const ScriptedTokenizer tokenizer({{"<|im_end|>", true}, {"<custom>"}, {"a"}});
  const StopWords words = split_stop_words({"<|im_end|>", "<custom>", "\n\n"}, &tokenizer);
  EXPECT_EQ(words.ids, std::vector<int>{0});
  EXPECT_EQ(words.texts, (std::vector<std::string>{"<custom>", "\n\n"}));
}

TEST(StopRules, F16_AllEndOfTurnIds) {
  ScriptedTokenizer tokenizer({{"<end>", true}, {"a"}});
  tokenizer.ends = {9};
  StopWordTemplate chat_template;
  chat_template.words = {"<end>", "\nUser:"};
  const Json generation_config = parse_json(R"({"eos_token_id": [151, 7]})", "test");
  EXPECT_EQ(collect_eos_ids(generation_config, {0}, &tokenizer, nullptr), (std::vector<int>{7, 9, 151}));
  EXPECT_EQ(collect_eos_ids(generation_config, {3}, &tokenizer, &chat_template),
            (std::vector<int>{0, 7, 9, 151}));
  EXPECT_EQ(collect_eos_ids(JsonObject(), {3}, nullptr, nullptr), std::vector<int>{3});
}

TEST(StopRules, BadWordsWithAndWithoutSpace) {
  const ScriptedTokenizer tokenizer({{"a"}, {"b"}, {" a"}, {" "}, {"<x>", true}});
  EXPECT_EQ(spell_bad_words({"ab"}, tokenizer), (std::vector<std::vector<int>>{{0, 1}, {2, 1}}));
  // " b" is spelled " ", "b": banning "b" covers it.
  EXPECT_EQ(spell_bad_words({"b"}, tokenizer), (std::vector<std::vector<int>>{{1}}));
  EXPECT_EQ(spell_bad_words({" a"}, tokenizer), (std::vector<std::vector<int>>{{2}}));
  EXPECT_EQ(spell_bad_words({"<x>"}, tokenizer), (std::vector<std::vector<int>>{{4}}));
}

// In the time of a sort: a client of a server may send as many.
TEST(StopRules, ManyBadWordsAreThoseThatNoOtherCovers) {
  const ScriptedTokenizer tokenizer({{"a"}, {"b"}, {"c"}, {" "}});
  std::vector<std::string> words;
  for (int number = 0; number < 200000; ++number) {  // all of four letters and up that end in b or c
    std::string word;
    for (int rest = number + 27; rest > 0; rest /= 3) word += static_cast<char>('a' + rest % 3);
    words.push_back(word);
  }
  std::set<std::vector<int>> needed;
  for (const std::string& word : words) {  // the definition, for words that all have a shortest ending
    std::vector<int> ids;
    for (const char letter : word) ids.push_back(letter - 'a');
    for (size_t length = 1; length <= ids.size(); ++length) {
      const std::vector<int> ending(ids.end() - static_cast<int64_t>(length), ids.end());
      std::string text;
      for (const int id : ending) text += static_cast<char>('a' + id);
      int number = 0;
      for (size_t i = text.size(); i-- > 0;) number = 3 * number + (text[i] - 'a');
      if (text.back() == 'a' || number < 27 || number >= 200027) continue;  // not a word of the list
      needed.insert(ending);
      break;
    }
  }
  std::vector<std::vector<int>> got = spell_bad_words(words, tokenizer);
  std::sort(got.begin(), got.end());
  EXPECT_EQ(got, std::vector<std::vector<int>>(needed.begin(), needed.end()));
}

}  // namespace
}  // namespace lmdeploy
