// `lmdeploy debug compare` as users run it.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "../models/random_llama.h"
#include "program_run.h"

namespace lmdeploy::testing {
namespace {

const std::string kModel = LMDEPLOY_SOURCE_DIR "/tests/data/models/gemma2";

struct Result {
  int code = 0;
  std::string out, err;
};
Result compare(std::vector<std::string> flags) {
  std::vector<std::string> arguments = {"debug", "compare", kModel};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  ProgramRun run(arguments);
  const int code = run.finish();
  return {code, run.out(), run.err()};
}

TEST(DebugCompare, ShowsEachLayerAndEndsWithAVerdict) {
  const Result result = compare({"--ids", "3,1,4"});
  EXPECT_EQ(result.code, 0) << result.err;
  for (const char* name :
       {"embedding", "layers.0.attention", "layers.0.mlp", "layers.1 ", "logits", "all within"})
    EXPECT_NE(result.out.find(name), std::string::npos) << name << "\n" << result.out;
}

TEST(DebugCompare, MarksTheFirstThatDepartsAndFails) {
  const Result result = compare({"--tolerance", "1e-12"});
  EXPECT_EQ(result.code, 1);
  const size_t mark = result.out.find("the first that departs");
  ASSERT_NE(mark, std::string::npos) << result.out;
  EXPECT_EQ(result.out.find("the first that departs", mark + 1), std::string::npos);
  EXPECT_EQ(result.out.find("all within"), std::string::npos);
}

TEST(DebugCompare, ADumpIsAJudge) {
  const TempFolder folder;
  const std::string dump = folder.path() + "/dump.safetensors";
  ASSERT_EQ(compare({"--ids", "3,1,4", "--dump", dump}).code, 0);
  EXPECT_EQ(compare({"--ids", "3,1,4", "--with", dump, "--tolerance", "1e-30"}).code, 0);
  EXPECT_EQ(compare({"--ids", "3,1,5", "--with", dump}).code, 1);
  const Result other_length = compare({"--ids", "3,1", "--with", dump});
  EXPECT_EQ(other_length.code, 1);
  EXPECT_NE(other_length.err.find("\"embedding\" is [3, 64]"), std::string::npos) << other_length.err;
}

TEST(DebugCompare, QuantisedKeysAndValues) {
  const TempFolder folder;
  const std::string exact = folder.path() + "/exact.safetensors";
  ASSERT_EQ(compare({"--dump", exact}).code, 0);
  // Back ends agree but for codes that round the other way; beside exact values the loss shows.
  EXPECT_EQ(compare({"--quant-policy", "8", "--tolerance", "0.02"}).code, 0);
  const Result lossy = compare({"--quant-policy", "int4", "--with", exact});
  EXPECT_EQ(lossy.code, 1);
  EXPECT_NE(lossy.out.find("layers.0.attention"), std::string::npos) << lossy.out;
  EXPECT_EQ(compare({"--quant-policy", "16"}).code, 2);
}

TEST(DebugCompare, AnIdOutsideTheVocabularyIsNamed) {
  const Result result = compare({"--ids", "3,262"});
  EXPECT_EQ(result.code, 1);
  EXPECT_NE(result.err.find("token id 262, expected 0 to 261"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace lmdeploy::testing
