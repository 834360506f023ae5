// The blocks of gpu_bench on a tiny model on the CPU: what they run and report, not how fast.
#include "lmdeploy/bench/model_blocks.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "lmdeploy/bench/bench_gates.h"
#include "lmdeploy/core/expect_error.h"

namespace lmdeploy {
namespace {

/// The CPU, with little memory.
class ModelBlocksTest : public ::testing::Test {
 protected:
  static constexpr double kRate = 1e9;
  std::vector<std::string> lines() const {
    std::istringstream in(out_.str());
    std::vector<std::string> all;
    for (std::string line; std::getline(in, line);) all.push_back(line);
    return all;
  }
  void expect_line(const std::string& start, const std::string& part) const {
    for (const std::string& line : lines())
      if (line.starts_with(start) && line.find(part) != std::string::npos) return;
    ADD_FAILURE() << "no line \"" << start << "...\" with \"" << part << "\" in:\n" << out_.str();
  }

  const std::unique_ptr<Kernels> kernels_ = make_cpu_kernels(std::make_shared<ThreadPool>(1));
  const BenchDevice device_ = {.ranks = {kernels_.get()},
                               .wait = [] {},
                               .free_bytes = [] { return size_t{4} << 30; },
                               .rates =
                                   [](DType) {
                                     return DeviceRates{kRate, kRate, kRate};
                                   }};
  const ModelChoice tiny_ = {.models = {"tiny"}, .weights = {DType::kF16}, .kv_dtypes = {DType::kF16}};
  std::ostringstream out_;
  BenchReport report_{out_, ""};
};

TEST_F(ModelBlocksTest, DecodeHasALineForEachCombination) {
  ModelChoice choice = tiny_;
  choice.weights = {DType::kF16, DType::kU4G128};
  choice.kv_dtypes = {DType::kF16, DType::kU8};
  run_decode(choice, {.batches = {1, 3}, .contexts = {5, 70}}, device_, report_);
  ASSERT_EQ(lines().size(), 2u + 2 * 2 * 2 * 2) << out_.str();
  expect_line("tiny in u4_g128: ", "loaded in ");
  expect_line("decode model=tiny weights=u4_g128 kv=u8 batch=3 context=70: ", " tokens/s; limit ");
  expect_line("decode model=tiny weights=u4_g128 kv=f16 batch=1 context=5: ", "gate at least 0.69");
}

TEST_F(ModelBlocksTest, PrefillGoesByTokens) {
  run_prefill(tiny_, {.tokens = {3, 100}}, device_, report_);
  EXPECT_EQ(report_.current(), "prefill model=tiny weights=f16 kv=f16 tokens=100");
  expect_line("prefill model=tiny weights=f16 kv=f16 tokens=100: ", " of it");
}

TEST_F(ModelBlocksTest, IdleIsWhatTheEngineAdds) {
  run_idle(tiny_, {.batches = {2}, .contexts = {150}}, device_, report_);
  expect_line("idle model=tiny weights=f16 kv=f16 batch=2 context=150: engine ", "gate at most 20.0 us");
}

TEST_F(ModelBlocksTest, StaticBatchesAreServed) {
  run_static(tiny_, {.batches = {1, 2}, .prompts = {1, 70}, .outputs = {4, 3}}, device_, report_);
  ASSERT_EQ(lines().size(), 1u + 2 * 2) << out_.str();
  expect_line("static model=tiny weights=f16 kv=f16 batch=2 prompt=70 output=3: ", " output tokens/s");
}

TEST_F(ModelBlocksTest, ATraceIsComparedWithTheFirstKindOfCache) {
  ModelChoice choice = tiny_;
  choice.kv_dtypes = {DType::kF16, DType::kU8};
  const TraceOptions trace = {.num_requests = 6, .mean_prompt = 10, .mean_output = 5, .longest = 30};
  run_trace(choice, {.trace = trace, .cache_gb = 0.01, .max_batch = 4, .rates = {}}, device_, report_);
  expect_line("trace model=tiny weights=f16 kv=f16: ", "1.00 times kv=f16");
  expect_line("trace model=tiny weights=f16 kv=u8: ", " times kv=f16");
}

TEST_F(ModelBlocksTest, ArrivalsHaveALineForEachRate) {
  const TraceOptions trace = {.num_requests = 4, .mean_prompt = 10, .mean_output = 5, .longest = 30};
  run_trace(tiny_, {.trace = trace, .cache_gb = 0.01, .max_batch = 4, .rates = {50, 100}}, device_, report_);
  expect_line("arrivals model=tiny weights=f16 kv=f16 rate=50: ", "first token ");
  EXPECT_EQ(report_.current(), "arrivals model=tiny weights=f16 kv=f16 rate=100");
  ASSERT_EQ(lines().size(), 1u + 2) << out_.str();
}

TEST_F(ModelBlocksTest, WhatDoesNotFitIsSkippedAndSaidSo) {
  ModelChoice large = tiny_;
  large.models = {"llama-8b"};  // 8.03 * 10^9 weights
  run_prefill(large, {}, device_, report_);
  expect_line("prefill model=llama-8b weights=f16: skipped, weights of 14.96 GiB in 4.00 GiB of free memory",
              "");
  run_trace(tiny_, {.cache_gb = 1e8}, device_, report_);
  expect_line("trace model=tiny weights=f16 kv=f16: skipped, a KV cache of ", " of free memory");
  run_trace(tiny_, {.cache_gb = 0.001}, device_, report_);
  expect_line("trace model=tiny weights=f16 kv=f16: skipped, the KV cache holds no request of ", "2049");
  run_decode(tiny_, {.batches = {1}, .contexts = {int64_t{1} << 40}}, device_, report_);
  expect_line("decode model=tiny weights=f16 kv=f16 batch=1 context=", "skipped");
}

TEST(BenchReport, CountsGatesAndWritesJson) {
  const std::string path = "bench_report_test.json";
  std::ostringstream out;
  {
    BenchReport report(out, path);
    BenchResult result = {.block = "b", .setting = {{"n", 1}, {"kind", "x"}}, .limit_s = 1, .seconds = 2};
    result.text = "2 s";
    result.figures = {{"f", 3}};
    result.gate = at_least(0.5, 0.6);
    report.add(result);
    result.gate = at_most(19e-6, 20e-6);
    report.add(result);
    report.summarise();
  }
  EXPECT_NE(out.str().find("b n=1 kind=x: 2 s; limit 1000 ms, 50.0 % of it; gate at least 0.60: MISSED\n"),
            std::string::npos)
      << out.str();
  EXPECT_NE(out.str().find("gates: 1 of 2 met; missed:\n  b n=1"), std::string::npos) << out.str();
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  const Json json = parse_json(line, path);
  EXPECT_EQ(json.at("block"), "b");
  EXPECT_EQ(json.at("n"), 1);
  EXPECT_EQ(json.at("f"), 3);
  EXPECT_EQ(json.at("share"), 0.5);
  EXPECT_EQ(json.at("gate_met"), false);
  std::filesystem::remove(path);
  expect_error(ErrorCode::kIo, {"--json /nowhere/file"}, [&] { BenchReport(out, "/nowhere/file"); });
}

TEST(BenchGates, GoByWeightsCacheAndBatch) {
  EXPECT_EQ(decode_gate(DType::kBF16, DType::kBF16, 1), 0.88);
  EXPECT_EQ(decode_gate(DType::kU4G128, DType::kBF16, 1), 0.69);
  EXPECT_EQ(decode_gate(DType::kF8G64, DType::kBF16, 1), std::nullopt);
  EXPECT_EQ(decode_gate(DType::kBF16, DType::kU8, 16), 0.85);
  EXPECT_EQ(decode_gate(DType::kBF16, DType::kU4, 256), 0.70);
  EXPECT_EQ(decode_gate(DType::kU4G128, DType::kBF16, 64), 0.70);
  EXPECT_EQ(decode_gate(DType::kBF16, DType::kBF16, 2), std::nullopt);
  EXPECT_EQ(prefill_gate(2048), 0.83);
  EXPECT_EQ(prefill_gate(512), std::nullopt);
  EXPECT_EQ(kv_gain_gate(DType::kU8), 1.27);
  EXPECT_EQ(kv_gain_gate(DType::kU4), 1.39);
  EXPECT_EQ(kv_gain_gate(DType::kBF16), std::nullopt);
}

}  // namespace
}  // namespace lmdeploy
