#include "lmdeploy/cli/progress_bar.h"

#include <algorithm>
#include <ostream>
#include <utility>

#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

constexpr int kWidth = 30;  // columns of the bar

}  // namespace

ProgressBar::ProgressBar(std::ostream& out, std::string label, bool enabled)
    : out_(out), label_(std::move(label)), enabled_(enabled) {}

ProgressBar::~ProgressBar() {
  if (percent_ >= 0) out_ << "\r\033[K" << std::flush;
}

void ProgressBar::update(int64_t done, int64_t total) {
  if (!enabled_ || total <= 0) return;
  const auto percent = static_cast<int>(std::clamp<int64_t>(done * 100 / total, 0, 100));
  if (percent == percent_) return;
  percent_ = percent;
  const auto filled = static_cast<size_t>(percent * kWidth / 100);
  out_ << '\r' << label_ << " [" << std::string(filled, '#') << std::string(kWidth - filled, ' ')
       << cat("] ", percent, "%") << std::flush;
}

}  // namespace lmdeploy
