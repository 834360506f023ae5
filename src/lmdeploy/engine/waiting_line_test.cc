// Order of arrival, and what it costs to leave.
#include "lmdeploy/engine/waiting_line.h"

#include <gtest/gtest.h>

#include <vector>

namespace lmdeploy {
namespace {

int64_t num_comparisons = 0;

struct CountingLess {
  bool operator()(uint64_t a, uint64_t b) const {
    ++num_comparisons;
    return a < b;
  }
};

std::vector<Sequence> sequences_of(size_t count) {
  std::vector<Sequence> sequences(count);
  for (size_t i = 0; i < count; ++i) {
    sequences[i].request_id = i + 1;
    sequences[i].tokens.assign(3, 1);
  }
  return sequences;
}

TEST(WaitingLine, OneThatComesBackKeepsItsPlace) {
  std::vector<Sequence> sequences = sequences_of(4);
  WaitingLine line;
  for (Sequence& sequence : sequences) line.insert(sequence);
  EXPECT_EQ(line.prompt_tokens(), 8);
  EXPECT_TRUE(line.remove(sequences[0]));
  EXPECT_TRUE(line.remove(sequences[1]));
  EXPECT_FALSE(line.remove(sequences[1]));
  sequences[1].cache_len = 1;
  line.insert(sequences[1]);
  EXPECT_EQ(&line.front(), &sequences[1]);
  EXPECT_EQ(line.prompt_tokens(), 5);
  sequences[1].tokens.clear();  // rolled back before it leaves
  line.remove(sequences[1]);
  EXPECT_EQ(line.prompt_tokens(), 4);
  EXPECT_EQ(&line.front(), &sequences[2]);
}

TEST(WaitingLine, LeavingDoesNotLookAtTheWholeLine) {
  constexpr size_t kCount = 1 << 14;
  std::vector<Sequence> sequences = sequences_of(kCount);
  BasicWaitingLine<CountingLess> line;
  for (Sequence& sequence : sequences) line.insert(sequence);
  num_comparisons = 0;
  for (size_t i = 0; i < kCount; i += 2) line.remove(sequences[i]);  // the oldest first, then the newest
  for (size_t i = kCount; i > 0; i -= 2) line.remove(sequences[i - 1]);
  EXPECT_TRUE(line.empty());
  EXPECT_EQ(line.prompt_tokens(), 0);
  EXPECT_LT(num_comparisons, static_cast<int64_t>(kCount) * 32)
      << "a balanced tree of 2^14 is at most 28 deep";
}

}  // namespace
}  // namespace lmdeploy
