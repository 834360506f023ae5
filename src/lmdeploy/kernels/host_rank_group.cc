// Ranks that are threads of one process and read each other's memory.
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "lmdeploy/kernels/communicator.h"

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
      : timeout_(timeout), calls_(static_cast<size_t>(num_ranks)), views_(static_cast<size_t>(num_ranks)) {
    for (int64_t rank = 0; rank < num_ranks; ++rank) communicators_.emplace_back(*this, rank);
  }

  int64_t num_ranks() const override { return static_cast<int64_t>(calls_.size()); }
  Communicator& communicator(int64_t rank) override { return communicators_[static_cast<size_t>(rank)]; }
  void enter(int64_t) const override {}  // they tell no threads apart
  std::chrono::milliseconds timeout() const override { return timeout_; }
  void begin_step(int64_t step) override;
  void leave(int64_t rank, const std::string& why) override;

  /// Shows the view to the other ranks, and waits for theirs.
  void show(int64_t rank, const char* op, TensorView view);
  const TensorView& view(int64_t rank) const { return views_[static_cast<size_t>(rank)]; }
  /// Returns when all ranks have called it as often as this one.
  void meet(int64_t rank, const char* op);

 private:
  bool all_here(int64_t calls) const;
  void wait(int64_t calls, int64_t rank, const char* op);
  std::string missing(int64_t calls) const;
  void end_step(std::string why);  // with mutex_

  const std::chrono::milliseconds timeout_;
  std::vector<std::atomic<int64_t>> calls_;  // of meet(), by rank, in this step
  std::vector<TensorView> views_;            // between two calls of meet() all ranks may read them
  std::vector<HostCommunicator> communicators_;
  int64_t step_ = 0;
  std::atomic<bool> ended_ = false;  // the step, by `why_`
  std::string why_;
  std::mutex mutex_;
  std::condition_variable changed_;
};

void HostRankGroup::begin_step(int64_t step) {
  const std::lock_guard lock(mutex_);
  step_ = step;
  for (std::atomic<int64_t>& calls : calls_) calls = 0;
  ended_ = false;
  why_.clear();
}

void HostRankGroup::end_step(std::string why) {
  if (ended_) return;  // the first reason is the one that led to the others
  why_ = std::move(why);
  ended_ = true;
  changed_.notify_all();
}

void HostRankGroup::leave(int64_t rank, const std::string& why) {
  const std::lock_guard lock(mutex_);
  end_step(cat("tensor parallelism: rank ", rank, " failed in step ", step_, ": ", why));
}

bool HostRankGroup::all_here(int64_t calls) const {
  for (const std::atomic<int64_t>& other : calls_)
    if (other.load(std::memory_order_acquire) < calls) return false;
  return true;
}

std::string HostRankGroup::missing(int64_t calls) const {
  std::string ranks;
  for (size_t rank = 0; rank < calls_.size(); ++rank)
    if (calls_[rank] < calls) ranks += cat(ranks.empty() ? "" : ", ", rank);
  return ranks;
}

void HostRankGroup::meet(int64_t rank, const char* op) {
  const int64_t calls = calls_[static_cast<size_t>(rank)].fetch_add(1, std::memory_order_acq_rel) + 1;
  constexpr int kLooks = 64;  // the others are mostly a few microseconds away
  for (int i = 0; i < kLooks; ++i) {
    if (all_here(calls)) break;
    std::this_thread::yield();
  }
  wait(calls, rank, op);
}

void HostRankGroup::wait(int64_t calls, int64_t rank, const char* op) {
  std::unique_lock lock(mutex_);
  changed_.notify_all();
  const auto is_over = [&] { return ended_ || all_here(calls); };
  if (!changed_.wait_for(lock, timeout_, is_over))
    end_step(cat("tensor parallelism: rank ", missing(calls), " did not come to ", op, " of step ", step_,
                 " within ", timeout_.count(), " ms, rank ", rank, " was there"));
  if (ended_) throw MissingRank(why_);
}

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
