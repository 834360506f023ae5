// A queue with a door.
#include "lmdeploy/engine/inbox.h"

#include <utility>

namespace lmdeploy {

Inbox::Submitted Inbox::submit(SubmitCommand& command) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return Submitted::kClosed;
    if (max_unfinished_ > 0 && unfinished_ >= max_unfinished_) return Submitted::kFull;
    ++unfinished_;
    command.id = ++last_id_;
    commands_.emplace_back(command);
  }
  wake_.notify_one();
  return Submitted::kAccepted;
}

void Inbox::push(Command command) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    commands_.push_back(std::move(command));
  }
  wake_.notify_one();
}

void Inbox::ended(int64_t count) {
  const std::lock_guard lock(mutex_);
  unfinished_ -= count;
}

void Inbox::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  wake_.notify_one();
}

bool Inbox::closed() {
  const std::lock_guard lock(mutex_);
  return closed_;
}

std::vector<Command> Inbox::drain(bool busy) {
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [&] { return busy || closed_ || !commands_.empty(); });
  return std::exchange(commands_, {});
}

}  // namespace lmdeploy
