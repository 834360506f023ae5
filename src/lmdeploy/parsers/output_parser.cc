#include "lmdeploy/parsers/output_parser.h"

#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/random.h"
#include "lmdeploy/parsers/harmony_splitter.h"
#include "lmdeploy/parsers/thought_splitter.h"
#include "lmdeploy/parsers/tool_call_splitter.h"

namespace lmdeploy {
namespace {

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

}  // namespace

class OutputParser::Impl {
 public:
  explicit Impl(OutputParserOptions options) {
    options.names.validate();
    const ToolFormat* calls = find_tool_format(options.names.tool_calls);
    if (!options.make_id) options.make_id = IdMaker(calls != nullptr ? calls->ids : CallIds::kOpenAi);
    if (options.names.harmony()) {
      harmony_.emplace(std::move(options.make_id));
      return;
    }
    if (const ThoughtFormat* format = find_thought_format(options.names.reasoning);
        format != nullptr && options.enable_thinking) {
      const bool open = format->always_open || options.prompt_opens_thought.value_or(format->assumed_open);
      thoughts_.emplace(*format, open);
    }
    only_calls_ = options.only_calls;
    if (calls != nullptr) calls_.emplace(*calls, std::move(options.tools), std::move(options.make_id));
  }

  OutputDelta push(std::string_view text) {
    LMD_CHECK(!finished_);
    OutputDelta delta;
    if (harmony_) {
      harmony_->push(text, delta);
    } else if (thoughts_) {
      std::string answer;
      thoughts_->push(text, delta.reasoning_content, answer);
      push_answer(answer, delta);
    } else {
      push_answer(text, delta);
    }
    add(delta);
    return delta;
  }

  OutputDelta finish() {
    OutputDelta delta;
    if (std::exchange(finished_, true)) return delta;
    if (harmony_) harmony_->finish(delta);
    if (thoughts_) {
      std::string answer;
      thoughts_->finish(delta.reasoning_content, answer);
      push_answer(answer, delta);
    }
    if (calls_ && only_calls_)
      calls_->break_off(delta);
    else if (calls_)
      calls_->finish(delta);
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

  std::optional<HarmonySplitter> harmony_;  // alone, or the other two
  std::optional<ThoughtSplitter> thoughts_;
  std::optional<ToolCallSplitter> calls_;
  ParsedOutput result_;
  bool only_calls_ = false, finished_ = false;
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
