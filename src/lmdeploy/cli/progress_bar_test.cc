#include "lmdeploy/cli/progress_bar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

namespace lmdeploy {
namespace {

std::string drawn(int columns) {
  std::ostringstream out;
  {
    ProgressBar bar(out, "Loading a/rather/long/path", columns);
    for (int64_t done = 0; done <= 7; ++done) bar.update(done, 7);
  }
  return out.str();
}

TEST(ProgressBar, FitsTheTerminal) {
  for (const int columns : {5, 8, 9, 12, 20, 38, 39, 80}) {
    std::istringstream bars(drawn(columns));
    std::string bar;
    std::getline(bars, bar);
    EXPECT_EQ(bar, "Loading a/rather/long/path");
    size_t widest = 0;
    while (std::getline(bars, bar, '\r'))
      if (bar.find('\033') == std::string::npos) widest = std::max(widest, bar.size());
    EXPECT_LT(widest, static_cast<size_t>(columns));
    EXPECT_GE(widest, std::min<size_t>(37, static_cast<size_t>(columns) - 1) - (columns < 9 ? 3 : 0));
  }
}

TEST(ProgressBar, EndsFullAndClearsItsLine) {
  const std::string text = drawn(80);
  EXPECT_NE(text.find("\r[##############################] 100%\r\033[K"), std::string::npos) << text;
}

TEST(ProgressBar, DrawsNothingWithoutATerminal) { EXPECT_EQ(drawn(0), ""); }

TEST(ProgressBar, AnEmptyTotalDrawsNothing) {
  std::ostringstream out;
  ProgressBar(out, "Loading", 80).update(0, 0);
  EXPECT_EQ(out.str(), "");
}

}  // namespace
}  // namespace lmdeploy
