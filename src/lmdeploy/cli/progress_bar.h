// A bar that shows how far loading has come, on a terminal only.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

namespace lmdeploy {

class ProgressBar {
 public:
  /// Draws on `out` when `enabled`. `label` stands before the bar.
  ProgressBar(std::ostream& out, std::string label, bool enabled);
  ~ProgressBar();  // clears the line
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// Redraws when the percentage has changed.
  void update(int64_t done, int64_t total);

 private:
  std::ostream& out_;
  std::string label_;
  bool enabled_;
  int percent_ = -1;  // shown
};

}  // namespace lmdeploy
