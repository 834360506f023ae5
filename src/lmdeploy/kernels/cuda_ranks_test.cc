// Ranks on GPUs: what they add up and gather, called one by one and recorded, and what a missing rank leads
// to. Two ranks on one device meet as two on two do; where there are more devices those are tried too.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/random.h"
#include "lmdeploy/kernels/communicator.h"
#include "lmdeploy/kernels/kernels.h"

namespace lmdeploy {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kLong{20'000}, kShort{500};

/// A back end and a stream for each rank.
class Ranks {
 public:
  Ranks(const std::vector<int>& devices, DType dtype, const RankOptions& options) {
    for (const int device : devices)
      kernels_.push_back(make_cuda_kernels(std::make_shared<ThreadPool>(1), dtype, {.device = device}));
    std::vector<const Kernels*> by_rank;
    for (const auto& own : kernels_) by_rank.push_back(own.get());
    group_ = make_cuda_rank_group(by_rank, options);
  }

  RankGroup& group() { return *group_; }
  /// body(rank, its kernels, its communicator) on threads of their own; what each has thrown.
  std::vector<std::string> run(const std::function<void(size_t, const Kernels&, Communicator&)>& body) {
    std::vector<std::string> errors(kernels_.size());
    std::vector<std::thread> threads;
    group_->begin_step(++step_);
    for (size_t rank = 0; rank < kernels_.size(); ++rank) {
      threads.emplace_back([&, rank] {
        try {
          group_->enter(static_cast<int64_t>(rank));
          body(rank, *kernels_[rank], group_->communicator(static_cast<int64_t>(rank)));
        } catch (const Error& error) {
          errors[rank] = error.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return errors;
  }

 private:
  std::vector<std::unique_ptr<Kernels>> kernels_;
  std::unique_ptr<RankGroup> group_;
  int64_t step_ = 0;
};

Tensor random_tensor(uint64_t seed, DType dtype, int64_t rows, int64_t cols) {
  Rng rng(seed);
  Tensor out(dtype, {rows, cols});
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) out.view().set(r, c, rng.uniform() - 0.5);
  return out;
}

Tensor copy_of(ConstTensorView x) {
  Tensor out(x.dtype(), x.shape());
  for (int64_t r = 0; r < x.rows(); ++r)
    for (int64_t c = 0; c < x.cols(); ++c) out.view().set(r, c, x.at(r, c));
  return out;
}

// In f32, in the order of the ranks, rounded once.
Tensor sum_of(const std::vector<Tensor>& x) {
  Tensor sum(x[0].dtype(), x[0].shape());
  for (int64_t r = 0; r < sum.dim(0); ++r) {
    for (int64_t c = 0; c < sum.dim(1); ++c) {
      float total = 0;
      for (size_t rank = 0; rank < x.size(); ++rank) {
        const auto value = static_cast<float>(x[rank].view().at(r, c));
        total = rank == 0 ? value : total + value;
      }
      sum.view().set(r, c, static_cast<double>(total));
    }
  }
  return sum;
}

void expect_equal(ConstTensorView got, ConstTensorView want, const std::string& what) {
  ASSERT_EQ(got.shape(), want.shape());
  for (int64_t r = 0; r < want.rows(); ++r)
    for (int64_t c = 0; c < want.cols(); ++c)
      ASSERT_EQ(got.at(r, c), want.at(r, c)) << what << ", row " << r << ", column " << c;
}

struct RanksCase {
  std::string name;
  std::vector<int> devices;
  bool through_host = false;
};
void PrintTo(const RanksCase& c, std::ostream* out) { *out << c.name; }

class CudaRanksTest : public ::testing::TestWithParam<RanksCase> {
 protected:
  void SetUp() override {
    const CudaStatus status = cuda_status();
    if (status.devices.empty()) GTEST_SKIP() << status.problem;
    for (const int device : GetParam().devices)
      if (device >= static_cast<int>(status.devices.size()))
        GTEST_SKIP() << "there are " << status.devices.size() << " GPUs";
  }
  size_t num_ranks() const { return GetParam().devices.size(); }
  static RankOptions options(milliseconds timeout) {
    return {.timeout = timeout, .through_host = GetParam().through_host};
  }
};

// One row; a prefill's rows; sizes about the borders of packs and pieces, and none of them.
TEST_P(CudaRanksTest, SumsOfAllSizesAndTypes) {
  constexpr std::pair<int64_t, int64_t> kSizes[] = {
      {1, 1}, {1, 7}, {1, 4096}, {3, 1031}, {4, 8192}, {5, 8192}, {700, 4096}, {601, 1031}, {1100, 4096}};
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    Ranks ranks(GetParam().devices, dtype, options(kLong));
    uint64_t seed = 0;
    for (const auto& [rows, cols] : kSizes) {
      SCOPED_TRACE(cat(dtype, " ", rows, " x ", cols));
      std::vector<Tensor> x, got(num_ranks());
      for (size_t rank = 0; rank < num_ranks(); ++rank) x.push_back(random_tensor(++seed, dtype, rows, cols));
      const auto errors = ranks.run([&](size_t rank, const Kernels& kernels, Communicator& own) {
        const Tensor device = kernels.to_device(copy_of(x[rank]));
        own.all_reduce_sum(device);
        Tensor buffer;
        got[rank] = copy_of(kernels.to_host(device, buffer));
      });
      const Tensor want = sum_of(x);
      for (size_t rank = 0; rank < num_ranks(); ++rank) {
        ASSERT_EQ(errors[rank], "");
        expect_equal(got[rank], want, cat("rank ", rank));
      }
    }
  }
}

// Many meetings one after the other, of sizes that take different numbers of blocks.
TEST_P(CudaRanksTest, SumsOneAfterTheOther) {
  Ranks ranks(GetParam().devices, DType::kF32, options(kLong));
  const auto errors = ranks.run([&](size_t rank, const Kernels& kernels, Communicator& own) {
    for (int i = 0; i < 200; ++i) {
      const int64_t cols = 1 + i % 5 * 4000;
      Tensor ones(DType::kF32, {1, cols});
      for (float& value : ones.span<float>()) value = static_cast<float>(i + static_cast<int>(rank));
      const Tensor device = kernels.to_device(std::move(ones));
      own.all_reduce_sum(device);
      Tensor buffer;
      const ConstTensorView got = kernels.to_host(device, buffer);
      double want = 0;
      for (size_t other = 0; other < num_ranks(); ++other)
        want += static_cast<double>(i) + static_cast<double>(other);
      ASSERT_EQ(got.at(0, cols - 1), want) << i;
    }
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST_P(CudaRanksTest, GathersColumnsAsFarAsThereAreAny) {
  Ranks ranks(GetParam().devices, DType::kBF16, options(kLong));
  for (const int64_t rows : {1, 3, 65}) {
    constexpr int64_t kCols = 2504;
    const int64_t whole = static_cast<int64_t>(num_ranks()) * kCols - 7;
    std::vector<Tensor> x;
    for (size_t rank = 0; rank < num_ranks(); ++rank)
      x.push_back(random_tensor(rank + 1, DType::kF32, rows, kCols));
    Tensor got;
    const auto errors = ranks.run([&](size_t rank, const Kernels& kernels, Communicator& own) {
      const Tensor device = kernels.to_device(copy_of(x[rank]));
      Tensor out;
      if (rank == 0) out = Tensor(DType::kF32, {rows, whole}, kernels.allocator());
      own.gather_columns(rank == 0 ? out.view() : TensorView(), device);
      Tensor buffer;
      kernels.to_host(device, buffer);  // waits: the memory is freed here
      if (rank == 0) got = copy_of(kernels.to_host(out, buffer));
    });
    for (const std::string& error : errors) ASSERT_EQ(error, "");
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < whole; ++c)
        ASSERT_EQ(got.view().at(r, c), x[static_cast<size_t>(c / kCols)].view().at(r, c % kCols))
            << r << ", " << c;
  }
}

// x becomes the sum of the ranks' x, again and again: x * ranks each time.
TEST_P(CudaRanksTest, RecordedCallsMeetAgain) {
  constexpr int kRuns = 10;
  Ranks ranks(GetParam().devices, DType::kF32, options(kLong));
  std::vector<double> got(num_ranks());
  const auto errors = ranks.run([&](size_t rank, const Kernels& kernels, Communicator& own) {
    Tensor ones(DType::kF32, {8, 4096});
    for (float& value : ones.span<float>()) value = 1;
    const Tensor x = kernels.to_device(std::move(ones));
    own.all_reduce_sum(x);
    const auto recording = kernels.record([&] { own.all_reduce_sum(x); });
    ASSERT_NE(recording, nullptr);
    for (int i = 0; i < kRuns; ++i) EXPECT_TRUE(recording->run());
    Tensor buffer;
    got[rank] = kernels.to_host(x, buffer).at(7, 4095);
  });
  for (size_t rank = 0; rank < num_ranks(); ++rank) {
    EXPECT_EQ(errors[rank], "");
    EXPECT_EQ(got[rank], std::pow(static_cast<double>(num_ranks()), kRuns + 1));
  }
}

TEST_P(CudaRanksTest, AMissingRankEndsTheStepOfAllAndNoOther) {
  Ranks ranks(GetParam().devices, DType::kF32, options(kShort));
  const size_t lost = num_ranks() - 1;
  const auto sum = [&](const Kernels& kernels, Communicator& own) {
    const Tensor x = kernels.to_device(random_tensor(1, DType::kF32, 1, 64));
    own.all_reduce_sum(x);
    Tensor buffer;
    kernels.to_host(x, buffer);
  };
  const auto errors = ranks.run([&](size_t rank, const Kernels& kernels, Communicator& own) {
    sum(kernels, own);
    if (rank == lost) return;
    sum(kernels, own);
  });
  for (size_t rank = 0; rank < lost; ++rank)
    EXPECT_NE(errors[rank].find(cat("rank ", lost)), std::string::npos) << errors[rank];
  for (const std::string& error :
       ranks.run([&](size_t, const Kernels&kernels, Communicator&own) { sum(kernels, own); }))
    EXPECT_EQ(error, "");
}

// A recorded call waits on the GPU alone. What it has not got is NaN, and the next step says who was missing.
TEST_P(CudaRanksTest, ARankThatIsMissingOnTheGpuIsGivenUp) {
  Ranks ranks(GetParam().devices, DType::kF32, options(kShort));
  const size_t lost = num_ranks() - 1;
  std::vector<double> got(num_ranks());
  const auto errors = ranks.run([&](size_t rank, const Kernels& kernels, Communicator& own) {
    const Tensor x = kernels.to_device(random_tensor(1, DType::kF32, 1, 64));
    own.all_reduce_sum(x);
    const auto recording = kernels.record([&] { own.all_reduce_sum(x); });
    if (rank != lost) recording->run();
    Tensor buffer;
    got[rank] = kernels.to_host(x, buffer).at(0, 63);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  for (size_t rank = 0; rank < lost; ++rank) EXPECT_TRUE(std::isnan(got[rank]));
  try {
    ranks.group().begin_step(2);
    ADD_FAILURE() << "no error";
  } catch (const MissingRank& error) {
    EXPECT_NE(std::string(error.what()).find(cat("rank ", lost)), std::string::npos) << error.what();
  }
}

// By NCCL: near the sum, as it rounds each partial one; the same on all ranks.
TEST(CudaRanks, LongSumsByNccl) {
  const CudaStatus status = cuda_status();
  if (status.devices.size() < 2)
    GTEST_SKIP() << "two GPUs are needed: " << status.devices.size() << " are there";
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    Ranks ranks({0, 1}, dtype, {.timeout = kLong, .nccl = true});
    std::vector<Tensor> x, got(2);
    for (uint64_t rank = 0; rank < 2; ++rank) x.push_back(random_tensor(rank + 1, dtype, 520, 4096));
    const auto errors = ranks.run([&](size_t rank, const Kernels& kernels, Communicator& own) {
      const Tensor device = kernels.to_device(copy_of(x[rank]));
      own.all_reduce_sum(device);
      Tensor buffer;
      got[rank] = copy_of(kernels.to_host(device, buffer));
    });
    for (const std::string& error : errors) ASSERT_EQ(error, "");
    expect_equal(got[1], got[0], "rank 1 beside rank 0");
    expect_equal(got[0], sum_of(x), "two terms, rounded once");
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, CudaRanksTest,
                         ::testing::Values(RanksCase{"TwoOnOne", {0, 0}}, RanksCase{"ThreeOnOne", {0, 0, 0}},
                                           RanksCase{"Two", {0, 1}}, RanksCase{"Four", {0, 1, 2, 3}},
                                           RanksCase{"TwoOnOneThroughHost", {0, 0}, true},
                                           RanksCase{"TwoThroughHost", {0, 1}, true}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace lmdeploy
