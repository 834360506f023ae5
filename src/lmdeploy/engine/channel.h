// What an engine has said about one request and its reader has not fetched yet.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>

#include "lmdeploy/engine/request.h"

namespace lmdeploy {

/// Adds `newer` to the unread `output`: lists grow, totals are replaced.
void merge_output(RequestOutput& output, RequestOutput&& newer);

/// One writer (the engine), one reader at a time. A slow reader only grows its own channel, to at most what
/// one session can hold. Thread-safe.
class Channel {
 public:
  void push(RequestOutput output);
  /// As RequestHandle::next().
  std::optional<RequestOutput> next(std::chrono::milliseconds timeout);
  /// As RequestHandle::set_notify().
  void set_notify(std::function<void()> notify);
  /// Nobody will read any more: what comes is dropped, and notify is not called again.
  void close();
  /// Whether the last output has been pushed.
  bool finished() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::optional<RequestOutput> pending_;
  bool finished_ = false;  // pushed
  bool closed_ = false;    // or the last output has been taken

  std::mutex notify_mutex_;  // held during the call; taken before mutex_, never after
  std::function<void()> notify_;
};

}  // namespace lmdeploy
