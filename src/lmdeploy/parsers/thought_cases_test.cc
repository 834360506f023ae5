// Thoughts, in every form.
#include <algorithm>

#include "lmdeploy/parsers/parser_cases.h"

namespace lmdeploy {
namespace {

const std::vector<ParserCase>& cases() {
  static const std::vector<ParserCase> kCases = {
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
      {"V32ThinksWhenAsked", "deepseek-v32", "deepseek-v3.2", "\na\n</think>b", {"b", "a", {}}, true},
      {"V4DoesNotThink", "deepseek-v4", "deepseek-v4", "b", {"b", "", {}}, false},
      {"Mistral", "mistral", "mistral", "[THINK]a [b] [/c][/THINK]\nd", {"d", "a [b] [/c]", {}}},
      {"MistralDoesNotThink", "mistral", "mistral", "a [THINK]", {"a [THINK]", "", {}}},
      {"MistralOpenedByThePrompt", "mistral", "", "a[/THINK]b", {"b", "a", {}}, true},
      {"SeedOss",
       "seed-oss",
       "seed-oss",
       "<seed:think>\na<seed:cot_budget_reflect>b</seed:cot_budget_reflect>\n</seed:think>\nc",
       {"c", "a<seed:cot_budget_reflect>b</seed:cot_budget_reflect>", {}}},
      {"SpaceOnly", "qwen-qwq", "qwen", " \n\t ", {" \n\t ", "", {}}, false},
      {"SpaceOnlyInAThought", "qwen-qwq", "qwen", " \n\t ", {"", " \n\t ", {}}, true},
      {"NewlinesOnly", "qwen-qwq", "qwen", "\n\n\n", {"", "", {}}, true},
      {"NewlinesWithinAThought", "qwen-qwq", "", "\n\na\n\n\nb\n\n</think>\n\n\n", {"", "a\n\n\nb", {}}},
  };
  return kCases;
}

INSTANTIATE_TEST_SUITE_P(Thoughts, ParserCases, ::testing::ValuesIn(cases()), name_of_case);

// The four outputs of the field case, for every parser of thoughts.
std::vector<ParserCase> field_cases() {
  std::vector<ParserCase> cases;
  for (const std::string& name : reasoning_parser_names()) {
    std::string open = "<think>", close = "</think>";
    if (name == "mistral") open = "[THINK]", close = "[/THINK]";
    if (name == "seed-oss") open = "<seed:think>", close = "</seed:think>";
    std::string label = name;
    std::replace(label.begin(), label.end(), '-', '_');
    label = "F31_" + label;
    if (name == "gpt-oss") {
      const std::string thought = "<|channel|>analysis<|message|>";
      cases.push_back({label + "_Whole",
                       name,
                       "",
                       thought + "a<|end|><|start|>assistant<|channel|>final<|message|>b",
                       {"b", "a", {}}});
      cases.push_back(
          {label + "_NoThought", name, "", "<|channel|>final<|message|>b<|return|>", {"b", "", {}}});
      cases.push_back({label + "_CutOff", name, "", thought + "a", {"", "a", {}}});
      continue;
    }
    cases.push_back({label + "_Whole", name, "", open + "\na\n" + close + "\n\nb", {"b", "a", {}}});
    cases.push_back({label + "_OpenedByThePrompt", name, "", "a" + close + "b", {"b", "a", {}}, true});
    cases.push_back({label + "_ThinkingOff", name, "", "b", {"b", "", {}}, false, /*enable_thinking=*/false});
    cases.push_back({label + "_CutOff", name, "", open + "\na", {"", "a", {}}});
    cases.push_back({label + "_CutOffOpenedByThePrompt", name, "", "a", {"", "a", {}}, true});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(FieldCases, ParserCases, ::testing::ValuesIn(field_cases()), name_of_case);

}  // namespace
}  // namespace lmdeploy
