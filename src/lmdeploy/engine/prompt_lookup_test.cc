// Against a search through everything.
#include "lmdeploy/engine/prompt_lookup.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "lmdeploy/core/random.h"

namespace lmdeploy {
namespace {

PromptLookup::Match slow_find(std::span<const int> tokens) {
  const auto size = static_cast<int64_t>(tokens.size());
  PromptLookup::Match best;
  for (int64_t place = size - 1; place > 0; --place) {
    int64_t length = 0;
    while (length < std::min(place, PromptLookup::kLongest) &&
           tokens[static_cast<size_t>(place - 1 - length)] == tokens[static_cast<size_t>(size - 1 - length)])
      ++length;
    if (length >= PromptLookup::kShortest && length > best.length) best = {length, place};
  }
  return best;
}

TEST(PromptLookup, FindsTheLongestAndOfTheseTheLatest) {
  for (const uint64_t num_ids : {1, 3, 12, 500}) {
    Rng rng(num_ids);
    PromptLookup lookup;
    std::vector<int> tokens;
    for (int step = 0; step < 300; ++step) {
      const uint64_t copied = tokens.size() > 30 && rng.below(8) == 0 ? rng.below(25) : 0;
      for (uint64_t from = rng.below(20), i = 0; i < copied; ++i) tokens.push_back(tokens[from + i]);
      tokens.push_back(static_cast<int>(rng.below(num_ids)));
      const PromptLookup::Match got = lookup.find(tokens), want = slow_find(tokens);
      const auto places = std::ranges::count(tokens, tokens.back());
      if (places > 60) {  // some places are beyond those it looks at
        ASSERT_LE(got.length, want.length) << num_ids << " ids, step " << step;
        continue;
      }
      ASSERT_EQ(got.length, want.length) << num_ids << " ids, step " << step;
      ASSERT_EQ(got.next, want.next) << num_ids << " ids, step " << step;
    }
  }
}

TEST(PromptLookup, ShortSequencesHaveNone) {
  PromptLookup lookup;
  std::vector<int> tokens;
  EXPECT_EQ(lookup.find(tokens).length, 0);
  for (const int token : {7, 7}) {
    tokens.push_back(token);
    EXPECT_EQ(lookup.find(tokens).length, 0);
  }
  tokens.push_back(7);
  EXPECT_EQ(lookup.find(tokens).length, 2);
  EXPECT_EQ(lookup.find(tokens).next, 2);
}

// What has come 64 times since is not looked at again: a token of a long repetitive text costs no more.
TEST(PromptLookup, LooksAtTheLatestPlacesOnly) {
  PromptLookup lookup;
  std::vector<int> tokens = {1, 2, 3, 4, 50};
  for (int i = 0; i < 64; ++i) tokens.insert(tokens.end(), {3, 4, 100 + i});
  tokens.insert(tokens.end(), {1, 2, 3, 4});
  EXPECT_EQ(lookup.find(tokens).length, 2);
  EXPECT_EQ(lookup.find(tokens).next, static_cast<int64_t>(tokens.size()) - 5);
}

}  // namespace
}  // namespace lmdeploy
