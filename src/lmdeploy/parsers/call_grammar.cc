// Sources: the chat templates of the models (Qwen2.5, Qwen3, Qwen3-Coder, Qwen3.5, Llama 3.1, InternLM2,
// DeepSeek-R1, V3, V3.1, V3.2 and V4, Mistral 7B v0.3, Nemo, Small 3.2 and Ministral 3, GLM-4.6 and 4.7,
// Seed-OSS, Hermes 2 Pro), which ask for these forms and print them back.
#include "lmdeploy/parsers/call_grammar.h"

#include <algorithm>
#include <array>

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
constexpr Step word(Capture capture = kNothing) { return {Kind::kWord, {}, capture}; }
constexpr Step until(std::string_view text, Capture capture, int8_t next = Step::kFollowing) {
  return {Kind::kUntil, text, capture, next};
}
constexpr Step object(Capture capture, int8_t next = Step::kFollowing) {
  return {Kind::kObject, {}, capture, next};
}
constexpr Step call(int8_t next = Step::kFollowing) { return {Kind::kCall, {}, kNothing, next}; }
constexpr Step end() { return {Kind::kEnd}; }

// Each step leads to one that is there.
constexpr bool is_sound(std::span<const Step> steps) {
  const auto size = static_cast<int>(steps.size());
  for (int i = 0; i < size; ++i) {
    const Step& step = steps[static_cast<size_t>(i)];
    const int next = step.next == Step::kFollowing ? i + 1 : step.next;
    if (step.kind != Kind::kEnd && next >= size) return false;
    if (step.otherwise >= size) return false;
  }
  return true;
}

// <tool_call>
// {"name": "f", "arguments": {...}}
// </tool_call>
constexpr Step kTaggedSteps[] = {
    literal("<tool_call>"), space(), object(kCallObject), space(), literal("</tool_call>"), call(), end()};
static_assert(is_sound(kTaggedSteps));
constexpr CallForm kTagged[] = {{"<tool_call>", kTaggedSteps}};

// OPEN
// <function=f>
// <parameter=x>
// 1
// </parameter>
// </function>
// CLOSE
constexpr std::array<Step, 14> xml_steps(std::string_view open, std::string_view close, Capture value) {
  return {
      literal(open),
      space(),
      literal("<function="),
      word(kName),
      literal(">"),
      space(),  // 5
      literal("<parameter=", Step::kFollowing, 9),
      until(">", kKey),
      until("</parameter>", value, 5),
      literal("</function>"),  // 9
      space(),
      literal(close),
      call(),
      end(),
  };
}
constexpr auto kXmlSteps = xml_steps("<tool_call>", "</tool_call>", kTypedLines);
static_assert(is_sound(kXmlSteps));
// The model at times leaves the outer tags out.
constexpr Step kBareXmlSteps[] = {
    literal("<function="),
    word(kName),
    literal(">"),
    space(),  // 3
    literal("<parameter=", Step::kFollowing, 7),
    until(">", kKey),
    until("</parameter>", kTypedLines, 3),
    literal("</function>"),  // 7
    call(),
    space(),
    literal("</tool_call>"),
    end(),
};
static_assert(is_sound(kBareXmlSteps));
constexpr CallForm kXml[] = {{"<tool_call>", kXmlSteps}, {"<function=", kBareXmlSteps}};

// The same within <seed:tool_call>, the values without lines of their own.
constexpr auto kSeedSteps = xml_steps("<seed:tool_call>", "</seed:tool_call>", kTyped);
static_assert(is_sound(kSeedSteps));
constexpr CallForm kSeed[] = {{"<seed:tool_call>", kSeedSteps}};

// <tool_call>f
// <arg_key>x</arg_key>
// <arg_value>1</arg_value>
// </tool_call>
// The newlines are those of GLM-4.5 and 4.6; 4.7 and 5 write none.
constexpr Step kGlmSteps[] = {
    literal("<tool_call>"),
    space(),
    word(kName),
    space(),  // 3
    literal("<arg_key>", Step::kFollowing, 9),
    until("</arg_key>", kKey),
    space(),
    literal("<arg_value>"),
    until("</arg_value>", kTyped, 3),
    literal("</tool_call>"),  // 9
    call(),
    end(),
};
static_assert(is_sound(kGlmSteps));
constexpr CallForm kGlm[] = {{"<tool_call>", kGlmSteps}};

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
static_assert(is_sound(kPluginSteps));
constexpr CallForm kPlugin[] = {{"<|action_start|>", kPluginSteps}};

// <|python_tag|>{"name": "f", "parameters": {...}}; {...}
constexpr Step kPythonTagSteps[] = {
    literal("<|python_tag|>"), space(), object(kCallObject), call(), space(), literal(";", 1)};
static_assert(is_sound(kPythonTagSteps));
// {"name": "f", "parameters": {...}}; {...}
constexpr Step kBareObjectSteps[] = {object(kWholeCall), call(), space(), literal(";"), space(0)};
static_assert(is_sound(kBareObjectSteps));
// <function=f>{...}</function>
constexpr Step kFunctionTagSteps[] = {
    literal("<function="),  word(kName), literal(">"), space(), object(kArguments), space(),
    literal("</function>"), call(),      end()};
static_assert(is_sound(kFunctionTagSteps));
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
    word(kName),                       // 3; V3: the kind of tool, until the name comes
    literal("<｜tool▁sep｜>"),
    space(),
    peek("{", 14, 7),
    word(kName),  // 7
    space(),
    literal("```json"),
    space(),
    object(kArguments),
    space(),
    literal("```", 15),
    object(kArguments),  // 14
    space(),             // 15
    literal("<｜tool▁call▁end｜>"),
    call(),
    space(),
    literal("<｜tool▁call▁begin｜>", 3, 20),
    literal("<｜tool▁calls▁end｜>"),  // 20
    end(),
};
static_assert(is_sound(kDeepseekSteps));
constexpr CallForm kDeepseek[] = {{"<｜tool▁calls▁begin｜>", kDeepseekSteps},
                                  {"<｜tool▁call▁begin｜>", kDeepseekSteps}};

// V3.2; V4 says tool_calls:
// <｜DSML｜function_calls>
// <｜DSML｜invoke name="f">
// <｜DSML｜parameter name="x" string="true">text</｜DSML｜parameter>
// <｜DSML｜parameter name="y" string="false">[1]</｜DSML｜parameter>
// </｜DSML｜invoke>
// </｜DSML｜function_calls>
constexpr Step kDsmlSteps[] = {
    literal("<｜DSML｜"),
    word(),
    literal(">"),
    space(),
    literal("<｜DSML｜invoke name=\""),
    word(kName),  // 5
    literal("\">"),
    space(),  // 7
    literal("<｜DSML｜parameter name=\"", Step::kFollowing, 14),
    until("\" string=\"", kKey),
    literal("true\">", Step::kFollowing, 12),
    until("</｜DSML｜parameter>", kText, 7),
    literal("false\">"),  // 12
    until("</｜DSML｜parameter>", kJson, 7),
    literal("</｜DSML｜invoke>"),  // 14
    call(),
    space(),
    literal("<｜DSML｜invoke name=\"", 5, 18),
    literal("</｜DSML｜"),  // 18
    word(),
    literal(">"),
    end(),
};
static_assert(is_sound(kDsmlSteps));
constexpr CallForm kDsml[] = {{"<｜DSML｜function_calls>", kDsmlSteps}, {"<｜DSML｜tool_calls>", kDsmlSteps}};

// v0.3, Nemo: [TOOL_CALLS] [{"name": "f", "arguments": {...}, "id": "123456789"}, ...]
// Small 3.2: [TOOL_CALLS]f[CALL_ID]123456789[ARGS]{...}; Ministral 3: no id
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
    word(kName),  // 10
    literal("[CALL_ID]", Step::kFollowing, 13),
    word(kId),
    literal("[ARGS]"),  // 13
    space(),
    object(kArguments),
    call(),
    end(),
};
static_assert(is_sound(kMistralSteps));
constexpr CallForm kMistral[] = {{"[TOOL_CALLS]", kMistralSteps}};

constexpr ToolFormat kFormats[] = {
    {"deepseek-r1", kDeepseek}, {"deepseek-v3", kDeepseek}, {"deepseek-v3.2", kDsml},
    {"deepseek-v32", kDsml},    {"deepseek-v4", kDsml},     {"glm47", kGlm},
    {"hermes", kTagged},        {"intern-s1", kPlugin},     {"internlm", kPlugin},
    {"interns2-preview", kXml}, {"llama3", kLlama},         {"mistral", kMistral, CallIds::kNineLetters},
    {"qwen", kTagged},          {"qwen2d5", kTagged},       {"qwen3", kTagged},
    {"qwen3coder", kXml},       {"seed-oss", kSeed},
};

}  // namespace

std::span<const ToolFormat> tool_formats() { return kFormats; }

const ToolFormat* find_tool_format(std::string_view name) {
  const auto found = std::find_if(std::begin(kFormats), std::end(kFormats),
                                  [&](const ToolFormat& format) { return format.name == name; });
  return found == std::end(kFormats) ? nullptr : &*found;
}

}  // namespace lmdeploy
