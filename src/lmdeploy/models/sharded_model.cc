#include "lmdeploy/models/sharded_model.h"

#include <algorithm>
#include <string>
#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/thread_pool.h"

namespace lmdeploy {
/// A step's arrays of its own: a rank that is late may still read them when forward() has given up.
struct ShardedModel::Step {
  Step(const StepInput& input, const KvCacheView& first_cache, int64_t step_number)
      : number(step_number),
        token_ids(input.token_ids.begin(), input.token_ids.end()),
        query_start(input.query_start.begin(), input.query_start.end()),
        kv_len(input.kv_len.begin(), input.kv_len.end()),
        block_table(input.block_table.begin(), input.block_table.end()),
        rope_length(input.rope_length.begin(), input.rope_length.end()),
        logit_rows(input.logit_rows.begin(), input.logit_rows.end()),
        max_blocks(input.max_blocks),
        cache(first_cache) {
    caches.push_back(cache.data);
    caches.insert(caches.end(), input.other_caches.begin(), input.other_caches.end());
  }
  StepInput input() const {
    return {.token_ids = token_ids,
            .query_start = query_start,
            .kv_len = kv_len,
            .block_table = block_table,
            .max_blocks = max_blocks,
            .rope_length = rope_length,
            .logit_rows = logit_rows};
  }
  KvCacheView cache_of(size_t rank) const { return {cache.layout, caches[rank], cache.num_blocks}; }

  const int64_t number;
  const std::vector<int32_t> token_ids, query_start, kv_len, block_table, rope_length, logit_rows;
  const int64_t max_blocks;
  const KvCacheView cache;
  std::vector<std::byte*> caches;  // by rank
};

ShardedModel::ShardedModel(DecoderSpec spec, std::vector<std::unique_ptr<Model>> shares,
                           std::span<const Kernels* const> kernels, std::unique_ptr<RankGroup> group)
    : spec_(std::move(spec)), group_(std::move(group)), ranks_(shares.size()) {
  for (size_t rank = 0; rank < shares.size(); ++rank) {
    ranks_[rank].share = std::move(shares[rank]);
    ranks_[rank].kernels = kernels[rank];
  }
  try {
    for (size_t rank = 0; rank < ranks_.size(); ++rank)
      ranks_[rank].thread = start_thread([this, rank] { run_rank(rank); });
  } catch (...) {
    join();
    throw;
  }
}

ShardedModel::~ShardedModel() { join(); }

void ShardedModel::join() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  for (Rank& rank : ranks_)
    if (rank.thread.joinable()) rank.thread.join();
}

TensorView ShardedModel::forward(const StepInput& input, const KvCacheView& cache) {
  LMD_CHECK(input.other_caches.size() + 1 == ranks_.size(), input.other_caches.size(), " other caches");
  LMD_CHECK(input.draws.empty(), "ranks take no drawn tokens");
  std::unique_lock lock(mutex_);
  if (num_done() < ranks_.size())
    throw Error(ErrorCode::kInternal,
                cat("tensor parallelism: rank ", ranks_at_work(), " is still in step ", num_steps_,
                    ": no other can begin before that", group_->what_to_try()));
  auto step = std::make_shared<const Step>(input, cache, num_steps_ + 1);
  group_->begin_step(step->number);
  num_steps_ = step->number;
  step_ = std::move(step);
  error_.reset();
  changed_.notify_all();
  wait(lock);
  if (error_) throw Error(*error_);
  return logits_;
}

// Once a rank has come to the end the others are not far from it. Where none does, they wait for each other
// on their devices; how long a step may take nobody knows, but it is not that long.
void ShardedModel::wait(std::unique_lock<std::mutex>& lock) {
  const auto timeout = group_->timeout(), longest = kMostTimeouts * timeout;
  const auto give_up = [&](std::chrono::milliseconds after) {
    if (!error_)
      error_ = Error(ErrorCode::kInternal,
                     cat("tensor parallelism: rank ", ranks_at_work(), " did not end step ", num_steps_,
                         " within ", after.count(), " ms", group_->what_to_try()));
  };
  if (!changed_.wait_for(lock, longest, [&] { return num_done() > 0; })) {
    give_up(longest);
    lock.unlock();
    group_->leave(0, cat("no rank ended the step within ", longest.count(), " ms"));
    lock.lock();
  } else if (!changed_.wait_for(lock, timeout, [&] { return num_done() == ranks_.size(); })) {
    give_up(timeout);
  }
}

void ShardedModel::run_rank(size_t rank) {
  int64_t done = 0;
  while (true) {
    std::shared_ptr<const Step> step;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || num_steps_ > done; });
      if (stopping_) return;
      step = step_;
    }
    compute(rank, *step);
    done = step->number;
  }
}

void ShardedModel::compute(size_t rank, const Step& step) {
  try {
    if (step.number == 1) group_->enter(static_cast<int64_t>(rank));
    const TensorView logits = ranks_[rank].share->forward(step.input(), step.cache_of(rank));
    if (rank == 0) logits_ = logits;
  } catch (const MissingRank& error) {
    note(error);
  } catch (const std::exception& error) {  // noted before those that the others will have because of it
    const std::string why = describe(error);
    note(
        {code_of(error), cat("tensor parallelism: rank ", rank, " failed in step ", step.number, ": ", why)});
    group_->leave(static_cast<int64_t>(rank), why);
  }
  const std::lock_guard lock(mutex_);
  ranks_[rank].steps_done = step.number;
  changed_.notify_all();
}

void ShardedModel::note(const Error& error) {
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = error;
}

size_t ShardedModel::num_done() const {
  return static_cast<size_t>(
      std::ranges::count_if(ranks_, [&](const Rank& rank) { return rank.steps_done == num_steps_; }));
}

std::string ShardedModel::ranks_at_work() const {
  std::string list;
  for (size_t rank = 0; rank < ranks_.size(); ++rank)
    if (ranks_[rank].steps_done < num_steps_) list += cat(list.empty() ? "" : ", ", rank);
  return list;
}

size_t ShardedModel::weight_bytes() const {
  size_t sum = 0;
  for (const Rank& rank : ranks_) sum += rank.share->weight_bytes();
  return sum;
}

size_t ShardedModel::buffer_bytes() const {
  size_t sum = 0;
  for (const Rank& rank : ranks_) sum += rank.share->buffer_bytes();
  return sum;
}

StepWork ShardedModel::step_work(const StepShape& shape, DType kv_dtype) const {
  StepWork sum;
  for (const Rank& rank : ranks_) {
    const StepWork own = rank.share->step_work(shape, kv_dtype);
    sum.weight_bytes += own.weight_bytes;
    sum.kv_bytes += own.kv_bytes;
    sum.flops += own.flops;
    sum.attention_flops += own.attention_flops;
  }
  return sum;
}

std::vector<Allocator*> ShardedModel::other_ranks_memory() const {
  std::vector<Allocator*> memory;
  for (size_t rank = 1; rank < ranks_.size(); ++rank) memory.push_back(&ranks_[rank].kernels->allocator());
  return memory;
}

// Where all ranks have the host's memory, each has its part of what is free there.
size_t ShardedModel::cache_memory(const Kernels& kernels) const {
  if (!kernels.has_own_memory()) return kernels.available_memory() / ranks_.size();
  size_t least = kernels.available_memory();
  for (size_t rank = 1; rank < ranks_.size(); ++rank)
    least = std::min(least, ranks_[rank].kernels->available_memory());
  return least;
}

}  // namespace lmdeploy
