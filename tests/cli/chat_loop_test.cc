// The chat loop itself, where the moment of Ctrl-C matters.
#include "lmdeploy/cli/chat_loop.h"

#include <gtest/gtest.h>

#include <csignal>
#include <sstream>

#include "../models/random_llama.h"
#include "../pipeline/text_models.h"
#include "lmdeploy/cli/interrupts.h"
#include "lmdeploy/cli/line_reader.h"

namespace lmdeploy::testing {
namespace {

/// "hi", an empty line, and the end of the input.
class OneMessage : public LineReader {
 public:
  InputLine read(const std::string&) override {
    if (++num_lines_ > 2) return {InputLine::Kind::kEnd, ""};
    return {InputLine::Kind::kText, num_lines_ == 1 ? "hi" : ""};
  }

 private:
  int num_lines_ = 0;
};

/// The user presses Ctrl-C when the first piece of the answer is shown.
class InterruptingOutput : public std::stringbuf {
 public:
  /// Up to Ctrl-C.
  const std::string& shown() const { return shown_; }

 protected:
  std::streamsize xsputn(const char* bytes, std::streamsize count) override {
    const std::streamsize written = std::stringbuf::xsputn(bytes, count);
    if (shown_.empty() && str() != "\n") {
      shown_ = str();
      std::raise(SIGINT);
    }
    return written;
  }

 private:
  std::string shown_;
};

TEST(ChatLoop, NothingOfAnAnswerFollowsItsInterruption) {
  TempFolder folder;
  write_chain_model(folder.path(), {.after_newline = '0'});
  PipelineConfig config;
  config.model_path = folder.path();
  config.session_len = 4096;
  config.num_threads = 1;
  Pipeline pipeline(config);
  ChatLoopOptions options;
  options.gen_config.max_new_tokens = 4000;
  InterruptingOutput buffer;
  std::ostream out(&buffer);
  std::ostringstream err;
  Interrupts interrupts;
  OneMessage reader;
  ChatLoop(pipeline, options, reader, interrupts, {out, err}).run();
  EXPECT_EQ(buffer.str(), buffer.shown() + "\n\nexiting...\n");
  EXPECT_EQ(err.str(), "");
}

}  // namespace
}  // namespace lmdeploy::testing
