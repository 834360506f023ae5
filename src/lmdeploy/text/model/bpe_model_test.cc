// The fast ways through a word (cache, short, heap, cuts) against one obvious loop.
#include "lmdeploy/text/model/bpe_model.h"

#include <gtest/gtest.h>

#include <map>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/random.h"
#include "lmdeploy/core/utf8.h"

namespace lmdeploy {
namespace {

struct Rule {
  int left, right, joined;
};

// Random merges over a small alphabet: token ids, and the rules in order of rank.
struct Toy {
  Vocabulary vocabulary;
  std::vector<Rule> rules;
};

Toy make_toy(Rng& rng, const std::vector<std::string>& alphabet, size_t num_merges, bool with_bytes) {
  Toy toy;
  for (const std::string& letter : alphabet) toy.vocabulary.add(letter, toy.vocabulary.num_ids());
  const auto num_letters = static_cast<size_t>(toy.vocabulary.num_ids());
  std::vector<int> joinable;
  for (size_t i = 0; i < num_letters; ++i) joinable.push_back(static_cast<int>(i));
  for (int byte = 0; with_bytes && byte < 256; ++byte) {
    constexpr char kDigits[] = "0123456789ABCDEF";
    toy.vocabulary.add(std::string{'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 15], '>'},
                       toy.vocabulary.num_ids());
  }
  while (toy.rules.size() < num_merges) {
    const int left = joinable[rng.below(joinable.size())], right = joinable[rng.below(joinable.size())];
    const std::string joined = cat(toy.vocabulary.text(left), toy.vocabulary.text(right));
    if (joined.size() > 40 || toy.vocabulary.find(joined)) continue;
    const int id = toy.vocabulary.num_ids();
    toy.vocabulary.add(joined, id);
    toy.rules.push_back({left, right, id});
    joinable.push_back(id);
  }
  return toy;
}

BpeModel make_model(const Toy& toy, const BpeOptions& options) {
  MergeTable table(toy.rules.size());
  for (size_t rank = 0; rank < toy.rules.size(); ++rank)
    table.add(toy.rules[rank].left, toy.rules[rank].right,
              make_merge(static_cast<uint32_t>(rank), toy.rules[rank].joined));
  return {toy.vocabulary, std::move(table), options};
}

// Joins the leftmost pair of the lowest rank until none is left.
std::vector<int> slow_merge(const Toy& toy, std::vector<int> symbols) {
  for (;;) {
    size_t best_rank = toy.rules.size(), best_at = 0;
    for (size_t at = 0; at + 1 < symbols.size(); ++at)
      for (size_t rank = 0; rank < best_rank; ++rank)
        if (toy.rules[rank].left == symbols[at] && toy.rules[rank].right == symbols[at + 1])
          best_rank = rank, best_at = at;
    if (best_rank == toy.rules.size()) return symbols;
    symbols[best_at] = toy.rules[best_rank].joined;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
  }
}

TEST(BpeModel, AllWaysThroughAWordAgree) {
  const std::vector<std::string> letters = {"a", "b", "c", "\u00E9"};
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Rng rng(seed);
    const Toy toy = make_toy(rng, letters, 25, /*with_bytes=*/true);
    BpeOptions options;
    options.byte_fallback = true;
    BpeModel plain = make_model(toy, options), cutting = make_model(toy, options);
    for (const Rule& rule : toy.rules) {
      const std::string_view left = toy.vocabulary.text(rule.left), right = toy.vocabulary.text(rule.right);
      const char32_t last = left.back() == 'a' || left.back() == 'b' || left.back() == 'c'
                                ? static_cast<char32_t>(left.back())
                                : U'\u00E9';
      cutting.note_junction(last, decode_utf8(right, 0).code);
    }
    cutting.allow_cuts();
    EncodeScratch plain_scratch, cutting_scratch;
    for (int repeat = 0; repeat < 30; ++repeat) {
      std::string word;
      std::vector<int> symbols;
      for (uint64_t size = 1 + rng.below(repeat < 15 ? 12 : 150); size > 0; --size) {
        const auto letter = static_cast<int>(rng.below(letters.size()));
        word += letters[static_cast<size_t>(letter)];
        symbols.push_back(letter);
      }
      const std::vector<int> want = slow_merge(toy, symbols);
      for (int again = 0; again < 2; ++again) {  // the second time from the cache
        std::vector<int> got, got_cut;
        plain.encode(word, plain_scratch, got);
        cutting.encode(word, cutting_scratch, got_cut);
        EXPECT_EQ(got, want) << "seed " << seed << ", " << word;
        EXPECT_EQ(got_cut, want) << "seed " << seed << ", " << word;
      }
    }
  }
}

TEST(BpeModel, AMegabyteWithoutSpacesIsQuick) {
  Rng rng(1);
  const Toy toy = make_toy(rng, {"a", "b", "c"}, 60, /*with_bytes=*/false);
  BpeOptions options;
  options.byte_units = true;
  const BpeModel model = make_model(toy, options);
  std::string word;
  while (word.size() < (size_t{1} << 20)) word.push_back(static_cast<char>('a' + rng.below(3)));
  EncodeScratch scratch;
  std::vector<int> ids;
  model.encode(word, scratch, ids);  // n^2 steps would take minutes
  std::string joined;
  for (const int id : ids) joined += toy.vocabulary.text(id);
  EXPECT_EQ(joined, word);
}

TEST(WordCache, KeepsWordsApart) {
  WordCache cache;
  std::vector<int> ids;
  cache.put("abc", std::vector<int>{1, 2});
  EXPECT_FALSE(cache.find(std::string_view("abc\0", 4), ids));  // padded with zeros inside
  EXPECT_TRUE(cache.find("abc", ids));
  EXPECT_EQ(ids, (std::vector<int>{1, 2}));
  const std::string too_long(25, 'x');
  cache.put(too_long, std::vector<int>{3});
  EXPECT_FALSE(cache.find(too_long, ids));
  cache.put("many", std::vector<int>(10, 7));
  EXPECT_FALSE(cache.find("many", ids));
}

TEST(MergeTable, FindsWhatWasAdded) {
  MergeTable table(3);
  table.add(1, 2, make_merge(5, 9));
  table.add(2, 1, make_merge(6, 8));
  table.add(1, 2, make_merge(4, 9));  // the later one counts
  EXPECT_EQ(table.find(1, 2), make_merge(4, 9));
  EXPECT_EQ(merged_id(table.find(2, 1)), 8);
  EXPECT_EQ(table.find(1, 1), kNoMerge);
  EXPECT_EQ(MergeTable().find(0, 0), kNoMerge);
}

}  // namespace
}  // namespace lmdeploy
