#include "lmdeploy/pipeline/tool_grammar.h"

#include "lmdeploy/core/expect_error.h"
#include "lmdeploy/parsers/output_parser.h"
#include "lmdeploy/text/grammar/compile.h"

namespace lmdeploy {
namespace {

const char* const kTools = R"([
  {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "additionalProperties": false,
     "properties": {"where": {"$ref": "#/$defs/place"}}, "required": ["where"], "$defs": {"place": {"enum": ["Oslo", "Rome"]}}}}},
  {"name": "now"}])";

grammar::Matcher matcher_of(const ResponseFormat& format) {
  std::vector<std::string> bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
  static const auto vocabulary = std::make_shared<const grammar::Vocabulary>(std::move(bytes));
  return grammar::compile(format, vocabulary, "tools")->matcher();
}
bool admits(const ResponseFormat& format, std::string_view text) {
  grammar::Matcher matcher = matcher_of(format);
  return matcher.accept_bytes(text) && matcher.is_complete();
}
/// It is whole, and may go on.
bool begins(const ResponseFormat& format, std::string_view text) {
  grammar::Matcher matcher = matcher_of(format);
  return matcher.accept_bytes(text) && matcher.can_stop() && !matcher.is_complete();
}

ResponseFormat format_of(std::string_view function, std::string_view parser) {
  return tool_call_format(parse_json(kTools, "tools"), function, parser);
}

TEST(ToolCallFormat, CallsBetweenTags) {
  constexpr std::string_view kCall =
      "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"where\": \"Oslo\"}}\n</tool_call>";
  for (const char* parser : {"hermes", "qwen", "qwen2d5", "qwen3"}) {
    const ResponseFormat any = format_of("", parser);
    EXPECT_TRUE(admits(any, kCall));
    EXPECT_TRUE(admits(any, "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"));
    EXPECT_FALSE(admits(any, "<tool_call>\n{\"name\": \"weather\", \"arguments\": {}}\n</tool_call>"));
    EXPECT_FALSE(admits(any, "It is sunny."));
    EXPECT_TRUE(admits(format_of("weather", parser), kCall));
    EXPECT_FALSE(admits(format_of("now", parser), kCall));
  }
}

TEST(ToolCallFormat, SeveralCalls) {
  const std::string call = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  const ResponseFormat several = tool_call_format(parse_json(kTools, "tools"), "", "qwen", /*several=*/true);
  EXPECT_TRUE(begins(several, call));
  EXPECT_TRUE(begins(several, cat(call, "\n", call, "\n", call)));
  EXPECT_FALSE(begins(several, cat(call, call)));
  EXPECT_FALSE(begins(format_of("", "qwen"), cat(call, "\n", call)));
  EXPECT_TRUE(tool_call_format(parse_json(kTools, "tools"), "", "llama3", true).separator.empty());
}

TEST(ToolCallFormat, BareObjects) {
  EXPECT_TRUE(admits(format_of("", "llama3"), R"({"name": "weather", "parameters": {"where": "Rome"}})"));
  EXPECT_FALSE(admits(format_of("", "llama3"), R"({"name": "weather", "parameters": {"where": "Paris"}})"));
}

TEST(ToolCallFormat, SaysWhatIsWrong) {
  const auto expect = [](ErrorCode code, const char* tools, std::string_view function,
                         std::string_view parser, const std::vector<std::string>& words) {
    expect_error(code, words, [&] { tool_call_format(parse_json(tools, "tools"), function, parser); });
  };
  expect(ErrorCode::kUnsupported, kTools, "", "qwen3coder", {"qwen3coder", "auto"});
  expect(ErrorCode::kUnsupported, kTools, "", "mistral", {"mistral"});
  expect(ErrorCode::kInvalidArgument, kTools, "", "nobody", {"unknown", "nobody"});
  expect(ErrorCode::kInvalidArgument, kTools, "other", "qwen", {"\"other\""});
  expect(ErrorCode::kInvalidArgument, "[]", "", "qwen", {"empty list"});
  expect(ErrorCode::kInvalidArgument, "[{}]", "", "qwen", {"tools[0]", "name"});
  expect(ErrorCode::kInvalidArgument, "[1]", "", "qwen", {"tools[0]", "an integer"});
}

}  // namespace
}  // namespace lmdeploy
