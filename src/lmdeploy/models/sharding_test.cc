// Which rank has what: every element once, zeros where they run out, refusals that say what works.
#include "lmdeploy/models/sharding.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

constexpr int64_t kZeros = ShardRun::kZeros;

DecoderSpec spec_of(int64_t heads, int64_t kv_heads) {
  DecoderSpec spec;
  spec.hidden_size = 64;
  spec.intermediate_size = 80;
  spec.num_layers = 1;
  spec.num_heads = heads;
  spec.num_kv_heads = kv_heads;
  spec.head_dim = 16;
  spec.vocab_size = 67;
  spec.layers.resize(1);
  return spec;
}

WeightRule rule_of(Slot slot, Dim rows, Dim cols = Dim::kNone, std::string_view name = "w") {
  return {.slot = slot, .name = name, .rows = rows, .cols = cols};
}

std::string refusal(const DecoderSpec& spec, int64_t ranks, const ShardUnits& units = {}) {
  try {
    const Sharding sharding(spec, ranks, units);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    return error.what();
  }
  return "";
}

void expect_words(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words)
    EXPECT_NE(text.find(word), std::string::npos) << word << " in " << text;
}

// How many ranks have each of `whole` elements; all ranks have `own` of them or zeros.
std::vector<int> owners(const Sharding& sharding, int64_t whole, const auto& runs_of) {
  std::vector<int> count(static_cast<size_t>(whole));
  int64_t first_size = -1;
  for (int64_t rank = 0; rank < sharding.num_ranks(); ++rank) {
    int64_t size = 0;
    for (const ShardRun& run : runs_of(rank)) {
      size += run.count;
      for (int64_t i = 0; run.begin != kZeros && i < run.count; ++i)
        ++count.at(static_cast<size_t>(run.begin + i));
    }
    if (first_size < 0) first_size = size;
    EXPECT_EQ(size, first_size);
  }
  return count;
}

TEST(Sharding, OneRankHasAll) {
  const DecoderSpec spec = spec_of(25, 5);
  const Sharding sharding(spec, 1, {});
  EXPECT_EQ(sharding.rank_spec(0).whole.num_heads, 0);
  EXPECT_EQ(sharding.rank_spec(0).intermediate_size, 80);
  EXPECT_EQ(sharding.rows(rule_of(Slot::kQkv, Dim::kQ), 0), (ShardRuns{{0, 25 * 16}}));
  EXPECT_EQ(sharding.rows(rule_of(Slot::kQkv, Dim::kQkv), 0), (ShardRuns{{0, 35 * 16}}));
  EXPECT_EQ(sharding.rows(rule_of(Slot::kUp, Dim::kGateUp), 0), (ShardRuns{{0, 160}}));
}

TEST(Sharding, KvHeadsAreDealtOut) {
  const Sharding sharding(spec_of(8, 4), 2, {});
  EXPECT_EQ(sharding.rank_spec(1).num_heads, 4);
  EXPECT_EQ(sharding.rank_spec(1).num_kv_heads, 2);
  EXPECT_EQ(sharding.rank_spec(1).whole.first_head, 4);
  EXPECT_EQ(sharding.rows(rule_of(Slot::kQkv, Dim::kQ), 1), (ShardRuns{{64, 64}}));
  EXPECT_EQ(sharding.rows(rule_of(Slot::kQkv, Dim::kKv), 1), (ShardRuns{{32, 32}}));
  EXPECT_EQ(sharding.rows(rule_of(Slot::kQkv, Dim::kQkv), 1), (ShardRuns{{64, 64}, {160, 32}, {224, 32}}));
}

// 28 heads over 4 kv heads on 8 ranks: two ranks have one kv head, of whose 7 heads the first has 4, the
// second 3 and zeros.
TEST(Sharding, QueryHeadsOfOneKvHeadOnSeveralRanks) {
  const Sharding sharding(spec_of(28, 4), 8, {});
  EXPECT_EQ(sharding.rank_spec(0).num_heads, 4);
  EXPECT_EQ(sharding.rank_spec(0).num_kv_heads, 1);
  EXPECT_EQ(sharding.heads(4), (ShardRuns{{14, 4}}));
  EXPECT_EQ(sharding.heads(5), (ShardRuns{{18, 3}, {kZeros, 1}}));
  EXPECT_EQ(sharding.rows(rule_of(Slot::kQkv, Dim::kKv), 5), (ShardRuns{{32, 16}}));
  EXPECT_EQ(sharding.cols(rule_of(Slot::kO, Dim::kHidden, Dim::kQ), 5), (ShardRuns{{288, 48}, {kZeros, 16}}));
}

TEST(Sharding, EveryElementIsSomewhere) {
  DecoderSpec spec = spec_of(12, 4);
  spec.experts.num_experts = 3;
  spec.experts.inner_size = 37;
  spec.experts.shared_inner_size = 50;
  for (const int64_t ranks : {2, 3, 4, 8, 12}) {
    if (!refusal(spec, ranks).empty()) continue;
    const Sharding sharding(spec, ranks, {});
    const auto expect_once = [&](Dim dim, int copies = 1) {
      const WeightRule rule = rule_of(Slot::kUp, dim);
      const auto rows = [&](int64_t rank) { return sharding.rows(rule, rank); };
      for (const int count : owners(sharding, size_of(dim, spec), rows)) EXPECT_EQ(count, copies);
    };
    expect_once(Dim::kQ);
    expect_once(Dim::kHeads);
    expect_once(Dim::kKv, static_cast<int>(ranks > 4 ? ranks / 4 : 1));
    expect_once(Dim::kInner);
    expect_once(Dim::kGateUp);
    expect_once(Dim::kExpertInner);
    expect_once(Dim::kExpertGateUp);
    expect_once(Dim::kSharedInner);
    expect_once(Dim::kVocab);
    expect_once(Dim::kHidden, static_cast<int>(ranks));
    const WeightRule biases = rule_of(Slot::kExpertUpBias, Dim::kExpertGateUp);
    const auto elements = [&](int64_t rank) { return sharding.elements(biases, rank); };
    for (const int count : owners(sharding, 3 * 2 * 37, elements)) EXPECT_EQ(count, 1);
  }
}

TEST(Sharding, LatentHeadsNeedNoKvHeads) {
  DecoderSpec spec = spec_of(5, 5);
  spec.latent = {.q_rank = 8, .kv_rank = 8, .nope_dim = 6, .rope_dim = 4, .value_dim = 5};
  const Sharding sharding(spec, 2, {});
  EXPECT_EQ(sharding.heads(1), (ShardRuns{{3, 2}, {kZeros, 1}}));
  EXPECT_EQ(sharding.rows(rule_of(Slot::kQUp, Dim::kLatentQ), 1), (ShardRuns{{30, 20}, {kZeros, 10}}));
  EXPECT_EQ(sharding.cols(rule_of(Slot::kO, Dim::kHidden, Dim::kLatentOut), 1),
            (ShardRuns{{15, 10}, {kZeros, 5}}));
  EXPECT_EQ(sharding.rows(rule_of(Slot::kKvDown, Dim::kLatentKv), 1), (ShardRuns{{0, 12}}));
}

TEST(Sharding, TheVocabularyIsFilledUp) {
  DecoderSpec spec = spec_of(4, 4);
  spec.vocab_size = 32001;
  const Sharding sharding(spec, 2, {});
  EXPECT_EQ(sharding.rank_spec(0).vocab_size, 16008);
  EXPECT_EQ(sharding.rank_spec(0).whole.head_size, 32001);
  EXPECT_EQ(sharding.rows(rule_of(Slot::kLmHead, Dim::kVocab), 1), (ShardRuns{{16008, 15993}, {kZeros, 15}}));
  EXPECT_EQ(sharding.rows(rule_of(Slot::kEmbed, Dim::kVocab), 1), (ShardRuns{{0, 32001}}));
}

TEST(Sharding, ScoresAreOnEveryRank) {
  DecoderSpec spec = spec_of(4, 4);
  spec.gives_score = true;
  const Sharding sharding(spec, 2, {});
  EXPECT_EQ(sharding.rank_spec(1).head_size(), 1);
  EXPECT_EQ(sharding.rows(rule_of(Slot::kLmHead, Dim::kOne), 1), (ShardRuns{{0, 1}}));
}

TEST(Sharding, WhatIsAddedToASumIsAddedOnce) {
  const Sharding sharding(spec_of(4, 4), 2, {});
  EXPECT_EQ(sharding.elements(rule_of(Slot::kOBias, Dim::kHidden), 0), (ShardRuns{{0, 64}}));
  EXPECT_EQ(sharding.elements(rule_of(Slot::kOBias, Dim::kHidden), 1), (ShardRuns{{kZeros, 64}}));
}

TEST(Sharding, NormsOfEachHeadFollowTheHeads) {
  const Sharding sharding(spec_of(4, 2), 2, {});
  const WeightRule named = rule_of(Slot::kQNorm, Dim::kHeadDim, Dim::kNone, "norms.{h}.weight");
  EXPECT_EQ(sharding.elements(named, 1), (ShardRuns{{32, 32}}));
  EXPECT_EQ(sharding.elements(rule_of(Slot::kQNorm, Dim::kHeadDim), 1), (ShardRuns{{0, 16}}));
}

// Groups of 128: 27392 is 214 of them, 13824 is 108; neither divides, and no border may lie within one.
TEST(Sharding, QuantisedInnerSizesAreCutBetweenGroups) {
  DecoderSpec spec = spec_of(8, 8);
  spec.intermediate_size = 27392;
  const WeightRule down = rule_of(Slot::kDown, Dim::kHidden, Dim::kInner);
  const Sharding by_four(spec, 4, {.inner = 128});
  EXPECT_EQ(by_four.cols(down, 0), (ShardRuns{{0, 54 * 128}}));
  EXPECT_EQ(by_four.cols(down, 3), (ShardRuns{{162 * 128, 52 * 128}, {kZeros, 2 * 128}}));
  spec.intermediate_size = 13824;
  const Sharding by_eight(spec, 8, {.inner = 128});
  EXPECT_EQ(by_eight.cols(down, 7), (ShardRuns{{98 * 128, 10 * 128}, {kZeros, 4 * 128}}));
  EXPECT_EQ(Sharding(spec, 2, {.inner = 128}).cols(down, 1), (ShardRuns{{54 * 128, 54 * 128}}));
}

TEST(Sharding, RefusesHeadsThatCannotBeDealtOut) {
  expect_words(refusal(spec_of(25, 5), 2), {"2 ranks", "25 query heads over 5 kv heads", "tp: 1, 5, 10"});
  expect_words(refusal(spec_of(4, 4), 8),
               {"8 ranks", "4 query heads", "a rank would have none", "tp: 1, 2, 4"});
  expect_words(refusal(spec_of(4, 4), 17), {"17 ranks", "at most 16"});
  DecoderSpec whole_rows = spec_of(4, 4);
  whole_rows.qk_norm = QkNorm::kWholeRow;
  expect_words(refusal(whole_rows, 2), {"norms of q and k", "tp: 1"});
}

TEST(Sharding, RefusesHeadsThatAreNoWholeGroups) {
  const ShardUnits units = {.attention_out = 64};
  expect_words(refusal(spec_of(8, 8), 4, units),
               {"attention output projection", "groups of 64", "2 heads of 16", "tp: 1, 2"});
  EXPECT_EQ(refusal(spec_of(8, 8), 2, units), "");
}

}  // namespace
}  // namespace lmdeploy
