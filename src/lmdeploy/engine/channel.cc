// Merging and waking.
#include "lmdeploy/engine/channel.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace lmdeploy {
namespace {

constexpr std::chrono::hours kLongest{24 * 365};  // added to the clock, milliseconds::max() would overflow

template <typename T>
void append(std::vector<T>& to, std::vector<T>&& from) {
  if (to.empty()) {
    to = std::move(from);
  } else {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  }
}

}  // namespace

void merge_output(RequestOutput& output, RequestOutput&& newer) {
  append(output.token_ids, std::move(newer.token_ids));
  append(output.logprobs, std::move(newer.logprobs));
  append(output.prompt_logprobs, std::move(newer.prompt_logprobs));
  append(output.logits, std::move(newer.logits));
  append(output.hidden_states, std::move(newer.hidden_states));
  newer.token_ids = std::move(output.token_ids);
  newer.logprobs = std::move(output.logprobs);
  newer.prompt_logprobs = std::move(output.prompt_logprobs);
  newer.logits = std::move(output.logits);
  newer.hidden_states = std::move(output.hidden_states);
  output = std::move(newer);
}

void Channel::push(RequestOutput output) {
  {
    const std::lock_guard lock(mutex_);
    finished_ = finished_ || output.finish != FinishReason::kNone;
    if (closed_) return;
    if (pending_) {
      merge_output(*pending_, std::move(output));
    } else {
      pending_ = std::move(output);
    }
  }
  wake_.notify_all();
  const std::lock_guard lock(notify_mutex_);
  if (notify_) notify_();
}

std::optional<RequestOutput> Channel::next(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  wake_.wait_for(lock, std::min<std::chrono::milliseconds>(timeout, kLongest),
                 [&] { return pending_ || closed_; });
  std::optional<RequestOutput> output = std::exchange(pending_, std::nullopt);
  if (output && output->finish != FinishReason::kNone) closed_ = true;
  return output;
}

void Channel::set_notify(std::function<void()> notify) {
  const std::lock_guard lock(notify_mutex_);
  notify_ = std::move(notify);
  bool something = false;
  {
    const std::lock_guard inner(mutex_);
    something = pending_.has_value();
  }
  if (something && notify_) notify_();
}

void Channel::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    pending_.reset();
  }
  const std::lock_guard lock(notify_mutex_);
  notify_ = nullptr;
}

bool Channel::finished() const {
  const std::lock_guard lock(mutex_);
  return finished_;
}

}  // namespace lmdeploy
