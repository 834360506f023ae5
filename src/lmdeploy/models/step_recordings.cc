// A few dozen recordings, the least recently used one makes room.
#include "lmdeploy/models/step_recordings.h"

#include <algorithm>

namespace lmdeploy {

void StepRecordings::run(const Key& key, const std::function<void()>& ops) {
  bool is_new = false;
  Entry& entry = find(key, is_new);
  entry.last_run = ++runs_;
  if (is_new) return ops();
  if (entry.recording != nullptr && entry.recording->run()) return;
  entry.recording = nullptr;  // frees before it is made anew
  entry.recording = kernels_.record(ops);
  if (entry.recording == nullptr || !entry.recording->run()) ops();
}

StepRecordings::Entry& StepRecordings::find(const Key& key, bool& is_new) {
  const auto known = std::ranges::find(entries_, key, &Entry::key);
  is_new = known == entries_.end();
  if (!is_new) return *known;
  if (entries_.size() < kMostKept) return entries_.emplace_back(Entry{.key = key, .recording = nullptr});
  Entry& oldest = *std::ranges::min_element(entries_, {}, &Entry::last_run);
  oldest = {.key = key, .recording = nullptr};
  return oldest;
}

}  // namespace lmdeploy
