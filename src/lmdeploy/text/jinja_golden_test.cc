// Real chat templates against renderings of Python's jinja2, where the test data is beside the checkout.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "lmdeploy/core/error.h"
#include "lmdeploy/text/jinja.h"

namespace lmdeploy::jinja {
namespace {

const std::filesystem::path kFolder = LMDEPLOY_SOURCE_DIR "/../shared/data/chat_templates";

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

// Empty when the case comes out as expected.
std::string check(const Template& jinja, const JsonObject& file, const JsonObject& test_case) {
  const std::tm clock = parse_clock(text_or_empty(file, "now"));
  std::string got;
  const bool rendered = jinja.try_render(variables_of(file, test_case), got, [&] { return clock; });
  const bool continued = test_case.contains("expected_before_cut");
  const std::string want = text_or_empty(test_case, continued ? "expected_before_cut" : "expected");
  if (!test_case.contains("expected_error")) {
    if (!rendered) return cat("failed: ", got);
    return got == want ? "" : cat("\n--- got\n", got, "\n--- want\n", want);
  }
  const std::string type = text_or_empty(test_case, "error_type");
  if (type == "ValueError") return "";  // raised by transformers after the rendering
  if (rendered) return cat("rendered, but should fail with ", text_or_empty(test_case, "expected_error"));
  const bool own_words = type == "raise_exception";
  const std::string words = text_or_empty(test_case, "expected_error");
  return !own_words || got.find(words) != std::string::npos ? "" : cat("says ", got, ", not ", words);
}

TEST(JinjaGolden, RealTemplates) {
  if (!std::filesystem::exists(kFolder)) GTEST_SKIP() << kFolder << " is not there";
  size_t num_cases = 0, num_failed = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
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
  EXPECT_GT(num_cases, 6000u);
}

}  // namespace
}  // namespace lmdeploy::jinja
