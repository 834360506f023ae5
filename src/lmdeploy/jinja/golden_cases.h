// Reads files of real chat templates with the renderings of Python's jinja2 (for tests).
#pragma once

#include <ctime>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "lmdeploy/core/json.h"

namespace lmdeploy::jinja {

/// One conversation and what its template must make of it.
struct GoldenCase {
  std::string file, name;
  JsonObject variables;
  std::tm now{};
  /// All of `expected`, `expected_before_cut`, `expected_error`, `error_type`: "" where the case has none.
  std::string expected, before_cut, error, error_type;
  /// The last text of the last message: where a case with `before_cut` is cut.
  std::string final_text;
};

inline std::string golden_text(const JsonObject& object, std::string_view key) {
  const Json* value = object.if_contains(key);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

inline JsonObject golden_variables(const JsonObject& file, const JsonObject& test_case) {
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

inline std::string golden_final_text(const JsonObject& test_case) {
  const Json* messages = test_case.if_contains("messages");
  if (messages == nullptr || !messages->is_array() || messages->get_array().empty()) return {};
  const Json* last = &messages->get_array().back();
  const Json* content = last->is_object() ? last->get_object().if_contains("content") : nullptr;
  if (content != nullptr && content->is_array() && !content->get_array().empty()) {
    last = &content->get_array().back();
    content = last->is_object() ? last->get_object().if_contains("text") : nullptr;
  }
  return content != nullptr && content->is_string() ? std::string(content->get_string()) : std::string();
}

inline GoldenCase golden_case(const std::filesystem::path& path, const JsonObject& file,
                              const JsonObject& test_case) {
  GoldenCase made;
  made.file = path.filename().string();
  made.name = golden_text(test_case, "case");
  made.variables = golden_variables(file, test_case);
  strptime(golden_text(file, "now").c_str(), "%Y-%m-%dT%H:%M:%S", &made.now);
  made.expected = golden_text(test_case, "expected");
  made.before_cut = golden_text(test_case, "expected_before_cut");
  made.error = golden_text(test_case, "expected_error");
  made.error_type = golden_text(test_case, "error_type");
  made.final_text = golden_final_text(test_case);
  return made;
}

/// Calls `check(template source, case)` for each case of each file in `folder`.
inline void for_each_golden_case(const std::filesystem::path& folder,
                                 const std::function<void(const std::string&, const GoldenCase&)>& check) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with("_") || entry.path().extension() != ".json") continue;
    const Json json = read_json_file(entry.path().string());
    const JsonObject& file = json.as_object();
    const std::string source = golden_text(file, "template");
    for (const Json& test_case : file.at("cases").as_array())
      check(source, golden_case(entry.path(), file, test_case.get_object()));
  }
}

}  // namespace lmdeploy::jinja
