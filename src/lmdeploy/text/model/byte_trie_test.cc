// The trie against a search through the list.
#include "lmdeploy/text/model/byte_trie.h"

#include <gtest/gtest.h>

#include <string>

#include "lmdeploy/core/random.h"

namespace lmdeploy {
namespace {

std::string random_text(Rng& rng, size_t max_size) {
  constexpr unsigned char kBytes[] = {0, 1, 'a', 'b', 63, 64, 127, 128, 191, 192, 255};
  std::string text(rng.below(max_size + 1), ' ');
  for (char& c : text) c = static_cast<char>(kBytes[rng.below(std::size(kBytes))]);
  return text;
}

ByteTrie::Match search(const std::vector<std::string>& texts, std::string_view text) {
  ByteTrie::Match best;
  for (size_t i = 0; i < texts.size(); ++i)
    if (text.starts_with(texts[i]) && texts[i].size() > 0 && texts[i].size() >= best.size)
      best = {texts[i].size(), static_cast<int>(i)};
  return best;
}

TEST(ByteTrie, FindsTheLongestText) {
  Rng rng(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::string> texts(rng.below(60));
    for (std::string& text : texts) text = random_text(rng, 4);
    std::vector<std::pair<std::string_view, int>> entries;
    for (size_t i = 0; i < texts.size(); ++i) entries.emplace_back(texts[i], static_cast<int>(i));
    const ByteTrie trie(entries);
    for (int i = 0; i < 50; ++i) {
      const std::string text = random_text(rng, 6);
      const ByteTrie::Match got = trie.longest(text), want = search(texts, text);
      ASSERT_EQ(got.size, want.size) << testing::PrintToString(text) << " in "
                                     << testing::PrintToString(texts);
      ASSERT_EQ(got.value, want.value);
    }
  }
}

TEST(ByteTrie, EmptyFindsNothing) {
  EXPECT_EQ(ByteTrie().longest("a").size, 0u);
  EXPECT_EQ(ByteTrie({{"", 3}}).longest("a").size, 0u);
}

}  // namespace
}  // namespace lmdeploy
