#include "lmdeploy/pipeline/batch.h"

#include <condition_variable>
#include <map>
#include <mutex>
#include <utility>

#include "lmdeploy/pipeline/streams.h"

namespace lmdeploy {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPollInterval{50};

/// Which streams have something new. Filled by the engine thread, emptied by the reader.
class ReadyList {
 public:
  void add(size_t job) {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(job);
    changed_.notify_one();
  }
  /// May hold a job twice. Empty after `timeout`.
  std::vector<size_t> take(milliseconds timeout) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, timeout, [&] { return !jobs_.empty(); });
    return std::exchange(jobs_, {});
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<size_t> jobs_;
};

/// Counts prompts whose jobs have all ended.
class Progress {
 public:
  explicit Progress(const std::vector<BatchJob>& jobs) {
    for (const BatchJob& job : jobs) ++open_jobs_[job.prompt];
  }
  void job_ended(size_t prompt) {
    if (--open_jobs_[prompt] == 0) ++done_;
  }
  size_t done() const { return done_; }
  bool all_done() const { return done_ == open_jobs_.size(); }

 private:
  std::map<size_t, size_t> open_jobs_;
  size_t done_ = 0;
};

/// Returns whether the stream ended just now.
bool read_available(ResponseStream& stream, Response& whole) {
  if (stream.finished()) return false;
  while (const std::optional<Response> piece = stream.next(milliseconds{0})) append_piece(whole, *piece);
  return stream.finished();
}

}  // namespace

std::vector<Response> collect(std::vector<BatchJob> jobs, const std::function<void(size_t done)>& poll) {
  std::vector<Response> responses(jobs.size());
  Progress progress(jobs);
  const auto ready = std::make_shared<ReadyList>();  // shared: a late notification may outlive this call
  for (size_t i = 0; i < jobs.size(); ++i) {
    responses[i].index = static_cast<int64_t>(jobs[i].prompt);
    jobs[i].stream->set_notify([ready, i] { ready->add(i); });
  }
  while (!progress.all_done()) {
    for (const size_t i : ready->take(kPollInterval))
      if (read_available(*jobs[i].stream, responses[i])) progress.job_ended(jobs[i].prompt);
    if (poll) poll(progress.done());
  }
  return responses;
}

}  // namespace lmdeploy
