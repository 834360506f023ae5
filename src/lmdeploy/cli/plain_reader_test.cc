#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <sstream>

#include "lmdeploy/cli/interrupts.h"
#include "lmdeploy/cli/line_reader.h"

namespace lmdeploy {
namespace {

/// A pipe whose read end is the user's input.
class PlainReaderTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(::pipe(ends_), 0); }
  void TearDown() override {
    ::close(ends_[0]);
    end_input();
  }
  void type(const std::string& bytes) {
    ASSERT_EQ(::write(ends_[1], bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
  void end_input() {
    if (ends_[1] >= 0) ::close(ends_[1]);
    ends_[1] = -1;
  }

  int ends_[2];
  Interrupts interrupts_;
  std::ostringstream out_;
};

TEST_F(PlainReaderTest, LinesAndTheEnd) {
  const auto reader = make_plain_reader(ends_[0], out_, interrupts_);
  type("one\ntwo\r\n\nlast");
  end_input();
  EXPECT_EQ(reader->read("> ").text, "one");
  EXPECT_EQ(reader->read("").text, "two");
  EXPECT_EQ(reader->read("").text, "");
  EXPECT_EQ(reader->read("").text, "last");
  EXPECT_EQ(reader->read("").kind, InputLine::Kind::kEnd);
  EXPECT_EQ(reader->read("").kind, InputLine::Kind::kEnd);
  EXPECT_EQ(out_.str(), "> ");
}

TEST_F(PlainReaderTest, F77_BrokenBytesBecomeReplacementCharacters) {
  const auto reader = make_plain_reader(ends_[0], out_, interrupts_);
  type("\xE4\xBD\xA0\xE5\xA5\n\xC4\xE3\n好\n");
  EXPECT_EQ(reader->read("").text, "你\xEF\xBF\xBD");
  EXPECT_EQ(reader->read("").text, "\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(reader->read("").text, "好");
}

TEST_F(PlainReaderTest, CtrlCWhileWaiting) {
  const auto reader = make_plain_reader(ends_[0], out_, interrupts_);
  std::raise(SIGINT);
  EXPECT_EQ(reader->read("").kind, InputLine::Kind::kInterrupted);
  type("next\n");
  EXPECT_EQ(reader->read("").text, "next");
}

}  // namespace
}  // namespace lmdeploy
