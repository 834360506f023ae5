#include "lmdeploy/parsers/parser_names.h"

#include <gtest/gtest.h>

#include "lmdeploy/core/error.h"
#include "lmdeploy/parsers/output_parser.h"

namespace lmdeploy {
namespace {

TEST(ParserNames, UnknownNamesAreListed) {
  const auto message_of = [](OutputParserNames names) {
    try {
      OutputParser(OutputParserOptions{.names = std::move(names)});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(
      message_of({"r1", ""}),
      "there is no reasoning parser \"r1\"; there are: deepseek-r1, deepseek-v3, deepseek-v32, deepseek-v4, "
      "default, gpt-oss, intern-s1, mistral, qwen-qwq, seed-oss");
  EXPECT_EQ(message_of({"", "gpt"}),
            "there is no tool call parser \"gpt\"; there are: deepseek-r1, deepseek-v3, deepseek-v3.2, "
            "deepseek-v32, "
            "deepseek-v4, glm47, gpt-oss, hermes, intern-s1, internlm, interns2-preview, llama3, mistral, "
            "qwen, qwen2d5, "
            "qwen3, qwen3coder, seed-oss");
  EXPECT_EQ(message_of({"gpt-oss", "qwen"}),
            "the parser \"qwen\" can't be used beside \"gpt-oss\", which reads thoughts and tool calls; "
            "leave it out");
  EXPECT_EQ(message_of({"gpt-oss", "gpt-oss"}), "");
}

TEST(ParserNames, FitsTheTemplate) {
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
  EXPECT_EQ(names("jinja", "<tool_call><arg_key>"), "|glm47");
  EXPECT_EQ(names("jinja", "<seed:tool_call><function=f><parameter=x><seed:think>"), "seed-oss|seed-oss");
  EXPECT_EQ(names("jinja", "'｜DSML｜' </think><｜Assistant｜>"), "deepseek-v32|deepseek-v32");
  EXPECT_EQ(names("jinja", "[THINK] [TOOL_CALLS]"), "mistral|mistral");
  EXPECT_EQ(names("jinja", "<|channel|>analysis"), "gpt-oss|gpt-oss");
  EXPECT_EQ(names("jinja", "<tool_call> <tool_calls>["), "|");
  EXPECT_EQ(names("jinja", "<|python_start|> 'ipython'"), "|");
  EXPECT_EQ(names("jinja", "nothing"), "|");
}

TEST(ParserNames, SeesWhetherThePromptOpensAThought) {
  EXPECT_TRUE(prompt_opens_thought("<|im_start|>assistant\n<think>\n"));
  EXPECT_FALSE(prompt_opens_thought("<|im_start|>assistant\n<think>\n\n</think>\n\n"));
  EXPECT_TRUE(prompt_opens_thought("[THINK]"));
  EXPECT_TRUE(prompt_opens_thought("<seed:bos>assistant\n<seed:think>"));
  EXPECT_FALSE(prompt_opens_thought("<think> is a tag"));
  EXPECT_FALSE(prompt_opens_thought(""));
}

}  // namespace
}  // namespace lmdeploy
