#include "lmdeploy/serve/interactive_sessions.h"

#include <algorithm>

namespace lmdeploy {

http::Task<InteractiveSessions::Lease> InteractiveSessions::take(http::Exchange& exchange, int64_t id) {
  while (true) {
    http::Signal signal;
    std::shared_ptr<Entry> taken, oldest;
    {
      const std::lock_guard lock(mutex_);
      const std::shared_ptr<Entry> entry = find_or_make(id);
      if (entry->busy) {
        entry->waiting.push_back(signal);
      } else {
        taken = entry;
        taken->busy = true;
        by_use_.splice(by_use_.begin(), by_use_, taken->place);
        oldest = take_out_oldest();
      }
    }
    if (oldest) end_(oldest->session);
    if (taken) co_return Lease(*this, id, std::move(taken));
    co_await exchange.wait(signal);
  }
}

void InteractiveSessions::forget(int64_t id) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  for (const http::Signal& signal : found->second->waiting) signal.set();
  found->second->waiting.clear();
  by_use_.erase(found->second->place);
  entries_.erase(found);
}

void InteractiveSessions::clear() {
  const std::lock_guard lock(mutex_);
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const bool busy = entry->second->busy;
    if (!busy) by_use_.erase(entry->second->place);
    entry = busy ? std::next(entry) : entries_.erase(entry);
  }
}

size_t InteractiveSessions::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

std::shared_ptr<InteractiveSessions::Entry> InteractiveSessions::find_or_make(int64_t id) {
  std::shared_ptr<Entry>& entry = entries_[id];
  if (entry) return entry;
  entry = std::make_shared<Entry>();
  by_use_.push_front(id);
  entry->place = by_use_.begin();
  return entry;
}

void InteractiveSessions::give_back(int64_t id, const std::shared_ptr<Entry>& entry) {
  const std::lock_guard lock(mutex_);
  entry->busy = false;
  const auto found = entries_.find(id);
  if (found == entries_.end() || found->second != entry) return;
  for (const http::Signal& signal : entry->waiting) signal.set();  // all: one may have gone meanwhile
  entry->waiting.clear();
}

std::shared_ptr<InteractiveSessions::Entry> InteractiveSessions::take_out_oldest() {
  if (entries_.size() <= max_sessions_) return nullptr;
  for (auto id = by_use_.rbegin(); id != by_use_.rend(); ++id) {
    const auto found = entries_.find(*id);
    if (found->second->busy) continue;
    std::shared_ptr<Entry> oldest = std::move(found->second);
    by_use_.erase(oldest->place);
    entries_.erase(found);
    return oldest;
  }
  return nullptr;
}

}  // namespace lmdeploy
