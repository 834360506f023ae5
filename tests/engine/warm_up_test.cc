// The steps that take what a device needs for its work.
#include "lmdeploy/engine/warm_up.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "core_driver.h"
#include "drawing_kernels.h"
#include "fake_model.h"
#include "lmdeploy/models/step_recordings.h"

namespace lmdeploy::testing {
namespace {

/// Memory that the host does not read, as far as its user knows.
class OwnMemory final : public DrawingKernels {
 public:
  bool has_own_memory() const override { return true; }

 private:
  void do_upload(std::byte* device, const std::byte* host, size_t bytes) const override {
    std::memcpy(device, host, bytes);
  }
  void do_download(std::byte* host, const std::byte* device, size_t bytes) const override {
    std::memcpy(host, device, bytes);
  }
};

/// Some of its memory is gone after so many steps.
class TakingModel final : public FakeModel {
 public:
  using FakeModel::FakeModel;
  size_t cache_memory(const Kernels&) const override {
    return (size_t{1} << 20) - (steps.size() > 9 ? 1000 : 0);
  }
};

struct Largest {
  int64_t tokens = 0, sequences = 0, rows = 0, blocks = 0, decoding = 0;
};

TEST(WarmUp, TheLargestStepsOfTheConfig) {
  for (const GroupCase& groups : kGroupCases) {
    EngineConfig config = small_config();
    config.session_len = 40;
    config.max_logit_rows = 20;
    FakeModel model({.max_step_tokens = 64 + 8, .max_logit_rows = 20, .windows = groups.windows});
    Largest largest;
    model.before_step = [&](const StepInput& input) {
      const auto take = [](int64_t& most, size_t value) {
        most = std::max(most, static_cast<int64_t>(value));
      };
      take(largest.tokens, input.token_ids.size());
      take(largest.sequences, input.kv_len.size());
      take(largest.rows, input.logit_rows.size());
      take(largest.blocks, static_cast<size_t>(input.max_blocks));
      if (input.token_ids.size() == input.kv_len.size()) take(largest.decoding, input.kv_len.size());
      EXPECT_EQ(std::ranges::count(input.block_table, 0), static_cast<int64_t>(input.block_table.size()));
    };
    EXPECT_EQ(warm_up(model, OwnMemory(), config), 0u) << "no memory has been taken";
    EXPECT_EQ(largest.tokens, 40 + 7) << "a prompt is no longer than a session";
    EXPECT_EQ(largest.sequences, 8);
    EXPECT_EQ(largest.rows, 20);
    EXPECT_EQ(largest.blocks, 10);
    EXPECT_EQ(largest.decoding, 8);
  }
}

TEST(WarmUp, CountsRecordingsThatMayCome) {
  TakingModel model;
  EXPECT_EQ(warm_up(model, OwnMemory(), small_config()), 1000 * StepRecordings::kMostKept);
}

TEST(WarmUp, NothingWhereTheHostComputes) {
  FakeModel model;
  EXPECT_EQ(warm_up(model, DrawingKernels(), small_config()), 0u);
  EXPECT_TRUE(model.steps.empty());
}

std::string want_of_memory(int64_t most_tokens, int64_t max_prefill_token_num) {
  FakeModel model;
  model.before_step = [&](const StepInput& input) {
    if (static_cast<int64_t>(input.token_ids.size()) > most_tokens)
      throw Error(ErrorCode::kResourceExhausted, "allocate 7 bytes");
  };
  EngineConfig config = small_config();
  config.max_prefill_token_num = max_prefill_token_num;
  try {
    warm_up(model, OwnMemory(), config);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
    return error.what();
  }
  return "";
}

TEST(WarmUp, WantOfMemorySaysHowFarToGoDown) {
  const int64_t batch = small_config().max_batch_size;
  EXPECT_EQ(want_of_memory(batch + 63, 64), "");
  for (const int64_t most_tokens : {batch + 31, batch + 62})
    EXPECT_EQ(
        want_of_memory(most_tokens, 64),
        "memory for the work of the largest steps: allocate 7 bytes; lower max_prefill_token_num from 64 "
        "to 32, which fits, or max_batch_size or session_len");
  EXPECT_NE(want_of_memory(batch + 6, 64).find("from 64 to 4, which fits"), std::string::npos);
  EXPECT_EQ(
      want_of_memory(batch - 1, 64),
      "memory for the work of the largest steps: allocate 7 bytes; lower max_batch_size (8) or session_len: "
      "no max_prefill_token_num fits beside these");
}

// F58.
TEST(WarmUp, WhatFailsSaysThatItWasTheStart) {
  FakeModel model;
  model.before_step = [](const StepInput&) { throw Error(ErrorCode::kInternal, "rank 1 did not come"); };
  try {
    warm_up(model, OwnMemory(), small_config());
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInternal);
    EXPECT_STREQ(error.what(), "at the start, in the largest steps: rank 1 did not come");
  }
}

}  // namespace
}  // namespace lmdeploy::testing
