#include "lmdeploy/cli/env_verdict.h"

#include <gtest/gtest.h>

namespace lmdeploy {
namespace {

EnvFacts cpu_machine() {
  EnvFacts facts;
  facts.cpu_isa = "avx2";
  facts.num_cpus = 2;
  facts.total_memory_bytes = size_t{8} << 30;
  facts.available_memory_bytes = size_t{4} << 30;
  facts.library_folders = {"/usr/lib64", "/opt/cuda/lib64"};
  return facts;
}

EnvFacts gpu_machine() {
  EnvFacts facts = cpu_machine();
  facts.build.cuda = VersionPair{12, 4};
  facts.build.gpu_archs = {{8, 0}, {9, 0}};
  facts.driver_release = "550.54.14";
  facts.driver_cuda = VersionPair{12, 4};
  facts.gpus = {{"H100", VersionPair{9, 0}}, {"H100", VersionPair{9, 0}}};
  facts.libnccl = "/usr/lib64/libnccl.so.2";
  return facts;
}

void expect_words(const std::string& text, std::initializer_list<const char*> words) {
  for (const char* word : words)
    EXPECT_NE(text.find(word), std::string::npos) << "no \"" << word << "\" in: " << text;
  EXPECT_EQ(text.find('\n'), std::string::npos) << "not one line: " << text;
}

TEST(EnvVerdict, F78_NoGpuPartsIsFine) {
  const Verdict verdict = judge(cpu_machine());
  EXPECT_FALSE(verdict.problem);
  EXPECT_TRUE(verdict.to_do.empty());
  expect_words(verdict.line, {"OK", "CPU", "avx2", "2 threads"});
}

TEST(EnvVerdict, F78_GpuWithoutCudaBuild) {
  EnvFacts facts = gpu_machine();
  facts.build = {};
  const Verdict verdict = judge(facts);
  EXPECT_FALSE(verdict.problem);
  expect_words(verdict.line, {"OK", "CPU", "no CUDA"});
}

TEST(EnvVerdict, F78_NcclIsNeededForSeveralGpusOnly) {
  EnvFacts facts = gpu_machine();
  facts.libnccl.reset();
  expect_words(nccl_problem(facts), {"NCCL not found", "/usr/lib64, /opt/cuda/lib64", "--communicator nccl"});
  EXPECT_FALSE(judge(facts).problem);
  facts.gpus.resize(1);
  EXPECT_EQ(nccl_problem(facts), "");
  EXPECT_EQ(nccl_problem(gpu_machine()), "");
}

TEST(EnvVerdict, F79_OldDriver) {
  EnvFacts facts = gpu_machine();
  facts.driver_release = "470.82.01";
  facts.driver_cuda = cuda_of_driver("470.82.01");
  const Verdict verdict = judge(facts);
  EXPECT_TRUE(verdict.problem);
  ASSERT_EQ(verdict.to_do.size(), 1u);
  expect_words(verdict.to_do[0],
               {"470.82.01", "CUDA 11.4", "CUDA 12.4", "525.60.13", "install", "device_type cpu"});
  expect_words(verdict.line, {"GPUs cannot be used", "CPU"});
}

TEST(EnvVerdict, F79_GpuArchitectureNotInTheBuild) {
  EnvFacts facts = gpu_machine();
  facts.gpus[1] = {"V100", VersionPair{7, 0}};
  expect_words(gpu_mismatch(facts), {"GPU 1", "V100", "sm_70", "sm_80, sm_90", "install"});
  facts.gpus[1] = {"L40", VersionPair{8, 9}};  // runs code for sm_80
  EXPECT_EQ(gpu_mismatch(facts), "");
  facts.gpus[1].compute_capability.reset();
  EXPECT_EQ(gpu_mismatch(facts), "");
}

TEST(EnvVerdict, F79_ShadowingFolder) {
  EnvFacts facts = cpu_machine();
  facts.shadowing_folder = "/a/checkout";
  const Verdict verdict = judge(facts);
  EXPECT_TRUE(verdict.problem);
  expect_words(verdict.to_do.at(0), {"/a/checkout", "start Python in another folder"});
}

TEST(EnvVerdict, SlowCpuAndLittleMemory) {
  EnvFacts facts = cpu_machine();
  facts.cpu_isa = "portable";
  facts.available_memory_bytes = size_t{100} << 20;
  const Verdict verdict = judge(facts);
  EXPECT_FALSE(verdict.problem);
  ASSERT_EQ(verdict.to_do.size(), 2u);
  expect_words(verdict.to_do[0], {"AVX2"});
  expect_words(verdict.to_do[1], {"100 MiB"});
}

TEST(EnvFacts, DriverVersionFile) {
  EXPECT_EQ(driver_release_in(
                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n"
                "GCC version:  gcc version 12.2.0\n"),
            "535.104.05");
  EXPECT_EQ(driver_release_in("nothing here"), std::nullopt);
}

TEST(EnvFacts, CudaOfDriver) {
  EXPECT_EQ(cuda_of_driver("470.82.01"), (VersionPair{11, 4}));
  EXPECT_EQ(cuda_of_driver("535.104.05"), (VersionPair{12, 2}));
  EXPECT_EQ(cuda_of_driver("999.1"), (VersionPair{13, 0}));  // the newest known: a newer driver runs it
  EXPECT_EQ(cuda_of_driver("304.137"), std::nullopt);
  EXPECT_EQ(cuda_of_driver("junk"), std::nullopt);
}

TEST(EnvFacts, GpuList) {
  const std::vector<GpuFacts> gpus = gpus_in("NVIDIA H100 80GB HBM3, 9.0\nOld card, [N/A]\n\n");
  ASSERT_EQ(gpus.size(), 2u);
  EXPECT_EQ(gpus[0].name, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(gpus[0].compute_capability, (VersionPair{9, 0}));
  EXPECT_EQ(gpus[1].compute_capability, std::nullopt);
}

}  // namespace
}  // namespace lmdeploy
