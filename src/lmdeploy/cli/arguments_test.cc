#include "lmdeploy/cli/arguments.h"

#include <gtest/gtest.h>

namespace lmdeploy {
namespace {

using Words = std::vector<std::string>;

CommandNames program() {
  const CommandNames chat = {{"session-len", "speculative-algorithm", "speculative-draft-model", "tp",
                              "meta-instruction", "hf-overrides"},
                             {}};
  const CommandNames api_server = {{"server-name", "server-port", "ssl"}, {}};
  return {{"version", "help"}, {{"chat", chat}, {"serve", {{"help"}, {{"api_server", api_server}}}}}};
}

Words normalized(const Words& words) { return normalize_arguments(words, program()); }

TEST(Arguments, UnderscoresInFlagNames) {
  EXPECT_EQ(normalized({"chat", "a_b", "--session_len", "3_0"}),
            (Words{"chat", "a_b", "--session-len", "3_0"}));
  EXPECT_EQ(normalized({"chat", "--session_len=a_b"}), (Words{"chat", "--session-len=a_b"}));
  EXPECT_EQ(normalized({"serve", "api_server", "m", "--server_port", "1"}),
            (Words{"serve", "api_server", "m", "--server-port", "1"}));
}

TEST(Arguments, DottedKeysKeepTheirUnderscores) {
  EXPECT_EQ(normalized({"chat", "--hf_overrides.rope_scaling.rope_type", "yarn"}),
            (Words{"chat", "--hf-overrides.rope_scaling.rope_type", "yarn"}));
}

TEST(Arguments, UnambiguousPrefixes) {
  EXPECT_EQ(normalized({"chat", "--meta", "x"}), (Words{"chat", "--meta-instruction", "x"}));
  EXPECT_EQ(normalized({"chat", "--se=4"}), (Words{"chat", "--session-len=4"}));
  EXPECT_EQ(normalized({"--vers"}), Words{"--version"});
  EXPECT_EQ(normalized({"serve", "api_server", "--ss"}), (Words{"serve", "api_server", "--ssl"}));
}

TEST(Arguments, AmbiguousPrefixesNameTheCandidates) {
  try {
    normalized({"chat", "--spec", "x"});
    FAIL() << "nothing was thrown";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "ambiguous argument --spec: it could be --speculative-algorithm, --speculative-draft-model");
  }
}

TEST(Arguments, ExactNamesWinOverLongerOnes) {
  const CommandNames names = {{"cap-more", "cap", "cap-less"}, {}};
  EXPECT_EQ(normalize_arguments({"--cap", "chat"}, names), (Words{"--cap", "chat"}));
}

TEST(Arguments, OthersStayAsTheyAre) {
  EXPECT_EQ(normalized({"chat", "--unknown_flag"}), (Words{"chat", "--unknown-flag"}));
  EXPECT_EQ(normalized({"chat", "-O3", "-v"}), (Words{"chat", "-O3", "-v"}));
  EXPECT_EQ(normalized({"chat", "--", "--session_len"}), (Words{"chat", "--", "--session_len"}));
  EXPECT_EQ(normalized({"chat", "--session-len", "chat"}), (Words{"chat", "--session-len", "chat"}));
}

}  // namespace
}  // namespace lmdeploy
