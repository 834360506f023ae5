// Calls as real chat templates write them are read back by the parser chosen for the template.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "lmdeploy/core/error.h"
#include "lmdeploy/parsers/parser_cases.h"

namespace lmdeploy {
namespace {

std::string show_calls(const JsonArray& calls) {
  std::string text;
  for (const Json& call : calls) {
    const JsonObject& function = call.at("function").as_object();
    text += cat(function.at("name").as_string().c_str(), to_json_text(function.at("arguments")), "\n");
  }
  return text;
}

std::string show_calls(const std::vector<ToolCall>& calls) {
  std::string text;
  for (const ToolCall& call : calls)
    text += cat(call.name, to_json_text(parse_json(call.arguments, "arguments")), "\n");
  return text;
}

// Templates leave calls out of earlier turns at times, and some escape them for HTML or
// open one tag for all of them, by mistake.
bool are_written(const JsonArray& calls, std::string_view text) {
  for (const Json& call : calls)
    for (const auto& [key, value] : call.at("function").at("arguments").as_object())
      if (value.is_string() && text.find(value.get_string()) == std::string_view::npos) return false;
  const bool has_stray_close = text.find("</tool_call> {") != std::string_view::npos;
  return text.find("&#34;") == std::string_view::npos && !has_stray_close;
}

struct CalledCase {
  std::string text;  // after the user's question
  JsonArray calls;
};

// Nothing where the case has no calls, or its prompt doesn't show them.
std::optional<CalledCase> called_case(const JsonObject& one) {
  if (!one.contains("expected") ||
      (one.at("case") != "tool_call_result" && one.at("case") != "parallel_tool_calls"))
    return std::nullopt;
  std::string question;
  for (const Json& message : one.at("messages").as_array()) {
    if (message.at("role") == "user") question = message.at("content").as_string().c_str();
    if (!message.as_object().contains("tool_calls")) continue;
    const std::string prompt = one.at("expected").as_string().c_str();
    const size_t at = prompt.find(question);
    if (at == std::string::npos) return std::nullopt;
    CalledCase called = {prompt.substr(at + question.size()), message.at("tool_calls").as_array()};
    // Llama's calls open the output, so the header must go.
    constexpr std::string_view kHeader = "assistant<|end_header_id|>\n\n";
    if (const size_t header = called.text.find(kHeader); header != std::string::npos)
      called.text.erase(0, header + kHeader.size());
    if (are_written(called.calls, called.text)) return called;
  }
  return std::nullopt;
}

TEST(TemplateForms, CallsOfRealTemplatesAreReadBack) {
  const std::filesystem::path folder = LMDEPLOY_SOURCE_DIR "/../shared/data/chat_templates";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no " << folder;
  std::map<std::string, int> read;  // by parser
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const Json file = read_json_file(entry.path().string());
    if (!file.is_object()) continue;  // the index
    const std::string parser = parsers_for_template("", file.at("template").as_string().c_str()).tool_calls;
    if (parser.empty()) continue;
    for (const Json& one : file.at("cases").as_array()) {
      const std::optional<CalledCase> called = called_case(one.as_object());
      if (!called) continue;
      OutputParserOptions options;
      options.names.tool_calls = parser;
      options.tools = one.at("tools");
      const std::string got = show_calls(parse_output(called->text, options).tool_calls);
      EXPECT_EQ(got, show_calls(called->calls))
          << entry.path() << " " << one.at("case") << " by " << parser << "\n"
          << called->text.substr(0, 400);
      ++read[parser];
    }
  }
  for (const char* parser : {"deepseek-v3", "deepseek-v32", "glm47", "gpt-oss", "llama3", "mistral", "qwen",
                             "qwen3coder", "seed-oss"})
    EXPECT_GT(read[parser], 0) << parser;
}

}  // namespace
}  // namespace lmdeploy
