// Loads a model and says how long it took.
#pragma once

#include <functional>
#include <string>

#include "lmdeploy/bench/measure.h"
#include "lmdeploy/bench/random_checkpoint.h"

namespace lmdeploy {

struct LoadFigures {
  double load_s = 0;         // open and load, without the time that random weights take to be made
  double first_token_s = 0;  // from the start of that to the first token of a short prompt
  double bytes = 0;          // of the checkpoint
  double copy_s = 0;         // to copy as many bytes from warm to fresh memory, by one thread
};

class LoadTimer {
 public:
  using Load = std::function<void(const Checkpoint&)>;

  /// Opens the checkpoint and hands it to `load`. Its files are in the page cache before the clock starts.
  void time_files(const std::string& path, const Load& load);
  void time_random(const RandomCheckpoint& checkpoint, const Load& load);
  /// The first token has come.
  void stop() { figures_.first_token_s = seconds_since(started_) - making_s_; }

  const LoadFigures& figures() const { return figures_; }

 private:
  LoadFigures figures_;
  Clock::time_point started_;
  double making_s_ = 0;
};

}  // namespace lmdeploy
