// `lmdeploy chat` over pipes.
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <sstream>

#include "../models/random_llama.h"
#include "../pipeline/text_models.h"
#include "lmdeploy/core/utf8.h"
#include "program_run.h"

namespace lmdeploy::testing {
namespace {

const std::string kPrompt = "\ndouble enter to end input >>> ";
const std::string kAlphabet = "abcdefghijklmnopqrstuvwxyz";

class ChatTest : public ::testing::Test {
 protected:
  std::vector<std::string> chat(const std::vector<std::string>& flags = {}) const {
    std::vector<std::string> arguments = {"chat", folder_.path(), "--num-threads", "1"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return arguments;
  }
  const std::string& folder() const { return folder_.path(); }

 private:
  TempFolder folder_;
};

TEST_F(ChatTest, AnswersFromAPipe) {
  write_chain_model(folder());
  ProgramRun run(chat());
  run.type("hi\nthere\n\nand on\n\nexit\n\n");
  EXPECT_EQ(run.finish(), 0);
  EXPECT_EQ(run.out(), kPrompt + kAlphabet + "\n" + kPrompt + kAlphabet + "\n" + kPrompt + "exiting...\n");
  EXPECT_EQ(run.err(), "");
}

TEST_F(ChatTest, TheEndOfTheInputSendsAndQuits) {
  write_chain_model(folder());
  ProgramRun run(chat());
  run.type("\n   \n\nhi");  // blank input is ignored
  run.end_input();
  EXPECT_EQ(run.finish(), 0);
  EXPECT_EQ(run.out(), kPrompt + kPrompt + kPrompt + kAlphabet + "\n" + kPrompt + "exiting...\n");
}

TEST_F(ChatTest, F77_BrokenBytesDoNotEndTheChat) {
  write_chain_model(folder());
  ProgramRun run(chat({"--cap", "completion", "--session-len", "64"}), ProgramRun::Input::kPipe,
                 {"LANG=C", "LC_ALL=C"});
  run.type("\xE4\xBD\xA0\xE5\xA5\n\n\xC4\xE3\n\nw\n\n");
  run.end_input();
  EXPECT_EQ(run.finish(), 0);
  EXPECT_TRUE(is_utf8(run.out())) << run.out();
  EXPECT_NE(run.out().find(kPrompt + "xyz\n"), std::string::npos) << run.out();
  EXPECT_EQ(run.err(), "");
}

TEST_F(ChatTest, F77_WideCharactersAreWrittenUnderLangC) {
  // "é" is C3 A9: the model continues A9 with A9, and C3 with C3.
  write_chain_model(folder());
  ProgramRun run(chat({"--cap", "completion", "--session-len", "8"}), ProgramRun::Input::kPipe,
                 {"LANG=C", "LC_ALL=C"});
  run.type("é\n\n");
  run.end_input();
  EXPECT_EQ(run.finish(), 0);
  EXPECT_TRUE(is_utf8(run.out())) << run.out();
  EXPECT_NE(run.out().find("\xEF\xBF\xBD"), std::string::npos) << run.out();
}

TEST_F(ChatTest, CtrlCStopsTheAnswerOnly) {
  write_chain_model(folder(), {.after_newline = '0'});
  ProgramRun run(chat({"--session-len", "100000"}));
  run.type("hi\n\n");
  run.expect("0123456789");
  run.send_signal(SIGINT);
  run.expect(kPrompt);
  run.type("again\n\n");
  run.expect("0123456789");
  run.send_signal(SIGINT);
  run.expect(kPrompt);
  run.send_signal(SIGINT);  // at the prompt: quits
  run.expect("exiting...\n");
  EXPECT_EQ(run.finish(), 0);
}

TEST_F(ChatTest, AClosedInputIsItsEnd) {
  write_chain_model(folder());
  ProgramRun run(chat(), ProgramRun::Input::kClosed);
  EXPECT_EQ(run.finish(), 0);
  EXPECT_EQ(run.out(), kPrompt + "exiting...\n");
}

TEST_F(ChatTest, AFullSessionCanBeEnded) {
  write_chain_model(folder(), {.after_newline = '0'});
  ProgramRun run(chat({"--session-len", "64"}));
  run.type("hi\n\nmore\n\nend\n\nhi\n\n");
  run.end_input();
  EXPECT_EQ(run.finish(), 0);
  std::istringstream lines(run.out());
  std::vector<std::string> answers;
  for (std::string line; std::getline(lines, line);)
    if (!line.empty()) answers.push_back(line.substr(kPrompt.size() - 1));
  ASSERT_GE(answers.size(), 3u) << run.out();
  EXPECT_EQ(answers[0].substr(0, 10), "0123456789");
  EXPECT_EQ(answers[1].substr(0, 34), "WARNING: exceed session max length") << run.out();
  EXPECT_NE(run.out().find(kPrompt + kPrompt + "0123456789"), std::string::npos) << run.out();
}

TEST_F(ChatTest, OldSpellingsRun) {
  write_chain_model(folder());
  ProgramRun run({"chat", "turbomind", folder(), "--session_len=128"});
  run.type("hi\n\n");
  run.end_input();
  EXPECT_EQ(run.finish(), 0);
  EXPECT_NE(run.out().find(kAlphabet), std::string::npos);
  EXPECT_NE(run.err().find("old spelling"), std::string::npos);
}

TEST_F(ChatTest, ShowPromptPrintsTextAndIds) {
  write_chain_model(folder());
  ProgramRun run(chat({"--show-prompt", "--chat-template",
                       R"({"model_name": "t", "user": "<", "eoh": ">", "assistant": "w"})"}));
  run.type("a\n\nb\n\n");
  run.end_input();
  EXPECT_EQ(run.finish(), 0);
  EXPECT_NE(run.out().find(">>> <a>w\n[60, 97, 62, 119]\nxyz\n"), std::string::npos)
      << run.out() << run.err();
  EXPECT_NE(run.out().find(">>> <a>wxyz<b>w\n[60, 97, "), std::string::npos) << run.out();  // all of it
}

TEST_F(ChatTest, CodeLlamaInputEndsWithALineOfItsOwn) {
  write_chain_model(folder());
  ProgramRun run(
      chat({"--chat-template", "codellama", "--cap", "infilling", "--show-prompt", "--session-len", "128"}));
  run.type("def f():\n\n  <FILL>\n\nx\n!!\nno hole\n!!\nexit\n!!\n");
  EXPECT_EQ(run.finish(), 0);
  EXPECT_EQ(run.out().rfind("\nenter !! to end the input >>> ", 0), 0u) << run.out();
  EXPECT_NE(run.out().find("<PRE> def f():\n\n   <SUF>\n\nx <MID>\n["), std::string::npos) << run.out();
  EXPECT_NE(run.err().find("<FILL> once"), std::string::npos) << run.err();
}

TEST_F(ChatTest, MetaInstructionByItsPrefix) {
  write_chain_model(folder());
  ProgramRun run(chat({"--meta-instruct", "Be brief", "--chat-template", "internlm2", "--show-prompt"}));
  run.type("hi\n\n");
  run.end_input();
  EXPECT_EQ(run.finish(), 0);
  EXPECT_NE(run.out().find(">>> <|im_start|>system\nBe brief<|im_end|>\n<|im_start|>user\nhi"),
            std::string::npos)
      << run.out() << run.err();
}

TEST_F(ChatTest, AcceptedFlagsWithoutEffectSaySo) {
  write_chain_model(folder());
  ProgramRun run(chat({"--trust-remote-code", "--backend", "pytorch", "--eager-mode", "--tp", "1",
                       "--quant-policy", "none"}));
  run.end_input();
  EXPECT_EQ(run.finish(), 0);
  EXPECT_NE(run.err().find("--trust-remote-code has no effect"), std::string::npos);
}

TEST_F(ChatTest, ABadTurnDoesNotEndTheChat) {
  write_chain_model(folder());
  std::ofstream(folder() + "/tokenizer_config.json")
      << R"({"chat_template":"{% if 'bad' in messages[-1].content %}{{ raise_exception('no bad words') }}{% endif %}w"})";
  ProgramRun run(chat({"--session-len", "64"}));
  run.type("bad\n\ngood\n\n");
  run.end_input();
  EXPECT_EQ(run.finish(), 0);
  EXPECT_NE(run.err().find("no bad words"), std::string::npos) << run.err();
  EXPECT_NE(run.out().find("xyz"), std::string::npos) << run.out();
}

TEST_F(ChatTest, BadInput_ModelsThatDoNotLoad) {
  ProgramRun empty(chat());
  EXPECT_EQ(empty.finish(), 1);
  EXPECT_EQ(empty.out(), "");
  EXPECT_EQ(empty.err().rfind("lmdeploy: error: ", 0), 0u) << empty.err();
  EXPECT_EQ(empty.err().find('\n'), empty.err().size() - 1) << empty.err();
}

TEST_F(ChatTest, AClosedOutputEndsTheProgram) {
  write_chain_model(folder(), {.after_newline = '0'});
  ProgramRun run(chat({"--session-len", "100000"}));
  run.type("hi\n\n");
  run.expect("0123456789");
  run.close_output();
  EXPECT_EQ(run.finish(), 128 + SIGPIPE);
}

TEST_F(ChatTest, LogFileAndLevelFromTheEnvironment) {
  write_chain_model(folder());
  const std::string log = folder() + "/log.txt";
  ProgramRun run(chat(), ProgramRun::Input::kPipe,
                 {"TM_LOG_LEVEL=INFO", "LMDEPLOY_LOG_FILE=" + log, "FORCE_COLOR=1"});
  run.end_input();
  EXPECT_EQ(run.finish(), 0);
  std::stringstream text;
  text << std::ifstream(log).rdbuf();
  EXPECT_NE(text.str().find("loaded " + folder()), std::string::npos) << text.str();
  EXPECT_NE(run.err().find("\033["), std::string::npos) << run.err();
}

}  // namespace
}  // namespace lmdeploy::testing
