// A bar that shows how far loading has come, on a terminal only.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

namespace lmdeploy {

class ProgressBar {
 public:
  /// Draws on `out`, a terminal of `columns`; 0 columns: nothing is drawn. `label` gets a line of its own,
  /// which stays: the terminal may break it, while the bar below must fit to be drawn again in place.
  ProgressBar(std::ostream& out, std::string label, int columns);
  ~ProgressBar();  // clears the bar's line
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// Redraws when the percentage has changed.
  void update(int64_t done, int64_t total);

 private:
  std::ostream& out_;
  std::string label_;
  int columns_;
  int percent_ = -1;  // shown
};

}  // namespace lmdeploy
