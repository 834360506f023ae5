// Real chat templates against renderings of Python's jinja2: some that are committed, and all where the large
// test data is beside the checkout.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "lmdeploy/core/error.h"
#include "lmdeploy/text/chat_template_jinja.h"
#include "lmdeploy/text/jinja.h"

namespace lmdeploy::jinja {
namespace {

std::tm parse_clock(const std::string& text) {  // "2025-07-26T14:05:09"
  std::tm clock{};
  strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &clock);
  return clock;
}

std::string text_or_empty(const JsonObject& object, std::string_view key) {
  const Json* value = object.if_contains(key);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

// The variables that the case gives to its template.
JsonObject variables_of(const JsonObject& file, const JsonObject& test_case) {
  JsonObject variables;
  for (const char* name : {"messages", "tools", "documents", "add_generation_prompt"})
    if (const Json* value = test_case.if_contains(name)) variables[name] = *value;
  for (const char* name : {"bos_token", "eos_token"})
    if (const Json* value = file.if_contains(name)) variables[name] = *value;
  if (const Json* unset = test_case.if_contains("unset"))
    for (const Json& name : unset->get_array()) variables.erase(name.get_string());
  if (const Json* extra = test_case.if_contains("extra"))
    for (const auto& [name, value] : extra->get_object()) variables[name] = value;
  return variables;
}

// The last text of the last message.
std::string final_text(const JsonObject& test_case) {
  const Json& content = test_case.at("messages").get_array().back().at("content");
  return std::string(content.is_string() ? content.get_string()
                                         : content.get_array().back().at("text").get_string());
}

std::string difference(std::string_view got, std::string_view want) {
  return got == want ? "" : cat("\n--- got\n", got, "\n--- want\n", want);
}

// Empty when the case fails as expected.
std::string check_failure(bool rendered, const std::string& got, const JsonObject& test_case) {
  const std::string type = text_or_empty(test_case, "error_type"),
                    words = text_or_empty(test_case, "expected_error");
  if (type == "ValueError")  // the text to continue does not occur
    return rendered && !cut_after_content(got, final_text(test_case)) ? "" : "has a place to continue";
  if (rendered) return cat("rendered, but should fail with ", words);
  const bool own_words = type == "raise_exception";
  return !own_words || got.find(words) != std::string::npos ? "" : cat("says ", got, ", not ", words);
}

// Empty when the case comes out as expected.
std::string check(const Template& jinja, const JsonObject& file, const JsonObject& test_case) {
  const std::tm clock = parse_clock(text_or_empty(file, "now"));
  std::string got;
  const bool rendered = jinja.try_render(variables_of(file, test_case), got, [&] { return clock; });
  if (test_case.contains("expected_error")) return check_failure(rendered, got, test_case);
  if (!rendered) return cat("failed: ", got);
  const std::string want = text_or_empty(test_case, "expected");
  if (!test_case.contains("expected_before_cut")) return difference(got, want);
  const std::string problem = difference(got, text_or_empty(test_case, "expected_before_cut"));
  return problem.empty() ? difference(cut_after_content(got, final_text(test_case)).value_or(""), want)
                         : problem;
}

// Runs all cases of the files in `folder`; returns their number.
size_t run_folder(const std::filesystem::path& folder) {
  size_t num_cases = 0, num_failed = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with("_") || entry.path().extension() != ".json") continue;
    const Json json = read_json_file(entry.path().string());
    const JsonObject& file = json.as_object();
    const Template jinja(text_or_empty(file, "template"));
    for (const Json& test_case : file.at("cases").as_array()) {
      ++num_cases;
      const std::string problem = check(jinja, file, test_case.get_object());
      if (problem.empty()) continue;
      if (++num_failed <= 20)
        ADD_FAILURE() << entry.path().filename() << " " << text_or_empty(test_case.get_object(), "case")
                      << ": " << problem;
    }
  }
  EXPECT_EQ(num_failed, 0u) << "of " << num_cases;
  return num_cases;
}

TEST(JinjaGolden, TemplatesOfFamousModels) {
  EXPECT_GE(run_folder(LMDEPLOY_SOURCE_DIR "/tests/data/text/chat_templates"), 50u);
}

TEST(JinjaGolden, RealTemplates) {
  const std::filesystem::path folder = LMDEPLOY_SOURCE_DIR "/../shared/data/chat_templates";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not there";
  EXPECT_GT(run_folder(folder), 6000u);
}

}  // namespace
}  // namespace lmdeploy::jinja
