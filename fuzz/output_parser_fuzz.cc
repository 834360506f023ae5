// Model output in any form, by every parser: none crashes, none cares where the text was cut, none loses
// text, and the arguments of a call are always a JSON object.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/json.h"
#include "lmdeploy/core/random.h"
#include "lmdeploy/core/utf8.h"
#include "lmdeploy/parsers/output_parser.h"

namespace {

using lmdeploy::OutputParserNames;
using lmdeploy::ParsedOutput;

const lmdeploy::Json& tools() {
  static const lmdeploy::Json kTools = lmdeploy::parse_json(
      R"([{"type": "function", "function": {"name": "f", "parameters": {"properties": {
          "list": {"type": "array"}, "count": {"type": "integer"}, "loop": {"$ref": "#/properties/loop"}}}}}])",
      "tools");
  return kTools;
}

std::string show(const ParsedOutput& output) {
  std::string text = output.reasoning_content + '\x01' + output.content;
  for (const lmdeploy::ToolCall& call : output.tool_calls)
    text += lmdeploy::cat('\x01', call.id, '\x02', call.name, '\x02', call.arguments);
  return text;
}

lmdeploy::OutputParserOptions options_for(const OutputParserNames& names) {
  lmdeploy::OutputParserOptions options;
  options.names = names;
  options.tools = tools();
  options.make_id = [count = 0]() mutable { return std::to_string(count++); };
  return options;
}

[[noreturn]] void fail(const OutputParserNames& names, const char* what) {
  std::fprintf(stderr, "parsers \"%s\" and \"%s\": %s\n", names.reasoning.c_str(), names.tool_calls.c_str(),
               what);
  std::abort();
}

ParsedOutput parse_in_pieces(const std::string& text, const OutputParserNames& names, lmdeploy::Rng& rng) {
  lmdeploy::OutputParser parser(options_for(names));
  for (size_t at = 0; at < text.size();) {
    const size_t size = 1 + rng.below(12);
    parser.push(std::string_view(text).substr(at, size));
    at += size;
  }
  parser.finish();
  return parser.result();
}

void check(const std::string& text, const OutputParserNames& names, lmdeploy::Rng& rng) {
  const ParsedOutput whole = lmdeploy::parse_output(text, options_for(names));
  if (show(parse_in_pieces(text, names, rng)) != show(whole)) fail(names, "the cuts matter");
  if (names.reasoning.empty() && !names.harmony() && whole.tool_calls.empty() && whole.content != text)
    fail(names, "text without calls has changed");
  for (const lmdeploy::ToolCall& call : whole.tool_calls) {
    if (call.id.empty() || call.name.empty()) fail(names, "a call without an id or a name");
    // Bytes that are no text stay what they are.
    if (lmdeploy::is_utf8(text) && !lmdeploy::parse_json(call.arguments, "arguments").is_object())
      fail(names, "arguments that are no object");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<std::string> kTools = lmdeploy::tool_parser_names();
  static const std::vector<std::string> kReasoning = lmdeploy::reasoning_parser_names();
  const std::string text(reinterpret_cast<const char*>(data), size);
  lmdeploy::Rng rng(size);
  for (const std::string& tool_calls : kTools) {
    check(text, {"", tool_calls}, rng);
    const std::string reasoning = kReasoning[rng.below(kReasoning.size())];
    if (OutputParserNames{reasoning, tool_calls}.harmony())
      check(text, {"gpt-oss", ""}, rng);
    else
      check(text, {reasoning, tool_calls}, rng);
  }
  return 0;
}
