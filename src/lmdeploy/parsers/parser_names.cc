#include "lmdeploy/parsers/parser_names.h"

#include <algorithm>
#include <iterator>

#include "lmdeploy/core/error.h"
#include "lmdeploy/parsers/call_grammar.h"
#include "lmdeploy/parsers/thought_splitter.h"

namespace lmdeploy {
namespace {

constexpr std::string_view kHarmony = "gpt-oss";

// A text that tells the parser.
struct Mark {
  std::string_view text, parser;
};

// In a template's source; the first that occurs counts.
constexpr Mark kCallMarks[] = {
    {"<tool_calls>[", ""},  // these two look like others but are not
    {"<|python_start|>", ""},
    {"<arg_key>", "glm47"},
    {"<seed:tool_call>", "seed-oss"},
    {"｜DSML｜", "deepseek-v32"},
    {"<｜tool▁calls▁begin｜>", "deepseek-v3"},
    {"<|channel|>", kHarmony},
    {"[TOOL_CALLS]", "mistral"},
    {"<|action_start|>", "internlm"},
    {"<parameter=", "qwen3coder"},
    {"<tool_call>", "qwen"},
    {"<|python_tag|>", "llama3"},
    {"<|start_header_id|>ipython", "llama3"},
    {"\"ipython\"", "llama3"},
};
constexpr Mark kThoughtMarks[] = {{"<|channel|>", kHarmony},
                                  {"<seed:think>", "seed-oss"},
                                  {"[THINK]", "mistral"},
                                  {"｜DSML｜", "deepseek-v32"}};

// Catalogue names that begin so.
constexpr Mark kCallNames[] = {
    {"internlm2", "internlm"},
    {"internlm3", "internlm"},
    {"llama3_", "llama3"},
    {"mistral", "mistral"},
    {"mixtral", "mistral"},
    {"qwen2d5", "qwen2d5"},
    {"qwen3", "qwen3"},
    {"qwq", "qwen"},
    {"deepseek-v3", "deepseek-v3"},
    {"gpt-oss", kHarmony},
    {"deepseek-r1", "deepseek-r1"},
};
constexpr Mark kThoughtNames[] = {{"qwq_preview", ""},
                                  {"qwq", "qwen-qwq"},
                                  {"qwen3", "qwen-qwq"},
                                  {"gpt-oss", kHarmony},
                                  {"deepseek-r1", "deepseek-r1"}};

template <size_t N, typename Predicate>
std::string first_parser(const Mark (&marks)[N], Predicate fits) {
  const Mark* found = std::find_if(std::begin(marks), std::end(marks), fits);
  return found == std::end(marks) ? std::string() : std::string(found->parser);
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::string reasoning_for_source(std::string_view source) {
  std::string parser =
      first_parser(kThoughtMarks, [&](const Mark& mark) { return contains(source, mark.text); });
  if (!parser.empty() || !contains(source, "</think>")) return parser;
  if (!contains(source, "<｜Assistant｜>")) return "qwen-qwq";
  const bool thinks_when_asked = contains(source, "thinking");  // the variable of V3.1
  return thinks_when_asked ? "deepseek-v3" : "deepseek-r1";
}

template <typename Format>
std::vector<std::string> names_of(std::span<const Format> formats) {
  std::vector<std::string> names = {std::string(kHarmony)};
  for (const Format& format : formats) names.emplace_back(format.name);
  std::sort(names.begin(), names.end());
  return names;
}

void check_known(std::string_view kind, const std::string& name, const std::vector<std::string>& known) {
  if (name.empty() || std::find(known.begin(), known.end(), name) != known.end()) return;
  std::string list;
  for (const std::string& one : known) list += (list.empty() ? "" : ", ") + one;
  throw Error(ErrorCode::kInvalidArgument,
              cat("there is no ", kind, " parser \"", name, "\"; there are: ", list));
}

}  // namespace

bool OutputParserNames::harmony() const { return reasoning == kHarmony || tool_calls == kHarmony; }

void OutputParserNames::validate() const {
  check_known("reasoning", reasoning, reasoning_parser_names());
  check_known("tool call", tool_calls, tool_parser_names());
  for (const std::string& name : {reasoning, tool_calls})
    if (harmony() && !name.empty() && name != kHarmony)
      throw Error(ErrorCode::kInvalidArgument,
                  cat("the parser \"", name, "\" can't be used beside \"", kHarmony,
                      "\", which reads thoughts and tool calls; leave it out"));
}

std::vector<std::string> reasoning_parser_names() { return names_of(thought_formats()); }
std::vector<std::string> tool_parser_names() { return names_of(tool_formats()); }

OutputParserNames parsers_for_template(std::string_view name, std::string_view jinja_source) {
  if (jinja_source.empty()) {
    const auto fits = [&](const Mark& mark) { return name.starts_with(mark.text); };
    return {.reasoning = first_parser(kThoughtNames, fits), .tool_calls = first_parser(kCallNames, fits)};
  }
  return {.reasoning = reasoning_for_source(jinja_source),
          .tool_calls =
              first_parser(kCallMarks, [&](const Mark& mark) { return contains(jinja_source, mark.text); })};
}

bool prompt_opens_thought(std::string_view prompt) {
  prompt = prompt.substr(0, prompt.find_last_not_of(" \t\r\n") + 1);
  const std::span<const ThoughtFormat> formats = thought_formats();
  return std::any_of(formats.begin(), formats.end(),
                     [&](const ThoughtFormat& format) { return prompt.ends_with(format.open); });
}

}  // namespace lmdeploy
