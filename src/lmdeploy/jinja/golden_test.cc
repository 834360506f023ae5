// Real chat templates against renderings of Python's jinja2: some that are committed, and all where the large
// test data is beside the checkout.
#include "lmdeploy/jinja/golden_cases.h"

#include <gtest/gtest.h>

#include <map>

#include "lmdeploy/core/error.h"
#include "lmdeploy/jinja/template.h"

namespace lmdeploy::jinja {
namespace {

// Message of raise_exception without "chat template, line N: ".
std::string own_words(const std::string& message) {
  const size_t colon = message.find(": ");
  return colon == std::string::npos ? message : message.substr(colon + 2);
}

// Empty when the case comes out as expected.
std::string check(const Template& jinja, const GoldenCase& golden) {
  std::string got;
  const bool rendered = jinja.try_render(golden.variables, got, [&] { return golden.now; });
  // ValueError: transformers finds no text to continue in what the template made; that is not the template's.
  const bool must_fail = !golden.error_type.empty() && golden.error_type != "ValueError";
  if (must_fail && rendered) return cat("rendered, but should fail with ", golden.error);
  if (golden.error_type == "raise_exception")
    return own_words(got) == golden.error ? "" : cat("says ", own_words(got), ", not ", golden.error);
  if (must_fail) return "";
  if (!rendered) return cat("failed: ", got);
  if (golden.error_type == "ValueError") return "";
  const std::string& want = golden.before_cut.empty() ? golden.expected : golden.before_cut;
  return got == want ? "" : cat("\n--- got\n", got, "\n--- want\n", want);
}

// Runs all cases of the files in `folder`; returns their number.
size_t run_folder(const std::filesystem::path& folder) {
  size_t num_cases = 0, num_failed = 0;
  std::map<std::string, Template> parsed;
  for_each_golden_case(folder, [&](const std::string& source, const GoldenCase& golden) {
    ++num_cases;
    const Template& jinja = parsed.try_emplace(golden.file, source).first->second;
    const std::string problem = check(jinja, golden);
    if (problem.empty()) return;
    if (++num_failed <= 20) ADD_FAILURE() << golden.file << " " << golden.name << ": " << problem;
  });
  EXPECT_EQ(num_failed, 0u) << "of " << num_cases;
  return num_cases;
}

TEST(JinjaGolden, TemplatesOfFamousModels) {
  EXPECT_GE(run_folder(LMDEPLOY_SOURCE_DIR "/tests/data/text/chat_templates"), 50u);
}

TEST(JinjaGolden, RealTemplates) {
  const std::filesystem::path folder = LMDEPLOY_SOURCE_DIR "/../shared/data/chat_templates";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not there";
  EXPECT_EQ(run_folder(folder), 6503u);
}

}  // namespace
}  // namespace lmdeploy::jinja
