// Running requests that are read together: StreamGroup<ResponseStream> for text, StreamGroup<RequestHandle>
// for ids.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "bindings/handles.h"
#include "bindings/signals.h"
#include "lmdeploy/core/ready_queue.h"

namespace lmdeploy::python {

struct SessionRef {
  std::shared_ptr<ChatSession> impl;
};

inline FinishReason finish_of(const Response& response) { return response.finish_reason; }
inline FinishReason finish_of(const RequestOutput& output) { return output.finish; }

/// Thread-safe, for one reader at a time. Nothing here takes the GIL; bindings call it with the GIL released.
/// In a forked process reading throws Error(kClosed) and cancelling does nothing.
template <typename Stream>
class StreamGroup {
 public:
  using Output = typename decltype(std::declval<Stream&>().next({}))::value_type;

  explicit StreamGroup(std::shared_ptr<PipelineRef> pipeline) : pipeline_(std::move(pipeline)) {}
  /// Cancels what runs. In a forked process the streams are leaked: their engine thread is not there.
  ~StreamGroup() {
    if (pipeline_->in_owner()) return;
    for (Entry& entry : entries_) static_cast<void>(entry.stream.release());
  }
  StreamGroup(const StreamGroup&) = delete;
  StreamGroup& operator=(const StreamGroup&) = delete;

  const PipelineRef& pipeline() const { return *pipeline_; }

  /// Returns the index by which next() names the stream. `session` is kept alive with it.
  size_t add(std::unique_ptr<Stream> stream, std::shared_ptr<ChatSession> session = nullptr) {
    pipeline_->check_owner();
    const std::lock_guard lock(mutex_);
    entries_.push_back({std::move(session), std::move(stream)});
    const size_t idx = ready_->add_stream();
    entries_.back().stream->set_notify([ready = ready_, idx] { ready->push(idx); });
    ++num_open_;
    return idx;
  }

  /// Which stream, and its next piece; nothing after `timeout` or when all have ended.
  std::optional<std::pair<size_t, Output>> next(std::chrono::milliseconds timeout) {
    pipeline_->check_waiter();
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    while (num_open() > 0) {
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      const std::optional<size_t> idx = ready_->pop(std::max(left, std::chrono::milliseconds{0}));
      if (!idx) break;
      if (auto output = read(*idx)) return std::pair(*idx, std::move(*output));
    }
    return std::nullopt;
  }

  size_t num_open() const {
    pipeline_->check_owner();
    const std::lock_guard lock(mutex_);
    return num_open_;
  }

  /// What is cancelled ends with finish_reason kAbort, which is still to be read.
  void cancel(size_t idx) {
    if (!pipeline_->in_owner()) return;
    const std::lock_guard lock(mutex_);
    if (idx < entries_.size() && entries_[idx].stream) entries_[idx].stream->cancel();
  }
  void cancel_all() {
    if (!pipeline_->in_owner()) return;
    const std::lock_guard lock(mutex_);
    for (Entry& entry : entries_) {
      if (entry.stream) entry.stream->cancel();
    }
  }

  int fileno() {
    pipeline_->check_owner();
    return ready_->fileno();
  }

 private:
  struct Entry {
    std::shared_ptr<ChatSession> session;  // outlives the stream
    std::unique_ptr<Stream> stream;        // null once it has ended
  };

  std::optional<Output> read(size_t idx) {
    const std::lock_guard lock(mutex_);
    Entry& entry = entries_[idx];
    if (!entry.stream) return std::nullopt;
    std::optional<Output> output = entry.stream->next(std::chrono::milliseconds{0});
    if (!output) return std::nullopt;
    if (finish_of(*output) == FinishReason::kNone) {
      ready_->push(idx);  // there may be more that no notification will announce
    } else {
      entry.stream.reset();
      --num_open_;
    }
    return output;
  }

  std::shared_ptr<PipelineRef> pipeline_;  // destroyed last
  std::shared_ptr<ReadyQueue> ready_ = std::make_shared<ReadyQueue>();
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
  size_t num_open_ = 0;
};

/// next() that Ctrl-C can end: all streams are then cancelled. Called with the GIL.
template <typename Stream>
auto next_with_signals(StreamGroup<Stream>& group, std::optional<double> timeout_s) {
  return wait_with_signals(
      timeout_s, [&](std::chrono::milliseconds slice) { return group.next(slice); },
      [&](const auto& output) { return output.has_value() || group.num_open() == 0; },
      [&] { group.cancel_all(); });
}

}  // namespace lmdeploy::python
