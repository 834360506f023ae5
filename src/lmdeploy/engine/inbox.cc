// A queue with a door.
#include "lmdeploy/engine/inbox.h"

#include <utility>

namespace lmdeploy {

Inbox::Submitted Inbox::submit(Commands& command, uint64_t& id) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return Submitted::kClosed;
    if (max_unfinished_ > 0 && unfinished_ >= max_unfinished_) return Submitted::kFull;
    ++unfinished_;
    id = std::get<SubmitCommand>(command.front()).id = ++last_id_;
    commands_.splice(commands_.end(), command);
  }
  wake_.notify_one();
  return Submitted::kAccepted;
}

void Inbox::push(Commands& commands) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    commands_.splice(commands_.end(), commands);
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

Commands Inbox::drain(bool busy) {
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [&] { return busy || closed_ || !commands_.empty(); });
  return std::exchange(commands_, {});
}

}  // namespace lmdeploy
