#include "lmdeploy/bench/serving_run.h"

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

#include "lmdeploy/bench/measure.h"
#include "lmdeploy/core/error.h"
#include "lmdeploy/core/random.h"

namespace lmdeploy {
namespace {

constexpr std::chrono::milliseconds kLook{1}, kPatience{1000};

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

/// A request that runs, and when its tokens came.
class TimedRequest {
 public:
  TimedRequest(Engine& engine, Request request, Clock::time_point arrival)
      : arrival_(arrival), handle_(engine.submit(std::move(request))) {
    handle_->set_notify([this] { tokens_.push_back(Clock::now()); });
  }

  /// Waits for its last output and adds what it gave. Throws Error where that is one.
  void finish(ServingFigures& figures, std::vector<double>& first_tokens, std::vector<double>& gaps) {
    const RequestOutput last = read_to_end();
    handle_.reset();  // from here on nobody adds to tokens_
    // A token that came while set_notify() ran has been noted twice.
    if (static_cast<int64_t>(tokens_.size()) > last.generated_tokens) tokens_.erase(tokens_.begin() + 1);
    figures.prompt_tokens += last.prompt_tokens;
    figures.output_tokens += last.generated_tokens;
    end_ = last.times.finished;
    first_tokens.push_back(seconds_between(arrival_, last.times.first_token));
    for (size_t i = 1; i < tokens_.size(); ++i) gaps.push_back(seconds_between(tokens_[i - 1], tokens_[i]));
  }
  Clock::time_point end() const { return end_; }

 private:
  RequestOutput read_to_end() {
    for (;;) {
      std::optional<RequestOutput> output = handle_->next(kPatience);
      if (!output || output->finish == FinishReason::kNone) continue;
      if (output->finish == FinishReason::kError) throw Error(output->error_code, output->error_message);
      return std::move(*output);
    }
  }

  const Clock::time_point arrival_;
  Clock::time_point end_;
  std::vector<Clock::time_point> tokens_;  // the engine's thread adds to it
  std::unique_ptr<RequestHandle> handle_;  // last: it calls back
};

class ServingRun {
 public:
  ServingRun(Engine& engine, int64_t vocab_size, uint64_t seed)
      : engine_(engine), vocab_size_(vocab_size), rng_(seed), before_(engine.stats()) {}

  void submit(std::span<const TraceRequest> trace) {
    for (const TraceRequest& planned : trace) {
      const auto arrival = start_ + std::chrono::duration_cast<Clock::duration>(
                                        std::chrono::duration<double>(planned.arrival_s));
      while (Clock::now() < arrival) {
        look();
        std::this_thread::sleep_until(std::min<Clock::time_point>(arrival, Clock::now() + kLook));
      }
      requests_.push_back(std::make_unique<TimedRequest>(engine_, make_request(planned), arrival));
    }
  }

  ServingFigures finish() {
    while (num_ended() < static_cast<int64_t>(requests_.size())) {
      look();
      std::this_thread::sleep_for(kLook);
    }
    std::vector<double> first_tokens, gaps;
    Clock::time_point end = start_;
    for (const auto& request : requests_) {
      request->finish(figures_, first_tokens, gaps);
      end = std::max(end, request->end());
    }
    figures_.num_requests = static_cast<int64_t>(requests_.size());
    figures_.seconds = seconds_between(start_, end);
    figures_.preemptions = engine_.stats().preemptions - before_.preemptions;
    figures_.first_token_s = percentiles_of(std::move(first_tokens));
    figures_.token_gap_s = percentiles_of(std::move(gaps));
    return figures_;
  }

 private:
  Request make_request(const TraceRequest& planned) {
    Request request;
    for (int64_t i = 0; i < planned.prompt_tokens; ++i)
      request.input_ids.push_back(static_cast<int>(rng_.below(static_cast<uint64_t>(vocab_size_))));
    request.max_new_tokens = planned.output_tokens;
    return request;
  }
  void look() { figures_.largest_batch = std::max(figures_.largest_batch, engine_.stats().running); }
  int64_t num_ended() const {
    const auto ended = [](const EngineStats& s) { return s.finished + s.aborted + s.failed; };
    return ended(engine_.stats()) - ended(before_);
  }

  Engine& engine_;
  const int64_t vocab_size_;
  Rng rng_;
  const EngineStats before_;
  ServingFigures figures_;
  const Clock::time_point start_ = Clock::now();
  std::vector<std::unique_ptr<TimedRequest>> requests_;
};

}  // namespace

ServingFigures serve_trace(Engine& engine, std::span<const TraceRequest> trace, int64_t vocab_size,
                           uint64_t seed) {
  LMD_CHECK(std::ranges::is_sorted(trace, {}, &TraceRequest::arrival_s), "a trace out of order");
  ServingRun run(engine, vocab_size, seed);
  run.submit(trace);
  return run.finish();
}

}  // namespace lmdeploy
