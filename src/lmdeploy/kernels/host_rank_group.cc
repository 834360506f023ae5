// Ranks that are threads of one process and read each other's memory.
#include <algorithm>
#include <cstring>
#include <vector>

#include "lmdeploy/kernels/communicator.h"
#include "lmdeploy/kernels/rank_meeting.h"

namespace lmdeploy {
namespace {

class HostRankGroup;

class HostCommunicator final : public Communicator {
 public:
  HostCommunicator(HostRankGroup& group, int64_t rank) : group_(group), rank_(rank) {}
  int64_t rank() const override { return rank_; }
  void all_reduce_sum(TensorView x) override;
  void gather_columns(TensorView out, ConstTensorView x) override;

 private:
  HostRankGroup& group_;
  const int64_t rank_;
};

class HostRankGroup final : public RankGroup {
 public:
  HostRankGroup(int64_t num_ranks, std::chrono::milliseconds timeout)
      : meeting_(num_ranks, timeout), views_(static_cast<size_t>(num_ranks)) {
    for (int64_t rank = 0; rank < num_ranks; ++rank) communicators_.emplace_back(*this, rank);
  }

  int64_t num_ranks() const override { return meeting_.num_ranks(); }
  Communicator& communicator(int64_t rank) override { return communicators_[static_cast<size_t>(rank)]; }
  void enter(int64_t) const override {}  // they tell no threads apart
  std::chrono::milliseconds timeout() const override { return meeting_.timeout(); }
  void begin_step(int64_t step) override { meeting_.begin_step(step); }
  void leave(int64_t rank, const std::string& why) override { meeting_.leave(rank, why); }

  /// Shows the view to the other ranks, and waits for theirs.
  void show(int64_t rank, const char* op, TensorView view);
  const TensorView& view(int64_t rank) const { return views_[static_cast<size_t>(rank)]; }
  void meet(int64_t rank, const char* op) { meeting_.meet(rank, op); }

 private:
  RankMeeting meeting_;
  std::vector<TensorView> views_;  // between two meetings all ranks may read them
  std::vector<HostCommunicator> communicators_;
};

void HostRankGroup::show(int64_t rank, const char* op, TensorView view) {
  views_[static_cast<size_t>(rank)] = view;
  meet(rank, op);
}

// Elements [begin, end) of all ranks, flattened: added up once, by whoever calls, and written to all.
template <typename T>
void add_up(const HostRankGroup& group, int64_t begin, int64_t end) {
  constexpr int64_t kPiece = 1024;
  T sum[kPiece];
  for (int64_t from = begin; from < end; from += kPiece) {
    const int64_t count = std::min(kPiece, end - from);
    const size_t bytes = static_cast<size_t>(count) * sizeof(T);
    const auto piece = [&](int64_t rank) { return group.view(rank).row<T>(0) + from; };
    std::memcpy(sum, piece(0), bytes);
    for (int64_t rank = 1; rank < group.num_ranks(); ++rank) {
      const T* own = piece(rank);
      for (int64_t i = 0; i < count; ++i) sum[i] += own[i];
    }
    for (int64_t rank = 0; rank < group.num_ranks(); ++rank) std::memcpy(piece(rank), sum, bytes);
  }
}

void HostCommunicator::all_reduce_sum(TensorView x) {
  constexpr const char* kOp = "all_reduce_sum";
  if (x.dtype() != DType::kF32 && x.dtype() != DType::kF64)
    throw Error(ErrorCode::kUnsupported, cat("ranks in host memory add up f32 and f64, not ", x.dtype()));
  LMD_CHECK(x.contiguous(), "rows of ", x.row_stride_bytes(), " bytes");
  group_.show(rank_, kOp, x);
  LMD_CHECK(x.shape() == group_.view(0).shape() && x.dtype() == group_.view(0).dtype(), "rank ", rank_,
            " has ", to_string(x.shape()), ", rank 0 ", to_string(group_.view(0).shape()));
  const int64_t count = x.shape().numel(), ranks = group_.num_ranks();
  const int64_t begin = count * rank_ / ranks, end = count * (rank_ + 1) / ranks;
  if (x.dtype() == DType::kF32)
    add_up<float>(group_, begin, end);
  else
    add_up<double>(group_, begin, end);
  group_.meet(rank_, kOp);
}

void HostCommunicator::gather_columns(TensorView out, ConstTensorView x) {
  constexpr const char* kOp = "gather_columns";
  group_.show(rank_, kOp, out);
  const TensorView& whole = group_.view(0);
  const int64_t first = rank_ * x.cols(), count = std::min(x.cols(), whole.cols() - first);
  if (count > 0) {
    LMD_CHECK(whole.rows() == x.rows() && whole.dtype() == x.dtype(), to_string(whole.shape()), " of ",
              to_string(x.shape()));
    const auto bytes = static_cast<size_t>(row_bytes(x.dtype(), count));
    const TensorView own = whole.slice_cols(first, count);
    for (int64_t row = 0; row < x.rows(); ++row) std::memcpy(own.row_data(row), x.row_data(row), bytes);
  }
  group_.meet(rank_, kOp);
}

}  // namespace

std::unique_ptr<RankGroup> make_host_rank_group(int64_t num_ranks, std::chrono::milliseconds timeout) {
  return std::make_unique<HostRankGroup>(num_ranks, timeout);
}

}  // namespace lmdeploy
