// Model output in any form: no parser crashes, and none cares where the text was cut.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/random.h"
#include "lmdeploy/parsers/output_parser.h"

namespace {

std::string show(const lmdeploy::ParsedOutput& output) {
  std::string text = output.reasoning_content + '\x01' + output.content;
  for (const lmdeploy::ToolCall& call : output.tool_calls)
    text += lmdeploy::cat('\x01', call.id, '\x02', call.name, '\x02', call.arguments);
  return text;
}

lmdeploy::OutputParserOptions options_for(const std::string& reasoning, const std::string& tool_calls) {
  lmdeploy::OutputParserOptions options;
  options.names = {reasoning, tool_calls};
  options.make_id = [count = 0]() mutable { return std::to_string(count++); };
  return options;
}

void check(const std::string& text, const std::string& reasoning, const std::string& tool_calls,
           lmdeploy::Rng& rng) {
  const std::string whole = show(lmdeploy::parse_output(text, options_for(reasoning, tool_calls)));
  lmdeploy::OutputParser parser(options_for(reasoning, tool_calls));
  for (size_t at = 0; at < text.size();) {
    const size_t size = 1 + rng.below(12);
    parser.push(std::string_view(text).substr(at, size));
    at += size;
  }
  parser.finish();
  if (show(parser.result()) == whole) return;
  std::fprintf(stderr, "parser %s/%s: the cuts matter\n", reasoning.c_str(), tool_calls.c_str());
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<std::string> kTools = lmdeploy::tool_parser_names();
  static const std::vector<std::string> kReasoning = lmdeploy::reasoning_parser_names();
  const std::string text(reinterpret_cast<const char*>(data), size);
  lmdeploy::Rng rng(size);
  for (const std::string& tools : kTools) check(text, kReasoning[rng.below(kReasoning.size())], tools, rng);
  for (const std::string& tools : kTools) check(text, "", tools, rng);
  return 0;
}
