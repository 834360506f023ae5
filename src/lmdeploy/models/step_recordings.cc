// A few dozen recordings, the least recently used one makes room.
#include "lmdeploy/models/step_recordings.h"

#include <algorithm>

namespace lmdeploy {

void StepRecordings::run(const Key& key, const std::function<void()>& ops) {
  Entry& entry = find(key);
  entry.last_run = ++runs_;
  if (++entry.num_runs <= kRunsBefore) return ops();
  if (entry.recording != nullptr && entry.recording->run()) return;
  entry.recording = nullptr;  // frees before it is made anew
  entry.recording = kernels_.record(ops);
  if (entry.recording == nullptr || !entry.recording->run()) ops();
}

StepRecordings::Entry& StepRecordings::find(const Key& key) {
  const auto known = std::ranges::find(entries_, key, &Entry::key);
  if (known != entries_.end()) return *known;
  if (entries_.size() < kMostKept) return entries_.emplace_back(Entry{.key = key, .recording = nullptr});
  Entry& oldest = *std::ranges::min_element(entries_, {}, &Entry::last_run);
  oldest = {.key = key, .recording = nullptr};
  return oldest;
}

}  // namespace lmdeploy
