#include "lmdeploy/cli/progress_bar.h"

#include <algorithm>
#include <ostream>
#include <string_view>
#include <utility>

#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

constexpr int kWidth = 30;                        // columns of the bar where there is room
constexpr std::string_view kAround = "[] 100% ";  // the last column stays free: some terminals wrap after it

}  // namespace

ProgressBar::ProgressBar(std::ostream& out, std::string label, int columns)
    : out_(out), label_(std::move(label)), columns_(columns) {}

ProgressBar::~ProgressBar() {
  if (percent_ >= 0) out_ << "\r\033[K" << std::flush;
}

void ProgressBar::update(int64_t done, int64_t total) {
  if (columns_ <= 0 || total <= 0) return;
  const auto percent = static_cast<int>(std::clamp<int64_t>(done * 100 / total, 0, 100));
  if (percent == percent_) return;
  if (percent_ < 0) out_ << label_ << '\n';
  percent_ = percent;
  out_ << '\r';
  const int width = std::min(kWidth, columns_ - static_cast<int>(kAround.size()));
  if (width > 0) {
    const auto filled = static_cast<size_t>(percent * width / 100);
    out_ << '[' << std::string(filled, '#') << std::string(static_cast<size_t>(width) - filled, ' ') << "] ";
  }
  out_ << cat(percent, "%") << std::flush;
}

}  // namespace lmdeploy
