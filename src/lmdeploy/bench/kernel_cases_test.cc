#include "lmdeploy/bench/kernel_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace lmdeploy {
namespace {

const KernelCase& find(const KernelCases& cases, const std::string& name) {
  return *std::find_if(cases.begin(), cases.end(), [&](const KernelCase& c) { return c.name == name; });
}

TEST(KernelCases, NamesAreUniqueAndCoverEachGroupAndKind) {
  std::set<std::string> names, groups;
  for (const KernelCase& c : kernel_cases()) {
    EXPECT_TRUE(names.insert(c.name).second) << c.name;
    groups.insert(c.name.substr(0, c.name.find('/', c.name.starts_with("linear") ? 7 : 0)));
  }
  for (const char* group :
       {"linear/q4_0", "linear/q4_1", "linear/q5_0", "linear/q5_1", "linear/q8_0", "linear/q4_k",
        "linear/q5_k", "linear/q6_k", "linear/bf16", "linear/f16", "linear/f32", "attention", "norm", "rope",
        "glu", "expert_linear", "route", "sample"})
    EXPECT_TRUE(groups.contains(group)) << group;
}

TEST(KernelCases, BytesAndOperationsAreThoseOfTheFormula) {
  const KernelCases cases = kernel_cases();
  KernelBench bench(1, /*cold_bytes=*/1 << 20);
  const auto call = [&](const char* name) {
    KernelCall prepared = find(cases, name).prepare(bench);
    prepared.run();
    return prepared;
  };
  const KernelCall linear = call("linear/bf16/f32/1536x576/tokens:2");
  EXPECT_EQ(linear.bytes, 2 * 1536 * 576);
  EXPECT_EQ(linear.flops, 2 * 2 * 1536 * 576);
  EXPECT_EQ(linear.numbers, DotChain::Numbers::kF32);
  EXPECT_EQ(call("linear/q8_0/int8/1536x576/tokens:2").numbers, DotChain::Numbers::kInt8);
  const KernelCall decode = call("attention/f16/llama8b/decode_8x512");
  EXPECT_EQ(decode.bytes, 8 * 512 * 2 * 8 * 128 * 2);
  EXPECT_EQ(decode.flops, 2 * 8 * 512 * 32 * (128 + 128));
  const KernelCall window = call("attention/f32/gpt_oss_sliding/decode_1x2048");
  EXPECT_EQ(window.bytes, 128 * 2 * 8 * 64 * 4);
  EXPECT_EQ(call("norm/rms/576/tokens:64").bytes, 2 * 64 * 576 * 4);
  EXPECT_EQ(call("glu/silu/1536/tokens:64").bytes, 3 * 64 * 1536 * 4);
  EXPECT_EQ(call("rope/halves/32x64/tokens:64").bytes, 2 * 64 * 32 * 64 * 4);
}

}  // namespace
}  // namespace lmdeploy
