// Ranks that are threads: sums, columns, and what becomes of the others when one is missing.
#include "lmdeploy/kernels/communicator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/random.h"
#include "lmdeploy/kernels/rank_meeting.h"

namespace lmdeploy {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kLong{60'000}, kShort{200};

// body(communicator) on a thread of its own for each rank; what each has thrown.
std::vector<std::string> run_ranks(RankGroup& group, const std::function<void(Communicator&)>& body) {
  std::vector<std::string> errors(static_cast<size_t>(group.num_ranks()));
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < group.num_ranks(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(group.communicator(rank));
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInternal);
        errors[static_cast<size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

void expect_words(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words)
    EXPECT_NE(text.find(word), std::string::npos) << word << " in " << text;
}

class HostRanksTest : public ::testing::TestWithParam<int64_t> {};

TEST_P(HostRanksTest, SumsInTheOrderOfTheRanksOnAll) {
  const int64_t ranks = GetParam(), rows = 7, cols = 431;  // no multiple of any number of ranks
  const auto group = make_host_rank_group(ranks, kLong);
  for (int64_t step = 0; step < 20; ++step) {
    std::vector<Tensor> x;
    std::vector<float> want(static_cast<size_t>(rows * cols));
    Rng rng(static_cast<uint64_t>(step));
    for (int64_t rank = 0; rank < ranks; ++rank) {
      x.emplace_back(DType::kF32, Shape{rows, cols});
      for (float& value : x.back().span<float>()) value = static_cast<float>(rng.uniform() - 0.5);
      for (size_t i = 0; i < want.size(); ++i) want[i] += x.back().span<float>()[i];
    }
    group->begin_step(step);
    const auto errors =
        run_ranks(*group, [&](Communicator& own) { own.all_reduce_sum(x[static_cast<size_t>(own.rank())]); });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
    for (const Tensor& sum : x) EXPECT_TRUE(std::ranges::equal(sum.span<float>(), want));
  }
}

TEST_P(HostRanksTest, SumsOfF64) {
  const auto group = make_host_rank_group(GetParam(), kLong);
  std::vector<Tensor> x;
  for (int64_t rank = 0; rank < GetParam(); ++rank) {
    x.emplace_back(DType::kF64, Shape{1, 3});
    std::ranges::fill(x.back().span<double>(), 1 + 1e-12);
  }
  run_ranks(*group, [&](Communicator& own) { own.all_reduce_sum(x[static_cast<size_t>(own.rank())]); });
  double want = 0;
  for (int64_t rank = 0; rank < GetParam(); ++rank) want += 1 + 1e-12;
  for (const Tensor& sum : x) EXPECT_EQ(sum.span<double>()[2], want);
}

// Three columns of each rank; `out` has one or more fewer.
TEST_P(HostRanksTest, GathersColumnsAsFarAsThereAreAny) {
  const int64_t ranks = GetParam(), cols = 3;
  for (const int64_t whole : {ranks * cols, ranks * cols - 1, ranks * cols - 4}) {
    const auto group = make_host_rank_group(ranks, kLong);
    Tensor out(DType::kF32, {2, whole});
    const auto errors = run_ranks(*group, [&](Communicator& own) {
      Tensor x(DType::kF32, {2, cols});
      for (int64_t row = 0; row < 2; ++row)
        for (int64_t i = 0; i < cols; ++i)
          x.view().set(row, i, static_cast<double>(100 * row + own.rank() * cols + i));
      own.gather_columns(own.rank() == 0 ? out.view() : TensorView(), x);
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
    for (int64_t row = 0; row < 2; ++row)
      for (int64_t i = 0; i < whole; ++i)
        EXPECT_EQ(out.view().at(row, i), static_cast<double>(100 * row + i));
  }
}

TEST_P(HostRanksTest, AMissingRankEndsTheStepOfAll) {
  const int64_t ranks = GetParam(), lost = ranks - 1;
  const auto group = make_host_rank_group(ranks, kShort);
  group->begin_step(41);
  const auto body = [&](Communicator& own) {
    Tensor x(DType::kF32, {1, 5});
    std::ranges::fill(x.span<float>(), 1.0f);
    own.all_reduce_sum(x);
    if (own.rank() != lost) own.all_reduce_sum(x);
  };
  const auto errors = run_ranks(*group, body);
  for (int64_t rank = 0; rank < lost; ++rank)
    expect_words(errors[static_cast<size_t>(rank)],
                 {cat("rank ", lost, " did not come"), "all_reduce_sum", "step 41", "200 ms"});
  EXPECT_EQ(errors[static_cast<size_t>(lost)], "");
}

TEST_P(HostRanksTest, ARankThatFailsIsNotWaitedFor) {
  const int64_t ranks = GetParam(), lost = ranks - 1;
  const auto group = make_host_rank_group(ranks, kLong);
  const auto start = std::chrono::steady_clock::now();
  group->begin_step(7);
  const auto errors = run_ranks(*group, [&](Communicator& own) {
    if (own.rank() == lost) return group->leave(lost, "out of memory");
    Tensor x(DType::kF32, {1, 5});
    own.all_reduce_sum(x);
  });
  for (int64_t rank = 0; rank < lost; ++rank)
    expect_words(errors[static_cast<size_t>(rank)],
                 {cat("rank ", lost, " failed"), "step 7", "out of memory"});
  EXPECT_LT(std::chrono::steady_clock::now() - start, kLong / 2);

  group->begin_step(8);  // all is well again
  const auto after = run_ranks(*group, [&](Communicator& own) {
    Tensor x(DType::kF32, {1, 5});
    std::ranges::fill(x.span<float>(), 1.0f);
    own.all_reduce_sum(x);
    EXPECT_EQ(x.span<float>()[4], static_cast<float>(ranks));
  });
  for (const std::string& error : after) EXPECT_EQ(error, "");
}

// F58.
TEST(RankMeeting, WhoWaitsInVainIsToldWhatToTry) {
  RankMeeting meeting(2, kShort, "; try one rank");
  meeting.begin_step(3);
  try {
    meeting.meet(1, "all_reduce_sum");
    ADD_FAILURE() << "no error";
  } catch (const MissingRank& error) {
    EXPECT_STREQ(
        error.what(),
        "tensor parallelism: rank 0 did not come to all_reduce_sum of step 3 within 200 ms, rank 1 was "
        "there; try one rank");
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, HostRanksTest, ::testing::Values(2, 3, 4));

}  // namespace
}  // namespace lmdeploy
