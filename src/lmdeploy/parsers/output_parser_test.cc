// What every parser promises: calls for any cut, nothing lost, time in proportion to the text.
#include "lmdeploy/parsers/output_parser.h"

#include <algorithm>

#include "lmdeploy/core/random.h"
#include "lmdeploy/parsers/parser_cases.h"

namespace lmdeploy {
namespace {

struct Calls {
  std::string parser, text;
};

// "Sure. ", f({}) and g({"city":"Oslo"}), as each parser's models write it.
const std::vector<Calls>& two_calls() {
  const std::string tagged =
      "Sure. <tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n"
      "{\"name\": \"g\", \"arguments\": {\"city\":\"Oslo\"}}\n</tool_call>";
  const std::string xml =
      "Sure. <tool_call>\n<function=f>\n</function>\n</tool_call>\n<tool_call>\n<function=g>\n"
      "<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>";
  const std::string plugin =
      "Sure. <|action_start|><|plugin|>\n{\"name\": \"f\", \"parameters\": {}}<|action_end|>\n"
      "<|action_start|><|plugin|>\n{\"name\": \"g\", \"parameters\": {\"city\":\"Oslo\"}}"
      "<|action_end|>\n";
  const std::string deepseek =
      "Sure. "
      "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}\n```<"
      "｜tool▁call▁end｜>\n"
      "<｜tool▁call▁begin｜>g<｜tool▁sep｜>{\"city\":\"Oslo\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
  const std::string dsml =
      "Sure. <｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n</｜DSML｜invoke>\n<｜DSML｜invoke "
      "name=\"g\">\n"
      "<｜DSML｜parameter name=\"city\" string=\"true\">Oslo</｜DSML｜parameter>\n</｜DSML｜invoke>\n"
      "</｜DSML｜function_calls>";
  static const std::vector<Calls> kCalls = {
      {"deepseek-r1", deepseek},
      {"deepseek-v3", deepseek},
      {"deepseek-v3.2", dsml},
      {"deepseek-v32", dsml},
      {"deepseek-v4", dsml},
      {"glm47",
       "Sure. "
       "<tool_call>f\n</tool_call><tool_call>g<arg_key>city</arg_key><arg_value>Oslo</arg_value></"
       "tool_call>"},
      {"gpt-oss",
       "<|channel|>final<|message|>Sure. <|end|><|start|>assistant<|channel|>commentary to=functions.f "
       "<|constrain|>json"
       "<|message|>{}<|call|><|start|>assistant to=functions.g<|channel|>commentary "
       "json<|message|>{\"city\":\"Oslo\"}"},
      {"hermes", tagged},
      {"intern-s1", plugin},
      {"internlm", plugin},
      {"interns2-preview", xml},
      {"llama3",
       R"(Sure. <|python_tag|>{"name": "f", "parameters": {}}; {"name": "g", "parameters": {"city":"Oslo"}})"},
      {"mistral", R"(Sure. [TOOL_CALLS]f[ARGS]{}[TOOL_CALLS][{"name": "g", "arguments": {"city":"Oslo"}}])"},
      {"qwen", tagged},
      {"qwen2d5", tagged},
      {"qwen3", tagged},
      {"qwen3coder", xml},
      {"seed-oss",
       "Sure. "
       "<seed:tool_call>\n<function=f>\n</function>\n</seed:tool_call>\n<seed:tool_call>\n<function=g>\n"
       "<parameter=city>Oslo</parameter>\n</function>\n</seed:tool_call>"},
  };
  return kCalls;
}

std::string label_of(std::string name) {
  for (char& byte : name)
    if (byte == '-' || byte == '.') byte = '_';
  return name;
}

std::vector<ParserCase> field_cases() {
  std::vector<ParserCase> cases;
  for (const auto& [parser, text] : two_calls()) {
    const bool by_key = text.find("city\"") == std::string::npos || text.find("DSML") != std::string::npos;
    const std::string city = by_key ? R"({"city": "Oslo"})" : R"({"city":"Oslo"})";
    cases.push_back({"F30_" + label_of(parser),
                     "",
                     parser,
                     text,
                     {"Sure. ", "", {{"id0", "f", "{}"}, {"id1", "g", city}}}});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(FieldCases, ParserCases, ::testing::ValuesIn(field_cases()), name_of_case);

TEST(OutputParser, F30_EveryParserIsTested) {
  std::vector<std::string> tested;
  for (const Calls& calls : two_calls()) tested.push_back(calls.parser);
  EXPECT_EQ(tested, tool_parser_names());
}

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
  EXPECT_EQ(parser.push("}</tool_call>").tool_calls.size(), 2u);  // the name, then the arguments
  EXPECT_TRUE(parser.finish().empty());
  EXPECT_TRUE(parser.finish().empty());
}

// What a grammar has made a call and a limit has cut.
TEST(OutputParser, CallsThatBreakOffAreGivenAsFarAsTheyGo) {
  struct Cut {
    const char *parser, *text, *name, *arguments;
    bool cut_off;
  };
  const Cut cuts[] = {
      {"hermes", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": [1", "f", "{\"x\": [1", true},
      {"hermes", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}", "f", "{\"x\": 1}", false},
      {"hermes", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_", "f", "{\"x\": 1}",
       false},
      {"hermes", "<tool_call>\n{\"name\": \"f\", \"argu", "f", "", true},
      {"hermes", "<tool_call>\n{\"name\": \"f\"", "f", "", true},
      {"hermes", "<tool_call>\n{\"name\": \"f", nullptr, "", false},
      {"hermes", "<tool_call>\n{", nullptr, "", false},
      {"hermes", "<tool_c", nullptr, "", false},
      {"hermes", "", nullptr, "", false},
      {"llama3", "{\"name\": \"f\", \"parameters\": {\"x\": \"a b", "f", "{\"x\": \"a b", true}};
  for (const Cut& cut : cuts)
    for (size_t piece = 1; piece <= 40; piece += 13) {
      OutputParser parser({.names = {"", cut.parser}, .only_calls = true});
      const std::string_view text = cut.text;
      for (size_t at = 0; at < text.size(); at += piece) parser.push(text.substr(at, piece));
      const OutputDelta rest = parser.finish();
      EXPECT_EQ(parser.result().content, "") << cut.text;
      EXPECT_EQ(rest.cut_off, cut.cut_off) << cut.text;
      ASSERT_EQ(parser.result().tool_calls.size(), cut.name == nullptr ? 0U : 1U) << cut.text;
      if (cut.name == nullptr) continue;
      EXPECT_EQ(parser.result().tool_calls[0].name, cut.name);
      EXPECT_EQ(parser.result().tool_calls[0].arguments, cut.arguments) << cut.text;
      EXPECT_FALSE(parser.result().tool_calls[0].id.empty());
    }
  OutputParser two({.names = {"", "hermes"}, .only_calls = true});
  two.push("<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"na");
  EXPECT_FALSE(two.finish().cut_off);
  ASSERT_EQ(two.result().tool_calls.size(), 1U);
  EXPECT_EQ(two.result().tool_calls[0].arguments, "{}");
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

// Damaged outputs: the cuts never matter, and text without a call stays as it is.
class AnyText : public ::testing::TestWithParam<Calls> {};

std::string damage(std::string text, Rng& rng) {
  for (uint64_t edits = 1 + rng.below(4); edits > 0; --edits) {
    const size_t at = rng.below(text.size() + 1), size = rng.below(24);
    const std::string part = text.substr(rng.below(text.size() + 1), size);
    if (rng.below(2) == 0) text.erase(at, size);
    if (rng.below(2) == 0) text.insert(at < text.size() ? at : text.size(), part);
    if (rng.below(4) == 0) text.insert(text.size() / 2, 1, " \n<{\"}>"[rng.below(7)]);
  }
  return text;
}

TEST_P(AnyText, CutsNeverMatterAndNothingIsLost) {
  const auto& [parser, text] = GetParam();
  Rng rng(3);
  for (uint64_t round = 0; round < 500; ++round) {
    const ParserCase c = {"", "", parser, damage(text, rng), {}};
    const ParsedOutput whole = parse_cut(c, {});
    ASSERT_EQ(show(parse_cut(c, random_cuts(c.text.size(), round))), show(whole)) << c.text;
    const bool is_text = whole.tool_calls.empty() && parser != "gpt-oss";
    ASSERT_EQ(is_text ? whole.content : c.text, c.text);
    for (const ToolCall& call : whole.tool_calls) ASSERT_TRUE(parse_json(call.arguments, "call").is_object());
  }
}

// Texts that a parser might look at again and again.
std::vector<std::string> hostile_texts(const std::string& text, size_t size) {
  const auto repeat = [&](const std::string& part) {
    std::string all;
    while (all.size() < size) all += part;
    return all;
  };
  const size_t half = text.size() / 2;
  std::string keys = "<tool_call><function=f>\n";
  for (int i = 0; keys.size() < size; ++i) keys += "<parameter=" + std::to_string(i) + ">1</parameter>";
  return {
      repeat(text),
      repeat(text.substr(0, half)),
      text.substr(0, half) + repeat(text.substr(half)),
      text.substr(0, half) + repeat(text.substr(half, 9)),
      repeat("<"),
      repeat("\n"),
      "x" + repeat("\n"),
      repeat(" "),
      repeat("["),
      repeat("{\"a\":"),
      keys + "</function></tool_call>",
      "<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": \"" + repeat("<tool_call> \\\" }") +
          "\"}}</tool_call>",
  };
}

void parse_in_pieces(const ParserCase& c, size_t piece) {
  OutputParser parser(case_options(c));
  for (size_t at = 0; at < c.text.size(); at += piece)
    parser.push(std::string_view(c.text).substr(at, piece));
  parser.finish();
}

// A megabyte takes about 20 ms, in pieces or at once. Work that grew with the square of the length would take
// up to hours, and CTest stops a test after ten minutes: the guard needs no clock.
TEST_P(AnyText, IsReadInLinearTime) {
  const auto& [parser, text] = GetParam();
  const std::string thoughts = parser == "gpt-oss" ? "gpt-oss" : "qwen-qwq";
  for (const std::string& hostile : hostile_texts(text, size_t{1} << 20)) {
    parse_in_pieces({"", "", parser, hostile, {}}, hostile.size());
    parse_in_pieces({"", thoughts, parser, hostile, {}, /*opens_thought=*/true}, 3);
  }
}

// One parser of each form.
std::vector<Calls> forms() {
  std::vector<Calls> found;
  for (const Calls& calls : two_calls())
    if (std::none_of(found.begin(), found.end(), [&](const Calls& one) { return one.text == calls.text; }))
      found.push_back(calls);
  return found;
}

INSTANTIATE_TEST_SUITE_P(All, AnyText, ::testing::ValuesIn(forms()),
                         [](const auto& test) { return label_of(test.param.parser); });

}  // namespace
}  // namespace lmdeploy
