// The Viterbi search against trying all ways to cut a word, and what becomes of unknown characters.
#include "lmdeploy/text/model/unigram_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/random.h"

namespace lmdeploy {
namespace {

constexpr int kUnk = 0;

std::vector<int> encode(const UnigramModel& model, std::string_view word) {
  EncodeScratch scratch;
  std::vector<int> ids, again;
  model.encode(word, scratch, ids);
  model.encode(word, scratch, again);  // from the cache
  EXPECT_EQ(ids, again);
  return ids;
}

// The best sum of scores; characters without a token cost `unk_score`.
double best_score(const std::vector<UnigramToken>& tokens, double unk_score, std::string_view word) {
  if (word.empty()) return 0;
  double best = -1e300;
  bool char_is_token = false;
  for (const UnigramToken& token : tokens) {
    if (token.text.empty() || !word.starts_with(token.text)) continue;
    char_is_token |= token.text.size() == 1;
    best = std::max(best, token.score + best_score(tokens, unk_score, word.substr(token.text.size())));
  }
  if (!char_is_token) best = std::max(best, unk_score + best_score(tokens, unk_score, word.substr(1)));
  return best;
}

double score_of(const std::vector<UnigramToken>& tokens, double unk_score, std::string_view word,
                const std::vector<int>& ids) {
  double score = 0;
  size_t known = 0;
  for (const int id : ids) {
    if (id == kUnk) continue;
    score += tokens[static_cast<size_t>(id)].score;
    known += tokens[static_cast<size_t>(id)].text.size();
  }
  return score + unk_score * static_cast<double>(word.size() - known);
}

TEST(UnigramModel, TakesTheBestOfAllPaths) {
  Rng rng(5);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::string> texts = {""};
    std::vector<UnigramToken> tokens;
    for (size_t i = 1 + rng.below(12); i > 0; --i) {
      std::string text(1 + rng.below(4), ' ');
      for (char& c : text) c = static_cast<char>('a' + rng.below(3));
      if (std::find(texts.begin(), texts.end(), text) == texts.end()) texts.push_back(text);
    }
    for (size_t i = 0; i < texts.size(); ++i)
      tokens.push_back({texts[i], -static_cast<double>(rng.below(1000)) / 64, static_cast<int>(i)});
    const UnigramModel model(tokens, {.unk_id = kUnk, .unk_score = -30, .byte_fallback = {}});
    std::string word(rng.below(11), ' ');
    for (char& c : word) c = static_cast<char>('a' + rng.below(4));
    const std::vector<int> ids = encode(model, word);
    ASSERT_EQ(score_of(tokens, -30, word, ids), best_score(tokens, -30, word))  // sums of 64ths are exact
        << word << " " << testing::PrintToString(ids);
  }
}

TEST(UnigramModel, OfEqualPathsTheOneFoundFirstStays) {
  const UnigramModel model({{"a", -1, 1}, {"b", -1, 2}, {"ab", -2, 3}},
                           {.unk_id = kUnk, .byte_fallback = {}});
  EXPECT_EQ(encode(model, "ab"), std::vector<int>{3});
}

TEST(UnigramModel, RoundsSumsOnlyWhereAsked) {
  // The two paths differ by 2^-30, which f32 does not see beside 1; the first one to arrive stays then.
  const double tiny = 1.0 / (1 << 30);
  const std::vector<UnigramToken> tokens = {{"ab", -2 - tiny, 1}, {"a", -1, 2}, {"b", -1, 3}};
  EXPECT_EQ(encode({tokens, {.unk_id = kUnk, .byte_fallback = {}}}, "ab"), (std::vector<int>{2, 3}));
  EXPECT_EQ(encode({tokens, {.unk_id = kUnk, .byte_fallback = {}, .round_to_f32 = true}}, "ab"),
            std::vector<int>{1});
}

TEST(UnigramModel, UnknownRunsAreFusedOrBecomeBytes) {
  const std::vector<UnigramToken> tokens = {{"a", -1, 1}};
  const UnigramModel fused(tokens, {.unk_id = kUnk, .unk_score = -20, .byte_fallback = {}});
  EXPECT_EQ(encode(fused, "xyaz\u00E9"), (std::vector<int>{kUnk, 1, kUnk}));
  Vocabulary bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.add(fallback_spelling(byte), 1000 + byte);
  const UnigramModel in_bytes(tokens,
                              {.unk_id = kUnk, .unk_score = -20, .byte_fallback = ByteFallback(bytes)});
  EXPECT_EQ(encode(in_bytes, "xa\u00E9"), (std::vector<int>{1000 + 'x', 1, 1000 + 0xC3, 1000 + 0xA9}));
}

TEST(UnigramModel, WithoutUnkIdUnknownTextIsAnError) {
  const UnigramModel model({{"a", -1, 1}}, {.unk_id = std::nullopt, .byte_fallback = {}});
  EXPECT_EQ(encode(model, "aa"), (std::vector<int>{1, 1}));
  EncodeScratch scratch;
  std::vector<int> ids;
  EXPECT_THROW(model.encode("ab", scratch, ids), Error);
}

}  // namespace
}  // namespace lmdeploy
