// `lmdeploy convert` as users run it, and a chat with what it wrote.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "../models/random_llama.h"
#include "../pipeline/text_models.h"
#include "program_run.h"

namespace lmdeploy::testing {
namespace {

struct Result {
  int code = 0;
  std::string out, err;
};
Result run(const std::vector<std::string>& arguments, const std::string& input = "") {
  ProgramRun program(arguments);
  program.type(input);
  program.end_input();
  const int code = program.finish();
  return {code, program.out(), program.err()};
}

TEST(Convert, WhatItWritesCanBeTalkedTo) {
  const TempFolder folder;
  const std::string model = folder.path() + "/model", workspace = folder.path() + "/made/workspace";
  std::filesystem::create_directory(model);
  write_chain_model(model);
  const Result first = run({"convert", "qwen", model, "--dst_path", workspace, "--trust-remote-code"});
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(first.out, "Wrote " + workspace + "\n");
  EXPECT_NE(first.err.find("has no effect"), std::string::npos) << first.err;
  const Result second = run({"convert", "qwen", model, "--dst-path=" + workspace, "--model-format", "hf"});
  EXPECT_EQ(second.code, 0) << second.err;
  EXPECT_NE(second.out.find("has been replaced"), std::string::npos) << second.out;
  const Result chat = run({"chat", workspace, "--num-threads", "1"}, "hi\n\n");
  EXPECT_EQ(chat.code, 0) << chat.err;
  EXPECT_NE(chat.out.find("abcdefghijklmnopqrstuvwxyz"), std::string::npos) << chat.out;
}

TEST(Convert, AFolderOfOtherThingsIsLeftAlone) {
  const TempFolder folder;
  write_chain_model(folder.path());
  const Result result = run({"convert", "qwen", folder.path(), "--dst-path", folder.path()});
  EXPECT_EQ(result.code, 1);
  EXPECT_NE(result.err.find("holds what is to be converted"), std::string::npos) << result.err;
  EXPECT_TRUE(std::filesystem::exists(folder.path() + "/config.json"));
}

}  // namespace
}  // namespace lmdeploy::testing
