// `lmdeploy chat` on a pseudo terminal: line editing.
#include <gtest/gtest.h>

#include "../models/random_llama.h"
#include "../pipeline/text_models.h"
#include "program_run.h"

namespace lmdeploy::testing {
namespace {

constexpr const char* kPrompt = "double enter to end input >>> ";
constexpr const char* kBackspace = "\x7f";
constexpr const char* kUp = "\x1b[A";

/// Raw text: the answer is the alphabet after the last letter that was typed.
class TerminalTest : public ::testing::Test {
 protected:
  void SetUp() override { write_chain_model(folder_.path()); }
  std::vector<std::string> chat() const {
    return {"chat", folder_.path(), "--cap", "completion", "--num-threads", "1"};
  }

 private:
  TempFolder folder_;
};

TEST_F(TerminalTest, F77_BackspaceRemovesAWholeCharacter) {
  for (const char* lang : {"LC_ALL=C", "LC_ALL=C.UTF-8"}) {
    ProgramRun run(chat(), ProgramRun::Input::kTerminal, {lang});
    run.expect(kPrompt);
    run.type(std::string("x你") + kBackspace + "\r\r");
    run.expect("yz\r\n");
    run.type(std::string("w😀é") + kBackspace + kBackspace + "\r\r");
    run.expect("xyz\r\n");
    run.expect(kPrompt);
    run.type("exit\r\r");
    run.expect("exiting...");
    EXPECT_EQ(run.finish(), 0);
  }
}

TEST_F(TerminalTest, F77_BrokenBytesAreShownAndSentAsReplacement) {
  ProgramRun run(chat(), ProgramRun::Input::kTerminal, {"LC_ALL=C"});
  run.expect(kPrompt);
  run.type("\xC4\xE3\xE5\xA5w\r\r");
  run.expect("xyz\r\n");
  run.expect(kPrompt);
  run.type("\x04");  // Ctrl-D
  run.expect("exiting...");
  EXPECT_EQ(run.finish(), 0);
}

// While an answer comes the terminal edits lines itself; a Ctrl-D typed then still ends the chat afterwards.
TEST_F(TerminalTest, CtrlDTypedAheadIsKept) {
  ProgramRun run(chat(), ProgramRun::Input::kTerminal);
  run.expect("Loading ");
  run.expect(kPrompt);
  run.type("w\r\r");
  run.type("\x04");
  run.expect("xyz\r\n");
  run.expect("exiting...");
  EXPECT_EQ(run.finish(), 0);
}

TEST_F(TerminalTest, HistoryAndMovingInTheLine) {
  ProgramRun run(chat(), ProgramRun::Input::kTerminal);
  run.expect(kPrompt);
  run.type("w\r\r");
  run.expect("xyz\r\n");
  run.expect(kPrompt);
  run.type(std::string(kUp) + "\r\r");
  run.expect("xyz\r\n");
  run.expect(kPrompt);
  run.type("yx\x1b[D" + std::string(kBackspace) + "\r\r");  // left, then "y" goes
  run.expect("yz\r\n");
  run.expect(kPrompt);
  run.type("\x03");  // Ctrl-C at the prompt
  run.expect("exiting...");
  EXPECT_EQ(run.finish(), 0);
}

TEST_F(TerminalTest, CtrlCDropsWhatIsTypedAndOtherwiseLeaves) {
  ProgramRun run(chat(), ProgramRun::Input::kTerminal);
  run.expect(kPrompt);
  run.type("half");
  run.expect("half");
  run.type("\x03");
  run.expect(std::string("\r\n\r\n") + kPrompt);
  run.type("first\r");
  run.expect("first\r\n");
  run.type("\x03");  // drops the line before, too
  run.expect(kPrompt);
  run.type("w\r\r");
  run.expect("w\r\n\r\nxyz\r\n");
  run.expect(kPrompt);
  run.type("\x03");
  run.expect("\r\nexiting...");
  EXPECT_EQ(run.finish(), 0);
}

TEST_F(TerminalTest, AStoppedProgramEditsOnWhenItContinues) {
  ProgramRun run(chat(), ProgramRun::Input::kTerminal);
  run.expect(kPrompt);
  run.type("xw");
  run.expect("xw");
  run.stop_and_continue();
  run.expect(std::string(kPrompt) + "xw");
  EXPECT_FALSE(run.terminal_edits());
  run.type(std::string(kBackspace) + "\r\r");
  run.expect("yz\r\n");
  run.expect(kPrompt);
  run.type("\x04");
  EXPECT_EQ(run.finish(), 0);
}

TEST_F(TerminalTest, AnotherWidthWritesTheLineAnew) {
  ProgramRun run(chat(), ProgramRun::Input::kTerminal);
  run.expect(kPrompt);
  const std::string row(50 - std::string(kPrompt).size(), 'a');
  run.type(row + "bcw");
  run.expect("bcw");
  run.set_columns(50);
  // The terminal has put "bcw" into a second row: one up, all from there on cleared, and wrapped at 50 again.
  run.expect("\r\x1b[1A\x1b[J" + std::string(kPrompt) + row);
  run.expect("bcw");
  run.type("\r\r");
  run.expect("xyz\r\n");
  run.expect(kPrompt);
  run.type("\x04");
  run.expect("\r\nexiting...");
  EXPECT_EQ(run.finish(), 0);
}

// libedit by itself erases wide characters at the end of a row.
TEST_F(TerminalTest, WideCharactersInSeveralRowsAreWrittenAnew) {
  ProgramRun run(chat(), ProgramRun::Input::kTerminal);
  run.expect(kPrompt);
  std::string row = "a";  // the last column stays empty
  for (int i = 0; i < 24; ++i) row += "你";
  run.type(row + "你w");
  run.expect("你w");
  run.type("\x1b[D\x1b[D\x1b[D");  // left, to the row above
  run.expect("\x1b[J" + std::string(kPrompt) + row);
  run.type("\x1b[C");  // right, to the one below
  run.expect("\r\x1b[1A\x1b[J" + std::string(kPrompt) + row);
  run.type("\r\r");
  run.expect("xyz\r\n");
  run.expect(kPrompt);
  run.type("\x04");
  EXPECT_EQ(run.finish(), 0);
}

TEST_F(TerminalTest, SeveralLinesAndALoadingBar) {
  ProgramRun run(chat(), ProgramRun::Input::kTerminal);
  run.expect("Loading ");
  run.expect("100%");
  run.expect(kPrompt);
  run.type("first\rw\r\r");
  run.expect("xyz\r\n");
  run.expect(kPrompt);
  run.type("exit\r\r");
  EXPECT_EQ(run.finish(), 0);
}

}  // namespace
}  // namespace lmdeploy::testing
