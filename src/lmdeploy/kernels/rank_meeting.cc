#include "lmdeploy/kernels/rank_meeting.h"

#include <thread>
#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/kernels/communicator.h"

namespace lmdeploy {

void RankMeeting::begin_step(int64_t step) {
  const std::lock_guard lock(mutex_);
  step_ = step;
  for (std::atomic<int64_t>& calls : calls_) calls = 0;
  ended_ = false;
  why_.clear();
}

void RankMeeting::end_step(std::string why) {
  if (ended_) return;  // the first reason is the one that led to the others
  why_ = std::move(why);
  ended_ = true;
  changed_.notify_all();
}

void RankMeeting::leave(int64_t rank, const std::string& why) {
  const std::lock_guard lock(mutex_);
  end_step(cat("tensor parallelism: rank ", rank, " failed in step ", step_, ": ", why));
}

bool RankMeeting::all_here(int64_t calls) const {
  for (const std::atomic<int64_t>& other : calls_)
    if (other.load(std::memory_order_acquire) < calls) return false;
  return true;
}

std::string RankMeeting::missing(int64_t calls) const {
  std::string ranks;
  for (size_t rank = 0; rank < calls_.size(); ++rank)
    if (calls_[rank] < calls) ranks += cat(ranks.empty() ? "" : ", ", rank);
  return ranks;
}

void RankMeeting::meet(int64_t rank, const char* op) {
  const int64_t calls = calls_[static_cast<size_t>(rank)].fetch_add(1, std::memory_order_acq_rel) + 1;
  constexpr int kLooks = 64;  // the others are mostly a few microseconds away
  for (int i = 0; i < kLooks; ++i) {
    if (all_here(calls)) break;
    std::this_thread::yield();
  }
  wait(calls, rank, op);
}

void RankMeeting::wait(int64_t calls, int64_t rank, const char* op) {
  std::unique_lock lock(mutex_);
  changed_.notify_all();
  const auto is_over = [&] { return ended_ || all_here(calls); };
  if (!changed_.wait_for(lock, timeout_, is_over))
    end_step(cat("tensor parallelism: rank ", missing(calls), " did not come to ", op, " of step ", step_,
                 " within ", timeout_.count(), " ms, rank ", rank, " was there", what_to_try_));
  if (ended_) throw MissingRank(why_);
}

}  // namespace lmdeploy
