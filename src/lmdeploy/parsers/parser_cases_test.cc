#include "lmdeploy/parsers/parser_cases.h"

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/random.h"
#include "lmdeploy/core/utf8.h"

namespace lmdeploy {
namespace {

// Joins deltas as a client does; the id and the name must come once, first and alone.
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
      EXPECT_TRUE(!call.id.empty() && !call.name.empty() && call.arguments.empty());
      output_.tool_calls.push_back({call.id, call.name, {}});
      return;
    }
    ASSERT_EQ(index + 1, output_.tool_calls.size());
    EXPECT_TRUE(call.id.empty() && call.name.empty() && !call.arguments.empty());
    output_.tool_calls[index].arguments += call.arguments;
  }
  ParsedOutput output_;
};

// Before each character but the first.
std::vector<size_t> between_characters(std::string_view text) {
  std::vector<size_t> cuts;
  for (size_t at = 0; at < text.size(); at += decode_utf8(text, at).size)
    if (at > 0) cuts.push_back(at);
  return cuts;
}

TEST_P(ParserCases, Whole) { EXPECT_EQ(show(parse_cut(GetParam(), {})), show(GetParam().want)); }

TEST_P(ParserCases, CutInTwoAnywhere) {
  const ParserCase& c = GetParam();
  for (size_t cut = 0; cut <= c.text.size(); ++cut)
    ASSERT_EQ(show(parse_cut(c, {cut})), show(c.want)) << "cut at byte " << cut;
}

TEST_P(ParserCases, InRandomPieces) {
  const ParserCase& c = GetParam();
  for (uint64_t seed = 0; seed < 200; ++seed)
    ASSERT_EQ(show(parse_cut(c, random_cuts(c.text.size(), seed))), show(c.want)) << "seed " << seed;
}

TEST_P(ParserCases, ByteByByte) {
  const ParserCase& c = GetParam();
  std::vector<size_t> cuts;
  for (size_t at = 1; at < c.text.size(); ++at) cuts.push_back(at);
  EXPECT_EQ(show(parse_cut(c, cuts)), show(c.want));
}

TEST_P(ParserCases, NoPieceSplitsACharacter) {
  const ParserCase& c = GetParam();
  OutputParser parser(case_options(c));
  size_t begin = 0;
  std::vector<size_t> cuts = between_characters(c.text);
  cuts.push_back(c.text.size());
  for (const size_t cut : cuts) {
    const OutputDelta delta = parser.push(std::string_view(c.text).substr(begin, cut - begin));
    EXPECT_TRUE(is_utf8(delta.content) && is_utf8(delta.reasoning_content)) << "before byte " << cut;
    begin = cut;
  }
}

}  // namespace

const Json& case_tools() {
  static const Json kTools = parse_json(R"([{"type": "function", "function": {"name": "f", "parameters": {
      "type": "object", "properties": {
        "text": {"type": "string"}, "count": {"type": "integer"}, "ratio": {"type": "number"},
        "flag": {"type": "boolean"}, "list": {"type": "array"}, "maybe": {"type": ["string", "null"]},
        "any": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}}}},
      {"type": "function", "function": {"name": "g"}}])",
                                        "tools");
  return kTools;
}

OutputParserOptions case_options(const ParserCase& c) {
  OutputParserOptions options;
  options.names = {c.reasoning, c.tool_calls};
  options.prompt_opens_thought = c.opens_thought;
  options.enable_thinking = c.enable_thinking;
  options.tools = case_tools();
  options.make_id = [count = 0]() mutable { return cat("id", count++); };
  return options;
}

std::string show(const ParsedOutput& output) {
  std::string text = cat("content <", output.content, "> reasoning <", output.reasoning_content, ">");
  for (const ToolCall& call : output.tool_calls)
    text += cat(" call ", call.id, " ", call.name, " <", call.arguments, ">");
  return text;
}

ParsedOutput parse_cut(const ParserCase& c, const std::vector<size_t>& cuts) {
  OutputParser parser(case_options(c));
  Client client;
  size_t begin = 0;
  for (const size_t cut : cuts) {
    client.take(parser.push(std::string_view(c.text).substr(begin, cut - begin)));
    begin = cut;
  }
  client.take(parser.push(std::string_view(c.text).substr(begin)));
  client.take(parser.finish());
  EXPECT_EQ(show(client.output()), show(parser.result()));
  return client.output();
}

std::vector<size_t> random_cuts(size_t size, uint64_t seed) {
  Rng rng(seed);
  const uint64_t longest = 1 + rng.below(8);
  std::vector<size_t> cuts;
  for (size_t at = rng.below(longest + 1); at < size; at += 1 + rng.below(longest)) cuts.push_back(at);
  return cuts;
}

}  // namespace lmdeploy
