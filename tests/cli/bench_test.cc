// `lmdeploy bench` as users run it: what it prints and counts, never how fast it was.
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "../models/random_llama.h"
#include "lmdeploy/core/json.h"
#include "program_run.h"

namespace lmdeploy::testing {
namespace {

struct Result {
  int code = 0;
  std::string out, err;
};
Result bench(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "bench");
  ProgramRun run(arguments);
  const int code = run.finish();
  return {code, run.out(), run.err()};
}

void expect_in(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " in:\n" << text;
}

size_t num_lines(const std::string& text, const std::string& start) {
  size_t count = 0;
  for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
    count += text.compare(at, start.size(), start) == 0 ? 1 : 0;
    if (text.find('\n', at) == std::string::npos) break;
  }
  return count;
}

TEST(Bench, MachineHasARowForEachCombination) {
  const Result result = bench({"machine", "--threads", "3", "--memory", "4", "--rounds", "2"});
  ASSERT_EQ(result.code, 0) << result.err;
  expect_in(result.out, {"threads used: 3", "load average", "NUMA nodes", "4 KiB pages", "the system granted",
                         "An empty parallel loop"});
  for (const char* threads : {"1        ", "2        ", "3        "})
    EXPECT_EQ(num_lines(result.out, threads), 4u) << result.out;
}

TEST(Bench, KernelsPrintsALineForEachCase) {
  const Result result = bench({"kernels", "--filter", "^norm/rms/576/|^glu/silu/1536/tokens:1$",
                               "--sample-ms", "1", "--memory", "8"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(num_lines(result.out, "norm/rms/576/tokens:"), 3u) << result.out;
  EXPECT_EQ(num_lines(result.out, "glu/silu/1536/tokens:1 "), 1u) << result.out;
  expect_in(result.out, {"limits at first: read ", " % of read"});
}

TEST(Bench, KernelsListsNames) {
  const Result result = bench({"kernels", "--list", "--filter", "linear/q6_k/int8"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(num_lines(result.out, "linear/q6_k/int8/"), 14u);  // two shapes, seven numbers of tokens
  EXPECT_EQ(num_lines(result.out, ""), 14u);
}

// Shape "tiny": 2 layers, hidden 256, inner 512, 4 heads and 2 KV heads of 64, vocabulary 512.
constexpr double kLayers = 2 * (256 * (256 + 2 * 128) + 256 * 256 + 3 * 256 * 512), kHead = 512 * 256,
                 kNorms = 5 * 256 * 4;

Json figures_of(std::vector<std::string> flags, int rounds = 2) {
  const TempFolder folder;
  const std::string file = folder.path() + "/figures.json";
  flags.insert(flags.begin(), "model");
  for (const std::string& flag : {std::string("--rounds"), std::to_string(rounds), std::string("--memory"),
                                  std::string("8"), std::string("--json"), file})
    flags.emplace_back(flag);
  const Result result = bench(flags);
  EXPECT_EQ(result.code, 0) << result.err;
  return result.code == 0 ? read_json_file(file) : Json(JsonObject());
}

TEST(Bench, ModelCountsWhatItReadsAndComputes) {
  const Json figures = figures_of({"--shape", "tiny", "--weights", "bf16", "--prompt", "24", "--decode", "8",
                                   "--batch", "1,4", "--threads", "2"});
  EXPECT_EQ(figures.at("threads").as_int64(), 2);
  EXPECT_EQ(figures.at("architecture").as_string(), "LlamaForCausalLM");
  EXPECT_EQ(figures.at("load").at("bytes").to_number<double>(), 2 * (kLayers + 2 * kHead) + kNorms);
  EXPECT_EQ(figures.at("memory").at("weight_bytes").to_number<double>(), 2 * (kLayers + 2 * kHead) + kNorms);
  EXPECT_EQ(figures.at("memory").at("kv_pool_bytes").to_number<double>(), 4 * 64 * 1024);  // a block each
  const JsonArray& cases = figures.at("cases").as_array();
  ASSERT_EQ(cases.size(), 3u);
  EXPECT_EQ(cases[0].at("kind").as_string(), "prefill");
  for (const Json& c : cases) {
    EXPECT_EQ(c.at("forward_tokens_per_s").at("samples").as_array().size(), 2u);
    EXPECT_EQ(c.at("engine_tokens_per_s").at("samples").as_array().size(), 2u);
    EXPECT_GT(c.at("engine_share").at("min").as_double(), 0);
  }
  const Json& decode = cases[2];
  EXPECT_EQ(decode.at("batch").as_int64(), 4);
  EXPECT_EQ(decode.at("tokens").as_int64(), 8);
  EXPECT_EQ(decode.at("weight_bytes_per_token").as_double(), (2 * (kLayers + kHead) + kNorms + 4 * 512) / 4);
  EXPECT_EQ(decode.at("kv_bytes_per_token").as_double(), 4.5 * 2 * 2 * 128 * 2);  // 1 to 8 keys
  EXPECT_EQ(decode.at("flops_per_token").as_double(), 2 * (kLayers + kHead) + 4.5 * 2 * 2 * 4 * (64 + 64));
}

TEST(Bench, ModelTakesEachKindOfWeights) {
  for (const char* kind : {"f16", "q8_0", "q4_0", "q4_1", "q4_k", "q5_k", "q6_k"}) {
    const Json figures =
        figures_of({"--shape", "tiny", "--weights", kind, "--prompt", "8", "--decode", "0"}, 1);
    EXPECT_EQ(figures.at("model").as_string(), std::string("random tiny ") + kind);
    EXPECT_EQ(figures.at("cases").as_array().size(), 1u);
  }
}

TEST(Bench, ModelRunsACheckpointAtDepth) {
  const std::string model = LMDEPLOY_SOURCE_DIR "/tests/data/models/gemma2";
  const Json figures = figures_of(
      {model, "--prompt", "0", "--decode", "3", "--depth", "5", "--batch", "2", "--dtype", "float32"});
  EXPECT_EQ(figures.at("kv_dtype").as_string(), "f32");
  const JsonArray& cases = figures.at("cases").as_array();
  ASSERT_EQ(cases.size(), 1u);
  EXPECT_EQ(cases[0].at("kind").as_string(), "decode");
}

TEST(Bench, ModelPrintsATable) {
  const Result result =
      bench({"model", "--shape", "tiny", "--prompt", "8", "--decode", "2", "--batch", "2", "--rounds", "1"});
  ASSERT_EQ(result.code, 0) << result.err;
  expect_in(result.out, {"random tiny bf16", "times a copy of the same", "resident: grew by", "forward pass",
                         "prefill 8", "decode, batch 2"});
}

TEST(Bench, APromptMayTakeSeveralSteps) {
  const Result result = bench({"model", "--shape", "tiny", "--prompt", "1200", "--decode", "2", "--depth",
                               "700", "--batch", "1", "--rounds", "1"});
  ASSERT_EQ(result.code, 0) << result.err;
  expect_in(result.out, {"prefill 1200", "decode, batch 1"});
}

TEST(Bench, WrongCommandLinesGiveOneError) {
  struct Wrong {
    std::vector<std::string> arguments;
    int code;
    const char* reason;
  };
  const Wrong kWrong[] = {
      {{"machine", "--threads", "-1"}, 2, "--threads: -1 is not an integer from 0 to 1024"},
      {{"machine", "--memory", "0"}, 2, "--memory: 0 is not an integer from 1"},
      {{"machine", "--rounds", "x"}, 2, "--rounds: x is not an integer from 1"},
      {{"kernels", "--sample-ms", "0"}, 2, "--sample-ms: 0 is not an integer from 1"},
      {{"kernels", "--filter", "["}, 1, "--filter [ is not a regular expression"},
      {{"kernels", "--filter", "no such kernel"}, 1, "--filter no such kernel: no kernel has such a name"},
      {{"kernels", "--memory", "0"}, 2, "--memory: 0 is not an integer from 1"},
      {{"model", "--shape", "tiny", "--memory", "-3"}, 2, "--memory: -3 is not an integer from 1"},
      {{"model"}, 2, "give a model, or --shape"},
      {{"model", "m", "--shape", "tiny"}, 2, "model_path excludes --shape"},
      {{"model", "m", "--weights", "q8_0"}, 2, "--weights requires --shape"},
      {{"model", "--shape", "gpt-5"}, 2, "--shape: gpt-5 not in {"},
      {{"model", "--shape", "tiny", "--weights", "q3"}, 2, "--weights: q3 not in {"},
      {{"model", "--shape", "tiny", "--batch", "1,0"}, 2, "--batch: 0 is not an integer from 1 to 65536"},
      {{"model", "--shape", "tiny", "--prompt", "1.5"}, 2, "--prompt: 1.5 is not an integer from 0"},
      {{"model", "--shape", "tiny", "--dtype", "int8"}, 2, "--dtype: int8 not in {"},
      {{"model", "--shape", "tiny", "--prompt", "0", "--decode", "0"}, 2, "nothing to measure"},
      {{"model", "--shape", "smollm-135m", "--weights", "q4_k"},
       1,
       "576 columns; q4_k needs a multiple of 256"},
      {{"model", "--shape", "tiny", "--json", "/no/such/folder/f.json"}, 1, "write /no/such/folder/f.json"},
      {{"model", "/no/such/model.gguf"}, 1, "/no/such/model.gguf"},
  };
  for (const Wrong& wrong : kWrong) {
    const Result result = bench(wrong.arguments);
    EXPECT_EQ(result.code, wrong.code) << ::testing::PrintToString(wrong.arguments) << result.err;
    expect_in(result.err, {wrong.reason, "error: "});
    EXPECT_EQ(num_lines(result.err, ""), wrong.code == 2 ? 2u : 1u) << result.err;
  }
}

TEST(Bench, CtrlCEndsAtOnceAndLeavesNothing) {
  const TempFolder folder;
  ProgramRun run({"bench", "model", "--shape", "tiny", "--decode", "100", "--rounds", "1000", "--json",
                  folder.path() + "/figures.json"});
  run.expect("forward pass");
  run.send_signal(SIGINT);
  EXPECT_EQ(run.finish(), 128 + SIGINT);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace lmdeploy::testing
