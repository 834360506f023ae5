#include "lmdeploy/cli/env_report.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/json.h"
#include "lmdeploy/core/mapped_file.h"

namespace lmdeploy {
namespace {

const EnvReport kReport = {{"CPU", "a \"fast\" one"}, {"Topology", "line 1\nline 2"}, {"Verdict", "OK"}};

std::string temp_folder() { return testing::TempDir() + cat("env_report_test_", getpid()); }

TEST(EnvReport, MissingPartsAreNotFound) {
  EnvFacts facts;
  facts.packages = {{"torch", std::nullopt}, {"numpy", "1.26.0"}};
  const std::string text = report_text(make_report(facts, judge(facts)));
  EXPECT_NE(text.find("PyTorch: Not Found\n"), std::string::npos) << text;
  EXPECT_NE(text.find("numpy: 1.26.0\n"), std::string::npos) << text;
  EXPECT_NE(text.find("NCCL: Not Found\n"), std::string::npos) << text;
  EXPECT_NE(text.find("CUDA build: no\n"), std::string::npos) << text;
}

TEST(EnvReport, F79_MismatchIsInTheReport) {
  EnvFacts facts;
  facts.build.cuda = VersionPair{12, 0};
  facts.driver_release = "470.82.01";
  facts.driver_cuda = VersionPair{11, 4};
  const std::string text = report_text(make_report(facts, judge(facts)));
  EXPECT_NE(text.find("To do 1: the NVIDIA driver is too old: found 470.82.01 (CUDA 11.4)"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("CUDA available: False\n"), std::string::npos) << text;
  EXPECT_EQ(text.rfind("Verdict: "), text.find("Verdict: "));
}

TEST(EnvReport, Text) {
  EXPECT_EQ(report_text(kReport), "CPU: a \"fast\" one\nTopology:\nline 1\nline 2\nVerdict: OK\n");
}

TEST(EnvReport, JsonAndYamlFiles) {
  const std::string folder = temp_folder();
  write_report(kReport, folder + "/new/env.json");
  const Json json = read_json_file(folder + "/new/env.json");
  EXPECT_EQ(json.at("CPU").get_string(), "a \"fast\" one");
  EXPECT_EQ(json.at("Topology").get_string(), "line 1\nline 2");
  write_report(kReport, folder + "/env.yml");
  EXPECT_EQ(read_file(folder + "/env.yml"),
            "\"CPU\": \"a \\\"fast\\\" one\"\n\"Topology\": \"line 1\\nline 2\"\n\"Verdict\": \"OK\"\n");
  std::filesystem::remove_all(folder);
}

TEST(EnvReport, OtherExtensionsAreRefusedWithReason) {
  const auto message = [](const std::string& path) -> std::string {
    try {
      write_report(kReport, path);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(message("env.pkl").find("pickle"), std::string::npos);
  EXPECT_NE(message("env.txt").find(".json"), std::string::npos);
  EXPECT_NE(message("/proc/env.json").find("cannot be written"), std::string::npos);
}

}  // namespace
}  // namespace lmdeploy
