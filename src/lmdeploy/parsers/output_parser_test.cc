// Every case is parsed whole, cut in two at every byte, byte by byte, and in random pieces: always the same.
#include "lmdeploy/parsers/output_parser.h"

#include <gtest/gtest.h>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/random.h"

namespace lmdeploy {
namespace {

struct Case {
  std::string name;
  std::string reasoning, tool_calls;  // parsers
  std::string text;
  ParsedOutput want;  // ids: as written in the text, or id0, id1, ...
  std::optional<bool> opens_thought = std::nullopt;
  bool enable_thinking = true;
};

const Json& tools() {
  static const Json kTools = parse_json(R"([{"type": "function", "function": {"name": "f", "parameters": {
      "type": "object", "properties": {
        "text": {"type": "string"}, "count": {"type": "integer"}, "ratio": {"type": "number"},
        "flag": {"type": "boolean"}, "list": {"type": "array"}, "maybe": {"type": ["string", "null"]},
        "any": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}}}}])",
                                        "tools");
  return kTools;
}

OutputParser make_parser(const Case& c) {
  OutputParserOptions options;
  options.names = {c.reasoning, c.tool_calls};
  options.prompt_opens_thought = c.opens_thought;
  options.enable_thinking = c.enable_thinking;
  options.tools = tools();
  options.make_id = [count = 0]() mutable { return cat("id", count++); };
  return OutputParser(std::move(options));
}

std::string show(const ParsedOutput& output) {
  std::string text = cat("content <", output.content, "> reasoning <", output.reasoning_content, ">");
  for (const ToolCall& call : output.tool_calls)
    text += cat(" call ", call.id, " ", call.name, " <", call.arguments, ">");
  return text;
}

// Joins deltas as a client does; the id and the name must come once, first.
class Client {
 public:
  void take(const OutputDelta& delta) {
    output_.content += delta.content;
    output_.reasoning_content += delta.reasoning_content;
    for (const ToolCallDelta& call : delta.tool_calls) take(call);
  }
  const ParsedOutput& output() const { return output_; }

 private:
  void take(const ToolCallDelta& call) {
    const auto index = static_cast<size_t>(call.index);
    if (index == output_.tool_calls.size()) {
      EXPECT_FALSE(call.id.empty());
      EXPECT_FALSE(call.name.empty());
      output_.tool_calls.push_back({call.id, call.name, call.arguments});
      return;
    }
    ASSERT_EQ(index + 1, output_.tool_calls.size());
    EXPECT_TRUE(call.id.empty() && call.name.empty());
    output_.tool_calls[index].arguments += call.arguments;
  }
  ParsedOutput output_;
};

// `cuts`: ascending positions at which the text is cut.
std::string parse_cut(const Case& c, const std::vector<size_t>& cuts) {
  OutputParser parser = make_parser(c);
  Client client;
  size_t begin = 0;
  for (const size_t cut : cuts) {
    client.take(parser.push(std::string_view(c.text).substr(begin, cut - begin)));
    begin = cut;
  }
  client.take(parser.push(std::string_view(c.text).substr(begin)));
  client.take(parser.finish());
  EXPECT_EQ(show(client.output()), show(parser.result()));
  return show(client.output());
}

const std::vector<Case>& cases() {
  static const std::vector<Case> kCases = {
      // Thoughts (F31).
      {"Thought", "qwen-qwq", "", "<think>\na\n</think>\n\nb", {"b", "a", {}}},
      {"ThoughtOpenedByThePrompt", "qwen-qwq", "", "a</think>b", {"b", "a", {}}, true},
      {"ThoughtOpenedByWhoKnows", "qwen-qwq", "", "a\n</think>\n\nb", {"b", "a", {}}},
      {"ThoughtCutOff", "qwen-qwq", "", "<think>\na\nb\n", {"", "a\nb", {}}},
      {"ThoughtCutOffInItsEnd", "qwen-qwq", "", "<think>a</thi", {"", "a</thi", {}}},
      {"ThoughtOff", "qwen-qwq", "", "b", {"b", "", {}}, std::nullopt, false},
      {"ThoughtOffKeepsTags", "qwen-qwq", "", "<think>a</think>b", {"<think>a</think>b", "", {}}, {}, false},
      {"ThoughtClosedInThePrompt", "qwen-qwq", "", "b\n", {"b\n", "", {}}, false},
      {"ThoughtNotOpenedYet", "qwen-qwq", "", "\n<think>\na\n\nc\n</think>b", {"b", "a\n\nc", {}}, false},
      {"ThoughtEmpty", "qwen-qwq", "", "<think>\n\n</think>\n\nb", {"b", "", {}}, false},
      {"ThoughtOnlyAtTheBeginning",
       "qwen-qwq",
       "",
       "x <think>a</think>",
       {"x <think>a</think>", "", {}},
       false},
      {"ThoughtOnlyOnce", "qwen-qwq", "", "a</think>b<think>c</think>", {"b<think>c</think>", "a", {}}},
      {"ThoughtWithTagLikeText",
       "qwen-qwq",
       "",
       "<think>1 < 2 </b> </think >\n</think>x",
       {"x", "1 < 2 </b> </think >", {}}},
      {"ThoughtTagsTwice", "intern-s1", "", "<think><think>a</think>", {"", "<think>a", {}}},
      {"R1WithoutEnd", "deepseek-r1", "", "abc", {"", "abc", {}}, false},
      {"R1OpenTagIsOptional", "deepseek-r1", "", "a</think>\n\nb", {"b", "a", {}}, false},
      {"V3ThinksWhenAsked", "deepseek-v3", "", "a</think>b", {"b", "a", {}}, true},
      {"V3DoesNotThink", "deepseek-v3", "", "b", {"b", "", {}}},
      {"DefaultIsEmpty", "default", "", "", {"", "", {}}},
      {"Unicode", "default", "", "想＜</think>＜答🎉", {"＜答🎉", "想＜", {}}},
      // <tool_call> (F30).
      {"TwoCalls",
       "",
       "qwen",
       "Sure. <tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"name\": "
       "\"g\", "
       "\"arguments\": {\"city\":\"Oslo\"}}\n</tool_call>",
       {"Sure. ", "", {{"id0", "f", "{}"}, {"id1", "g", "{\"city\":\"Oslo\"}"}}}},
      {"NewlinesBelongToCalls",
       "",
       "qwen3",
       "\n\nSure.\n\n<tool_call>{\"name\":\"f\"}</tool_call>\n\nDone.\n<tool_call>{\"name\":\"g\","
       "\"arguments\":null}</tool_call> \n",
       {"\n\nSure.\n\nDone.", "", {{"id0", "f", "{}"}, {"id1", "g", "{}"}}}},
      {"NoCall", "", "qwen", "\n a < b <tool> \n\n", {"\n a < b <tool> \n\n", "", {}}},
      {"OnlySpace", "", "qwen", " \n ", {" \n ", "", {}}},
      {"ArgumentsFirst",
       "",
       "hermes",
       R"(<tool_call>{"arguments": {"x": [1, {"y": "}"}], "name": "no"}, "name": "f"}</tool_call>)",
       {"", "", {{"id0", "f", R"({"x": [1, {"y": "}"}], "name": "no"})"}}}},
      {"NumbersKeepTheirDigits",
       "",
       "qwen2d5",
       R"(<tool_call>{"name": "f", "arguments": {"x": 1.0, "y": 123456789012345678901234567890}}</tool_call>)",
       {"", "", {{"id0", "f", R"({"x": 1.0, "y": 123456789012345678901234567890})"}}}},
      {"MarkersInStrings",
       "",
       "qwen",
       R"(<tool_call>{"name": "f", "arguments": {"x": "</tool_call> <tool_call> \" } \\"}}</tool_call>)",
       {"", "", {{"id0", "f", R"({"x": "</tool_call> <tool_call> \" } \\"})"}}}},
      {"ArgumentsAsText",
       "",
       "qwen",
       R"(<tool_call>{"name": "f", "arguments": "{\"x\": 1}"}</tool_call>)",
       {"", "", {{"id0", "f", R"({"x": 1})"}}}},
      {"UnicodeArguments",
       "",
       "qwen",
       R"(好<tool_call>{"name": "天气", "arguments": {"城": "北京🎉"}}</tool_call>)",
       {"好", "", {{"id0", "天气", R"({"城": "北京🎉"})"}}}},
      {"BrokenJsonIsContent",
       "",
       "qwen",
       "a\n<tool_call>\n{\"name\": f}\n</tool_call>\n",
       {"a\n<tool_call>\n{\"name\": f}\n</tool_call>\n", "", {}}},
      {"CutOffIsContent",
       "",
       "qwen",
       "a\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": \"y",
       {"a\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": \"y", "", {}}},
      {"NoEndTagIsContent",
       "",
       "qwen",
       "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n",
       {"<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n", "", {}}},
      {"NoNameIsContent",
       "",
       "qwen",
       R"(<tool_call>{"arguments": {}}</tool_call>)",
       {R"(<tool_call>{"arguments": {}}</tool_call>)", "", {}}},
      {"OtherArgumentsAreContent",
       "",
       "qwen",
       R"(<tool_call>{"name": "f", "arguments": [1]}</tool_call>)",
       {R"(<tool_call>{"name": "f", "arguments": [1]}</tool_call>)", "", {}}},
      {"GoodCallAfterBadOnes",
       "",
       "qwen",
       R"(<tool_call>{"name": "f", "arguments": {"x": 1}</tool_call> <tool_call><tool_call>{"name": "g"}</tool_call>)",
       {R"(<tool_call>{"name": "f", "arguments": {"x": 1}</tool_call> <tool_call>)",
        "",
        {{"id0", "g", "{}"}}}},
      {"CallAfterThought",
       "qwen-qwq",
       "qwen",
       "<think>\nI <tool_call>{\"name\": \"no\"}</tool_call>\n</think>\n\n<tool_call>{\"name\": "
       "\"f\"}</tool_call>",
       {"", "I <tool_call>{\"name\": \"no\"}</tool_call>", {{"id0", "f", "{}"}}}},
      // Qwen3-Coder.
      {"Xml",
       "",
       "qwen3coder",
       "I will.\n<tool_call>\n<function=f>\n<parameter=text>\nline 1\n  "
       "\"2\"\n</parameter>\n<parameter=count>\n3\n"
       "</parameter>\n<parameter=ratio>\n1.0\n</parameter>\n<parameter=flag>\nTrue\n</"
       "parameter>\n<parameter=list>\n"
       "[1, 2]\n</parameter>\n<parameter=maybe>\nnull\n</parameter>\n<parameter=any>\n7\n</parameter>\n"
       "<parameter=unknown>\n8\n</parameter>\n</function>\n</tool_call>",
       {"I will.",
        "",
        {{"id0", "f",
          R"({"text": "line 1\n  \"2\"", "count": 3, "ratio": 1.0, "flag": true, "list": [1, 2], "maybe": null, )"
          R"("any": 7, "unknown": "8"})"}}}},
      {"XmlBadNumberIsText",
       "",
       "qwen3coder",
       "<tool_call><function=f><parameter=count>many</parameter></function></tool_call>",
       {"", "", {{"id0", "f", R"({"count": "many"})"}}}},
      {"XmlTwiceWithoutParameters",
       "",
       "qwen3coder",
       "<tool_call>\n<function=f>\n</function>\n</tool_call>\n<tool_call>\n<function=g>\n</function>\n</"
       "tool_call>",
       {"", "", {{"id0", "f", "{}"}, {"id1", "g", "{}"}}}},
      {"XmlWithoutOuterTags",
       "",
       "qwen3coder",
       "<function=g>\n<parameter=x>\na\n</parameter>\n<parameter=x>\nb</parameter>\n</function>\n</"
       "tool_call>\n",
       {"", "", {{"id0", "g", R"({"x": "b"})"}}}},
      {"XmlMalformedIsContent",
       "",
       "qwen3coder",
       "<tool_call>\n<function=f g>\n</function>\n</tool_call>",
       {"<tool_call>\n<function=f g>\n</function>\n</tool_call>", "", {}}},
      // InternLM2.
      {"Plugin",
       "",
       "internlm",
       "Let me see.<|action_start|><|plugin|>\n{\"name\": \"f\", \"parameters\": {\"x\": 1}}<|action_end|>\n",
       {"Let me see.", "", {{"id0", "f", "{\"x\": 1}"}}}},
      {"PluginWithArguments",
       "",
       "intern-s1",
       "<|action_start|> <|plugin|>{\"name\": \"f\", \"arguments\": {}}<|action_end|>",
       {"", "", {{"id0", "f", "{}"}}}},
      {"InterpreterIsContent",
       "",
       "internlm",
       "<|action_start|><|interpreter|>\n1 + 1<|action_end|>",
       {"<|action_start|><|interpreter|>\n1 + 1<|action_end|>", "", {}}},
      // Llama 3.1.
      {"PythonTag",
       "",
       "llama3",
       R"(<|python_tag|>{"name": "f", "parameters": {"x": "y"}})",
       {"", "", {{"id0", "f", R"({"x": "y"})"}}}},
      {"PythonTagTwo",
       "",
       "llama3",
       R"(Ok <|python_tag|>{"name": "f", "parameters": {}}; {"name": "g"} then)",
       {"Ok  then", "", {{"id0", "f", "{}"}, {"id1", "g", "{}"}}}},
      {"PythonCodeIsContent", "", "llama3", "<|python_tag|>print(1)", {"<|python_tag|>print(1)", "", {}}},
      {"SecondCallBroken",
       "",
       "llama3",
       R"(<|python_tag|>{"name": "f"}; {"name": )",
       {R"(; {"name": )", "", {{"id0", "f", "{}"}}}},
      {"BareObject",
       "",
       "llama3",
       " \n{\"name\": \"f\", \"parameters\": {\"x\": 1}}; {\"name\": \"g\", \"parameters\": {}}",
       {"", "", {{"id0", "f", "{\"x\": 1}"}, {"id1", "g", "{}"}}}},
      {"BareObjectThatIsAnAnswer",
       "",
       "llama3",
       R"({"name": "Bob", "age": 3})",
       {R"({"name": "Bob", "age": 3})", "", {}}},
      {"BareObjectLater",
       "",
       "llama3",
       R"(So: {"name": "f", "parameters": {}})",
       {R"(So: {"name": "f", "parameters": {}})", "", {}}},
      {"FunctionTag",
       "",
       "llama3",
       "<function=f>{\"x\": 1}</function>",
       {"", "", {{"id0", "f", "{\"x\": 1}"}}}},
      // DeepSeek.
      {"DeepseekV3",
       "",
       "deepseek-v3",
       "Yes.\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"x\": 1}\n"
       "```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```<"
       "｜tool▁call▁end｜>"
       "<｜tool▁calls▁end｜>",
       {"Yes.", "", {{"id0", "f", "{\"x\": 1}"}, {"id1", "g", "{}"}}}},
      {"DeepseekV31",
       "deepseek-v3",
       "deepseek-v3",
       "why</think>Yes.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"x\": "
       "1}<｜tool▁call▁end｜>"
       "<｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       {"Yes.", "why", {{"id0", "f", "{\"x\": 1}"}, {"id1", "g", "{}"}}},
       true},
      {"DeepseekCutOffAfterACall",
       "",
       "deepseek-r1",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}\n```<"
       "｜tool▁call▁end｜>\n"
       "<｜tool▁call▁begin｜>fun",
       {"\n<｜tool▁call▁begin｜>fun", "", {{"id0", "f", "{}"}}}},
      {"DeepseekLooksLike", "", "deepseek-r1", "<｜tool▁x｜> <，", {"<｜tool▁x｜> <，", "", {}}},
      // Mistral.
      {"MistralList",
       "",
       "mistral",
       R"(Ok[TOOL_CALLS] [{"name": "f", "arguments": {"x": 1}, "id": "abc123def"}, {"name": "g", "arguments": {}}])",
       {"Ok", "", {{"abc123def", "f", R"({"x": 1})"}, {"id0", "g", "{}"}}}},
      {"MistralArgs",
       "",
       "mistral",
       R"([TOOL_CALLS]f[ARGS]{"x": 1}[TOOL_CALLS]g[CALL_ID]123456789[ARGS]{})",
       {"", "", {{"id0", "f", R"({"x": 1})"}, {"123456789", "g", "{}"}}}},
      {"MistralBroken",
       "",
       "mistral",
       R"([TOOL_CALLS] [f(x)] [TOOL)",
       {R"([TOOL_CALLS] [f(x)] [TOOL)", "", {}}},
      {"MistralListCutOff",
       "",
       "mistral",
       R"([TOOL_CALLS] [{"name": "f"}, {"na)",
       {R"(, {"na)", "", {{"id0", "f", "{}"}}}},
  };
  return kCases;
}

class OutputParserCases : public ::testing::TestWithParam<Case> {};

TEST_P(OutputParserCases, Whole) { EXPECT_EQ(parse_cut(GetParam(), {}), show(GetParam().want)); }

TEST_P(OutputParserCases, CutInTwoAnywhere) {
  const Case& c = GetParam();
  for (size_t cut = 0; cut <= c.text.size(); ++cut)
    ASSERT_EQ(parse_cut(c, {cut}), show(c.want)) << "cut at byte " << cut;
}

TEST_P(OutputParserCases, InRandomPieces) {
  const Case& c = GetParam();
  Rng rng(7);
  for (int round = 0; round < 200; ++round) {
    const uint64_t longest = 1 + rng.below(8);
    std::vector<size_t> cuts;
    for (size_t at = rng.below(longest + 1); at < c.text.size(); at += 1 + rng.below(longest))
      cuts.push_back(at);
    ASSERT_EQ(parse_cut(c, cuts), show(c.want)) << "round " << round;
  }
}

// A text without calls is what it was, in pieces that wait for as little as possible.
TEST_P(OutputParserCases, ByteByByte) {
  const Case& c = GetParam();
  std::vector<size_t> cuts;
  for (size_t at = 1; at < c.text.size(); ++at) cuts.push_back(at);
  EXPECT_EQ(parse_cut(c, cuts), show(c.want));
}

INSTANTIATE_TEST_SUITE_P(All, OutputParserCases, ::testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param.name; });

TEST(OutputParser, GivesTextOutAtOnce) {
  OutputParser parser(OutputParserOptions{.names = {"qwen-qwq", "qwen"}, .prompt_opens_thought = true});
  EXPECT_EQ(parser.push("a").reasoning_content, "a");
  EXPECT_EQ(parser.push(" b\n").reasoning_content, " b");
  EXPECT_EQ(parser.push("c</").reasoning_content, "\nc");
  EXPECT_EQ(parser.push("p>").reasoning_content, "</p>");
  EXPECT_TRUE(parser.push("</think>\n").empty());
  EXPECT_EQ(parser.push("d <tool").content, "d ");
  EXPECT_EQ(parser.push("s>").content, "<tools>");
  EXPECT_TRUE(parser.push("<tool_call>{\"name\": \"f\"").empty());
  EXPECT_EQ(parser.push("}</tool_call>").tool_calls.size(), 1u);
  EXPECT_TRUE(parser.finish().empty());
  EXPECT_TRUE(parser.finish().empty());
}

TEST(OutputParser, MakesIdsThatTemplatesTake) {
  const std::string text = R"([TOOL_CALLS] [{"name": "f"}, {"name": "f"}])";
  const ParsedOutput output = parse_output(text, {.names = {"", "mistral"}});
  ASSERT_EQ(output.tool_calls.size(), 2u);
  EXPECT_EQ(output.tool_calls[0].id.size(), 9u);
  EXPECT_NE(output.tool_calls[0].id, output.tool_calls[1].id);
  const ParsedOutput qwen = parse_output(R"(<tool_call>{"name": "f"}</tool_call>)", {.names = {"", "qwen"}});
  ASSERT_EQ(qwen.tool_calls.size(), 1u);
  EXPECT_EQ(qwen.tool_calls[0].id.rfind("chatcmpl-tool-", 0), 0u);
}

TEST(OutputParser, UnknownNamesAreListed) {
  const auto message_of = [](OutputParserNames names) {
    try {
      OutputParser(OutputParserOptions{.names = std::move(names)});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message_of({"r1", ""}),
            "there is no reasoning parser \"r1\"; there are: deepseek-r1, deepseek-v3, default, intern-s1, "
            "qwen-qwq");
  EXPECT_EQ(message_of({"", "gpt"}),
            "there is no tool call parser \"gpt\"; there are: deepseek-r1, deepseek-v3, hermes, intern-s1, "
            "internlm, "
            "llama3, mistral, qwen, qwen2d5, qwen3, qwen3coder");
}

TEST(OutputParser, FitsTheTemplate) {
  const auto names = [](std::string_view name, std::string_view jinja) {
    const OutputParserNames found = parsers_for_template(name, jinja);
    return cat(found.reasoning, "|", found.tool_calls);
  };
  EXPECT_EQ(names("internlm2-chat", ""), "|internlm");
  EXPECT_EQ(names("llama3_1", ""), "|llama3");
  EXPECT_EQ(names("llama3", ""), "|");
  EXPECT_EQ(names("qwen2d5", ""), "|qwen2d5");
  EXPECT_EQ(names("qwen3", ""), "qwen-qwq|qwen3");
  EXPECT_EQ(names("qwq_preview", ""), "|qwen");
  EXPECT_EQ(names("deepseek-r1", ""), "deepseek-r1|deepseek-r1");
  EXPECT_EQ(names("vicuna", ""), "|");
  EXPECT_EQ(names("jinja", "{{ '<tool_call>' }}"), "|qwen");
  EXPECT_EQ(names("jinja", "<tool_call> <function= <parameter=x>"), "|qwen3coder");
  EXPECT_EQ(names("jinja", "<tool_call> </think>"), "qwen-qwq|qwen");
  EXPECT_EQ(names("jinja", "<｜Assistant｜></think><｜tool▁calls▁begin｜>"), "deepseek-r1|deepseek-v3");
  EXPECT_EQ(names("jinja", "{% if thinking %}<｜Assistant｜></think>"), "deepseek-v3|");
  EXPECT_EQ(names("jinja", "<tool_call><arg_key>"), "|");
  EXPECT_EQ(names("jinja", "<seed:tool_call><function=f><parameter=x>"), "|");
  EXPECT_EQ(names("jinja", "nothing"), "|");
}

TEST(OutputParser, SeesWhetherThePromptOpensAThought) {
  EXPECT_TRUE(prompt_opens_thought("<|im_start|>assistant\n<think>\n"));
  EXPECT_FALSE(prompt_opens_thought("<|im_start|>assistant\n<think>\n\n</think>\n\n"));
  EXPECT_FALSE(prompt_opens_thought("<think> is a tag"));
  EXPECT_FALSE(prompt_opens_thought(""));
}

// A megabyte in small pieces must take milliseconds: nothing is looked at again with each piece.
TEST(OutputParser, IsLinear) {
  std::string text = R"(<tool_call>{"name": "f", "arguments": {"x": ")";
  for (int i = 0; i < 60000; ++i) text += "<tool_call> \\\" }";
  text += "\"}}</tool_call>";
  for (const char* close : {"", "broken"}) {
    const std::string whole = close + text + close;
    OutputParser parser(OutputParserOptions{.names = {"deepseek-r1", "qwen"}});
    parser.push("</think>");
    for (size_t at = 0; at < whole.size(); at += 3) parser.push(std::string_view(whole).substr(at, 3));
    parser.finish();
    EXPECT_EQ(parser.result().tool_calls.size(), 1u);
  }
}

}  // namespace
}  // namespace lmdeploy
