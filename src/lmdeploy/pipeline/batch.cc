#include "lmdeploy/pipeline/batch.h"

#include <map>
#include <memory>

#include "lmdeploy/core/ready_queue.h"
#include "lmdeploy/pipeline/streams.h"

namespace lmdeploy {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPollInterval{50};

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
  const auto ready = std::make_shared<ReadyQueue>();  // shared: a late notification may outlive this call
  for (const BatchJob& job : jobs) {
    const size_t i = ready->add_stream();
    responses[i].index = static_cast<int64_t>(job.prompt);
    job.stream->set_notify([ready, i] { ready->push(i); });
  }
  while (!progress.all_done()) {
    if (const auto i = ready->pop(kPollInterval))
      if (read_available(*jobs[*i].stream, responses[*i])) progress.job_ended(jobs[*i].prompt);
    if (poll) poll(progress.done());
  }
  return responses;
}

}  // namespace lmdeploy
