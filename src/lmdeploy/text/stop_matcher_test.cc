// Stop words across pieces, against a search in the whole text.
#include <gtest/gtest.h>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/random.h"
#include "lmdeploy/text/tokenizer.h"

namespace lmdeploy {
namespace {

struct Result {
  std::string text;
  bool stopped = false;
  bool operator==(const Result&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Result& result) {
  return out << '"' << result.text << (result.stopped ? "\" (stopped)" : "\"");
}

Result feed(const std::vector<std::string>& stop_words, const std::vector<std::string>& pieces,
            bool include_stop = false) {
  StopMatcher matcher(stop_words);
  Result result;
  for (const std::string& piece : pieces) result.text += matcher.push(piece, include_stop);
  result.text += matcher.finish();
  result.stopped = matcher.stopped();
  return result;
}

// The slow version: the earliest stop word in the whole text, the shortest of those that begin together.
Result search(const std::vector<std::string>& stop_words, const std::string& text, bool include_stop) {
  size_t best = std::string::npos, size = 0;
  for (const std::string& word : stop_words) {
    const size_t at = word.empty() ? std::string::npos : text.find(word);
    if (at == std::string::npos || at > best || (at == best && word.size() >= size)) continue;
    best = at;
    size = word.size();
  }
  if (best == std::string::npos) return {text, false};
  return {text.substr(0, best + (include_stop ? size : 0)), true};
}

TEST(StopMatcher, F12_WorksAcrossPieces) {
  EXPECT_EQ(feed({"\n\n"}, {"A.", "\n", "\nB"}), (Result{"A.", true}));
  EXPECT_EQ(feed({"\n\n"}, {"A.", "\n", "B"}), (Result{"A.\nB", false}));
}

TEST(StopMatcher, F13_HoldsBackAPossibleBeginning) {
  StopMatcher matcher({"PQRSTU"});
  EXPECT_EQ(matcher.push("ok "), "ok ");
  EXPECT_EQ(matcher.push("PQ"), "");
  EXPECT_EQ(matcher.push("RS"), "");
  EXPECT_EQ(matcher.push("TU"), "");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.push("more"), "");
  EXPECT_EQ(matcher.finish(), "");
  EXPECT_EQ(feed({"PQRSTU"}, {"ok ", "PQ", "RX"}), (Result{"ok PQRX", false}));
  EXPECT_EQ(feed({"PQRSTU"}, {"ok ", "PQ"}), (Result{"ok PQ", false}));
}

TEST(StopMatcher, F14_CutsInsideAPiece) {
  EXPECT_EQ(feed({"b"}, {"abc"}), (Result{"a", true}));
  EXPECT_EQ(feed({"lo w", "hello"}, {"hel", "lo wor", "ld"}), (Result{"", true}));
}

TEST(StopMatcher, AWordFurtherLeftWinsOverOneThatIsCompleteEarlier) {
  StopMatcher matcher({"abcde", "bc"});
  EXPECT_EQ(matcher.push("xabcd"), "x");
  EXPECT_FALSE(matcher.stopped());
  EXPECT_EQ(matcher.push("e"), "");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(feed({"abcde", "bc"}, {"xabcd", "f"}), (Result{"xa", true}));
  EXPECT_EQ(feed({"abcde", "bc"}, {"xabcd"}), (Result{"xa", true}));  // found by finish()
}

TEST(StopMatcher, TheShortestOfWordsThatBeginTogetherWins) {
  EXPECT_EQ(feed({"\n\n", "\n"}, {"a\n", "\n"}, /*include_stop=*/true), (Result{"a\n", true}));
}

TEST(StopMatcher, IncludesTheStopWordOnRequest) {
  EXPECT_EQ(feed({"END"}, {"a E", "N", "D b"}, /*include_stop=*/true), (Result{"a END", true}));
}

TEST(StopMatcher, IgnoresEmptyWords) { EXPECT_EQ(feed({"", ""}, {"abc"}), (Result{"abc", false})); }

TEST(StopMatcher, EqualsASearchInTheWholeTextForAnyPieces) {
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    Rng rng(seed);
    const auto random_text = [&](uint64_t max_size) {
      std::string text;
      for (uint64_t size = rng.below(max_size + 1); size > 0; --size)
        text.push_back(static_cast<char>('a' + rng.below(3)));
      return text;
    };
    std::vector<std::string> stop_words, pieces;
    for (uint64_t count = 1 + rng.below(3); count > 0; --count) stop_words.push_back(random_text(5));
    std::string text;
    for (uint64_t count = rng.below(8); count > 0; --count) text += pieces.emplace_back(random_text(4));
    const bool include_stop = rng.below(2) == 0;
    EXPECT_EQ(feed(stop_words, pieces, include_stop), search(stop_words, text, include_stop))
        << cat("seed ", seed, ", text ", text);
  }
}

}  // namespace
}  // namespace lmdeploy
