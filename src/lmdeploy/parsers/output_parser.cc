#include "lmdeploy/parsers/output_parser.h"

#include <algorithm>
#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/random.h"
#include "lmdeploy/parsers/thought_splitter.h"
#include "lmdeploy/parsers/tool_call_splitter.h"

namespace lmdeploy {
namespace {

constexpr std::string_view kOpen = "<think>", kClose = "</think>";

constexpr ThoughtFormat kThoughtFormats[] = {
    {"deepseek-r1", kOpen, kClose, /*assumed_open=*/true, /*always_open=*/true},
    {"deepseek-v3", kOpen, kClose, /*assumed_open=*/false, /*always_open=*/false},
    {"default", kOpen, kClose, /*assumed_open=*/true, /*always_open=*/false},
    {"intern-s1", kOpen, kClose, /*assumed_open=*/true, /*always_open=*/false},
    {"qwen-qwq", kOpen, kClose, /*assumed_open=*/true, /*always_open=*/false},
};

const ThoughtFormat* find_thought_format(std::string_view name) {
  const auto* found = std::find_if(std::begin(kThoughtFormats), std::end(kThoughtFormats),
                                   [&](const ThoughtFormat& format) { return format.name == name; });
  return found == std::end(kThoughtFormats) ? nullptr : found;
}

[[noreturn]] void fail_name(std::string_view kind, const std::string& name,
                            const std::vector<std::string>& known) {
  std::string list;
  for (const std::string& one : known) list += (list.empty() ? "" : ", ") + one;
  throw Error(ErrorCode::kInvalidArgument,
              cat("there is no ", kind, " parser \"", name, "\"; there are: ", list));
}

// Random letters and digits of one output.
class IdMaker {
 public:
  explicit IdMaker(CallIds kind) : kind_(kind), rng_(entropy_bits()) {}
  std::string operator()() {
    constexpr std::string_view kLetters = "0123456789abcdefghijklmnopqrstuvwxyz";
    std::string id = kind_ == CallIds::kOpenAi ? "chatcmpl-tool-" : "";
    const size_t size = id.size() + (kind_ == CallIds::kOpenAi ? 24 : 9);
    while (id.size() < size) id += kLetters[rng_.below(kLetters.size())];
    return id;
  }

 private:
  CallIds kind_;
  Rng rng_;
};

// What in a template's source tells the form of its calls; the first that occurs counts.
struct Mark {
  std::string_view text, parser;
};
constexpr Mark kCallMarks[] = {
    {"<arg_key>", ""},  // GLM's and Seed's forms look like others but are not
    {"<seed:tool_call>", ""},
    {"<｜tool▁calls▁begin｜>", "deepseek-v3"},
    {"[TOOL_CALLS]", "mistral"},
    {"<|action_start|>", "internlm"},
    {"<parameter=", "qwen3coder"},
    {"<tool_call>", "qwen"},
    {"<|python_tag|>", "llama3"},
    {"<|start_header_id|>ipython", "llama3"},
    {"\"ipython\"", "llama3"},
};
constexpr Mark kCallNames[] = {
    // catalogue names that begin so
    {"internlm2", "internlm"},
    {"internlm3", "internlm"},
    {"llama3_", "llama3"},
    {"mistral", "mistral"},
    {"mixtral", "mistral"},
    {"qwen2d5", "qwen2d5"},
    {"qwen3", "qwen3"},
    {"qwq", "qwen"},
    {"deepseek-v3", "deepseek-v3"},
    {"deepseek-r1", "deepseek-r1"},
};
constexpr Mark kThoughtNames[] = {
    {"qwq_preview", ""}, {"qwq", "qwen-qwq"}, {"qwen3", "qwen-qwq"}, {"deepseek-r1", "deepseek-r1"}};

template <size_t N>
std::string parser_for_name(const Mark (&marks)[N], std::string_view name) {
  for (const Mark& mark : marks)
    if (name.starts_with(mark.text)) return std::string(mark.parser);
  return {};
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace

void OutputParserNames::validate() const {
  if (!reasoning.empty() && find_thought_format(reasoning) == nullptr)
    fail_name("reasoning", reasoning, reasoning_parser_names());
  if (!tool_calls.empty() && find_tool_format(tool_calls) == nullptr)
    fail_name("tool call", tool_calls, tool_parser_names());
}

std::vector<std::string> reasoning_parser_names() {
  std::vector<std::string> names;
  for (const ThoughtFormat& format : kThoughtFormats) names.emplace_back(format.name);
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> tool_parser_names() {
  std::vector<std::string> names;
  for (const ToolFormat& format : tool_formats()) names.emplace_back(format.name);
  std::sort(names.begin(), names.end());
  return names;
}

OutputParserNames parsers_for_template(std::string_view name, std::string_view jinja_source) {
  OutputParserNames names;
  if (jinja_source.empty()) {
    names.tool_calls = parser_for_name(kCallNames, name);
    names.reasoning = parser_for_name(kThoughtNames, name);
    return names;
  }
  const auto* mark = std::find_if(std::begin(kCallMarks), std::end(kCallMarks),
                                  [&](const Mark& one) { return contains(jinja_source, one.text); });
  if (mark != std::end(kCallMarks)) names.tool_calls = mark->parser;
  if (!contains(jinja_source, kClose)) return names;
  const bool is_deepseek = contains(jinja_source, "<｜Assistant｜>");
  const bool thinks_when_asked = contains(jinja_source, "thinking");  // the variable of V3.1
  names.reasoning = !is_deepseek ? "qwen-qwq" : thinks_when_asked ? "deepseek-v3" : "deepseek-r1";
  return names;
}

bool prompt_opens_thought(std::string_view prompt) {
  while (!prompt.empty() && std::string_view(" \t\r\n").find(prompt.back()) != std::string_view::npos)
    prompt.remove_suffix(1);
  return prompt.ends_with(kOpen);
}

class OutputParser::Impl {
 public:
  explicit Impl(OutputParserOptions options) {
    options.names.validate();
    if (const ThoughtFormat* format = find_thought_format(options.names.reasoning);
        format != nullptr && options.enable_thinking) {
      const bool open = format->always_open || options.prompt_opens_thought.value_or(format->assumed_open);
      thoughts_.emplace(*format, open);
    }
    if (const ToolFormat* format = find_tool_format(options.names.tool_calls)) {
      if (!options.make_id) options.make_id = IdMaker(format->ids);
      calls_.emplace(*format, std::move(options.tools), std::move(options.make_id));
    }
  }

  OutputDelta push(std::string_view text) {
    LMD_CHECK(!finished_);
    OutputDelta delta;
    if (!thoughts_) {
      push_answer(text, delta);
    } else {
      std::string answer;
      thoughts_->push(text, delta.reasoning_content, answer);
      push_answer(answer, delta);
    }
    add(delta);
    return delta;
  }

  OutputDelta finish() {
    OutputDelta delta;
    if (std::exchange(finished_, true)) return delta;
    if (thoughts_) {
      std::string answer;
      thoughts_->finish(delta.reasoning_content, answer);
      push_answer(answer, delta);
    }
    if (calls_) calls_->finish(delta);
    add(delta);
    return delta;
  }

  const ParsedOutput& result() const { return result_; }

 private:
  void push_answer(std::string_view text, OutputDelta& delta) {
    if (calls_)
      calls_->push(text, delta);
    else
      delta.content += text;
  }

  void add(const OutputDelta& delta) {
    result_.content += delta.content;
    result_.reasoning_content += delta.reasoning_content;
    for (const ToolCallDelta& call : delta.tool_calls) {
      const auto index = static_cast<size_t>(call.index);
      if (index == result_.tool_calls.size()) result_.tool_calls.push_back({call.id, call.name, {}});
      result_.tool_calls[index].arguments += call.arguments;
    }
  }

  std::optional<ThoughtSplitter> thoughts_;
  std::optional<ToolCallSplitter> calls_;
  ParsedOutput result_;
  bool finished_ = false;
};

OutputParser::OutputParser(OutputParserOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
OutputParser::~OutputParser() = default;
OutputParser::OutputParser(OutputParser&&) noexcept = default;
OutputParser& OutputParser::operator=(OutputParser&&) noexcept = default;

OutputDelta OutputParser::push(std::string_view text) { return impl_->push(text); }
OutputDelta OutputParser::finish() { return impl_->finish(); }
const ParsedOutput& OutputParser::result() const { return impl_->result(); }

ParsedOutput parse_output(std::string_view text, OutputParserOptions options) {
  OutputParser parser(std::move(options));
  parser.push(text);
  parser.finish();
  return parser.result();
}

}  // namespace lmdeploy
