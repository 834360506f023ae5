// Sources: the chat templates of the models (Qwen2.5, Qwen3, Qwen3-Coder, Llama 3.1, InternLM2, DeepSeek-R1,
// V3 and V3.1, Mistral 7B v0.3, Nemo and Small 3.2, Hermes 2 Pro), which ask for these forms and print them
// back.
#include "lmdeploy/parsers/call_grammar.h"

#include <algorithm>

namespace lmdeploy {
namespace {

using enum Capture;
using Kind = Step::Kind;

constexpr Step literal(std::string_view text, int8_t next = Step::kFollowing,
                       int8_t otherwise = Step::kNotACall) {
  return {Kind::kLiteral, text, kNothing, next, otherwise};
}
constexpr Step peek(std::string_view text, int8_t next, int8_t otherwise) {
  return {Kind::kPeek, text, kNothing, next, otherwise};
}
constexpr Step space(int8_t next = Step::kFollowing) { return {Kind::kSpace, {}, kNothing, next}; }
constexpr Step until(std::string_view text, Capture capture) { return {Kind::kUntil, text, capture}; }
constexpr Step object(Capture capture, int8_t next = Step::kFollowing) {
  return {Kind::kObject, {}, capture, next};
}
constexpr Step call(int8_t next = Step::kFollowing) { return {Kind::kCall, {}, kNothing, next}; }
constexpr Step end() { return {Kind::kEnd}; }

// <tool_call>
// {"name": "f", "arguments": {...}}
// </tool_call>
constexpr Step kTaggedSteps[] = {
    literal("<tool_call>"), space(), object(kCallObject), space(), literal("</tool_call>"), call(), end()};
constexpr CallForm kTagged[] = {{"<tool_call>", kTaggedSteps}};

// <tool_call>
// <function=f>
// <parameter=x>
// 1
// </parameter>
// </function>
// </tool_call>
constexpr Step kXmlSteps[] = {
    literal("<tool_call>"),
    space(),
    literal("<function="),
    until(">", kName),
    space(),
    literal("<parameter=", Step::kFollowing, 8),  // 5
    until(">", kKey),
    {Kind::kUntil, "</parameter>", kValue, 4},
    literal("</function>"),  // 8
    space(),
    literal("</tool_call>"),
    call(),
    end(),
};
// The model at times leaves the outer tags out.
constexpr Step kBareXmlSteps[] = {
    literal("<function="),
    until(">", kName),
    space(),
    literal("<parameter=", Step::kFollowing, 6),  // 3
    until(">", kKey),
    {Kind::kUntil, "</parameter>", kValue, 2},
    literal("</function>"),  // 6
    call(),
    space(),
    literal("</tool_call>"),
    end(),
};
constexpr CallForm kXml[] = {{"<tool_call>", kXmlSteps}, {"<function=", kBareXmlSteps}};

// <|action_start|><|plugin|>
// {"name": "f", "parameters": {...}}<|action_end|>
constexpr Step kPluginSteps[] = {literal("<|action_start|>"),
                                 space(),
                                 literal("<|plugin|>"),
                                 space(),
                                 object(kCallObject),
                                 space(),
                                 literal("<|action_end|>"),
                                 call(),
                                 end()};
constexpr CallForm kPlugin[] = {{"<|action_start|>", kPluginSteps}};

// <|python_tag|>{"name": "f", "parameters": {...}}; {...}
constexpr Step kPythonTagSteps[] = {
    literal("<|python_tag|>"), space(), object(kCallObject), call(), space(), literal(";", 1)};
// {"name": "f", "parameters": {...}}; {...}
constexpr Step kBareObjectSteps[] = {object(kWholeCall), call(), space(), literal(";"), space(0)};
// <function=f>{...}</function>
constexpr Step kFunctionTagSteps[] = {literal("<function="),
                                      until(">", kName),
                                      space(),
                                      object(kArguments),
                                      space(),
                                      literal("</function>"),
                                      call(),
                                      end()};
constexpr CallForm kLlama[] = {{"<|python_tag|>", kPythonTagSteps},
                               {"<function=", kFunctionTagSteps},
                               {"{", kBareObjectSteps, /*opens_output=*/true}};

// V3, R1: <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f
// ```json
// {...}
// ```<｜tool▁call▁end｜>
// <｜tool▁call▁begin｜>...<｜tool▁calls▁end｜>
// V3.1:
// <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{...}<｜tool▁call▁end｜>...<｜tool▁calls▁end｜>
constexpr Step kDeepseekSteps[] = {
    literal("<｜tool▁calls▁begin｜>", Step::kFollowing, 2),
    space(),
    literal("<｜tool▁call▁begin｜>"),  // 2
    until("<｜tool▁sep｜>", kName),    // 3; V3: the kind of tool, until the name comes
    space(),
    peek("{", 13, 6),
    until("\n", kName),  // 6
    space(),
    literal("```json"),
    space(),
    object(kArguments),
    space(),
    literal("```", 14),
    object(kArguments),  // 13
    space(),             // 14
    literal("<｜tool▁call▁end｜>"),
    call(),
    space(),
    literal("<｜tool▁call▁begin｜>", 3, 19),
    literal("<｜tool▁calls▁end｜>"),  // 19
    end(),
};
constexpr CallForm kDeepseek[] = {{"<｜tool▁calls▁begin｜>", kDeepseekSteps},
                                  {"<｜tool▁call▁begin｜>", kDeepseekSteps}};

// v0.3, Nemo: [TOOL_CALLS] [{"name": "f", "arguments": {...}, "id": "123456789"}, ...]
// Small 3.2: [TOOL_CALLS]f[CALL_ID]123456789[ARGS]{...}, the id optional
constexpr Step kMistralSteps[] = {
    literal("[TOOL_CALLS]"),
    space(),
    literal("[", Step::kFollowing, 10),
    space(),  // 3
    object(kCallObject),
    call(),
    space(),
    literal(",", 3, 8),
    literal("]"),  // 8
    end(),
    until("[", kName),  // 10
    literal("CALL_ID]", Step::kFollowing, 13),
    until("[", kId),
    literal("ARGS]"),  // 13
    space(),
    object(kArguments),
    call(),
    end(),
};
constexpr CallForm kMistral[] = {{"[TOOL_CALLS]", kMistralSteps}};

constexpr ToolFormat kFormats[] = {
    {"deepseek-r1", kDeepseek},
    {"deepseek-v3", kDeepseek},
    {"hermes", kTagged},
    {"intern-s1", kPlugin},
    {"internlm", kPlugin},
    {"llama3", kLlama},
    {"qwen", kTagged},
    {"qwen2d5", kTagged},
    {"qwen3", kTagged},
    {"qwen3coder", kXml},
    {"mistral", kMistral, CallIds::kNineLetters},
};

}  // namespace

std::span<const ToolFormat> tool_formats() { return kFormats; }

const ToolFormat* find_tool_format(std::string_view name) {
  const auto found = std::find_if(std::begin(kFormats), std::end(kFormats),
                                  [&](const ToolFormat& format) { return format.name == name; });
  return found == std::end(kFormats) ? nullptr : &*found;
}

}  // namespace lmdeploy
