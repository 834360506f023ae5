// A step on its way through the engine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <vector>

#include "lmdeploy/engine/active_request.h"
#include "lmdeploy/engine/scheduler.h"

namespace lmdeploy {

/// What one entry of a step has come to.
struct StepDraw {
  ActiveRequest* active = nullptr;
  const StepEntry* entry = nullptr;
  int64_t row = 0;           // of the logits: that of the entry's last token; those of its guesses follow
  int64_t count = 0;         // tokens drawn
  int64_t num_accepted = 0;  // of them, as guessed
  bool advanced = false;     // the sequence has been, for the step after this one
  bool again = false;        // SampleResult::again
  FinishReason reason = FinishReason::kNone;
};

struct EngineStep {
  std::vector<StepEntry> entries;
  std::vector<ActiveRequest*> requests;   // of the entries; nullptr: nobody waits for what comes of it
  std::vector<ActiveRequest*> too_large;  // need more blocks than the pool has, unless they end before
  std::exception_ptr error;               // why the model has not been given it
  bool planned = false;                   // if not, `error` says why
  std::vector<StepDraw> draws;            // of the entries that somebody waits for

  bool wanted() const {
    const auto is_set = [](const ActiveRequest* active) { return active != nullptr; };
    return std::ranges::any_of(requests, is_set) || std::ranges::any_of(too_large, is_set);
  }
  void clear() {
    entries.clear(), requests.clear(), too_large.clear(), draws.clear();
    error = nullptr;
    planned = false;
  }
  /// How many of its tokens the step computes.
  int64_t tokens_of(const ActiveRequest& active) const {
    const auto found = std::ranges::find(requests, &active);
    return found == requests.end() ? 0 : entries[static_cast<size_t>(found - requests.begin())].count;
  }
  /// Nobody waits for what comes of it for `active`.
  void forget(const ActiveRequest& active) {
    for (auto* list : {&requests, &too_large})
      for (ActiveRequest*& each : *list)
        if (each == &active) each = nullptr;
  }
};

}  // namespace lmdeploy
