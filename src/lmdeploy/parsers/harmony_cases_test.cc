// gpt-oss.
#include "lmdeploy/parsers/parser_cases.h"

namespace lmdeploy {
namespace {

const std::vector<ParserCase>& cases() {
  static const std::vector<ParserCase> kCases = {
      {"ThoughtCallAndText",
       "gpt-oss",
       "gpt-oss",
       "<|channel|>analysis<|message|>I must\nlook.<|end|><|start|>assistant<|channel|>commentary "
       "to=functions.f "
       "<|constrain|>json<|message|>{\"x\": 1.0}<|call|>",
       {"", "I must\nlook.", {{"id0", "f", "{\"x\": 1.0}"}}}},
      {"RecipientAfterTheRole",
       "",
       "gpt-oss",
       " to=functions.f<|channel|>commentary json<|message|>{}",
       {"", "", {{"id0", "f", "{}"}}}},
      {"RecipientAfterALaterRole",
       "gpt-oss",
       "",
       "<|channel|>analysis<|message|>a<|end|><|start|>assistant to=functions.f<|channel|>commentary "
       "json<|message|>{}"
       "<|call|><|start|>assistant to=g<|channel|>commentary json<|message|>{\"y\": []}<|call|>",
       {"", "a", {{"id0", "f", "{}"}, {"id1", "g", "{\"y\": []}"}}}},
      {"MessagesOfOneKindAreJoined",
       "gpt-oss",
       "gpt-oss",
       "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary<|message|>b<|end|>"
       "<|start|>assistant<|channel|>analysis<|message|>c<|end|><|start|>assistant<|channel|>final<|message|>"
       "<|end|>"
       "<|start|>assistant<|channel|>final<|message|>d<|return|>",
       {"b\nd", "a\nc", {}}},
      {"NoStart",
       "gpt-oss",
       "gpt-oss",
       "<|channel|>analysis<|message|>a<|channel|>final<|message|>b",
       {"b", "a", {}}},
      {"TextThatIsNoMessage", "gpt-oss", "", "a < b <|channel", {"a < b <|channel", "", {}}},
      {"TextThatBeginsLikeARecipient", "gpt-oss", "", " top", {" top", "", {}}},
      {"Empty", "gpt-oss", "gpt-oss", "", {"", "", {}}},
      {"SpaceOnly", "gpt-oss", "gpt-oss", " t", {" t", "", {}}},
      {"BrokenArguments",
       "gpt-oss",
       "gpt-oss",
       "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"x\": <|call|>",
       {"<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"x\": ", "", {}}},
      {"ArgumentsThatAreNoObject",
       "gpt-oss",
       "gpt-oss",
       "<|channel|>analysis to=python code<|message|>print(1)<|call|>",
       {"<|channel|>analysis to=python code<|message|>print(1)", "", {}}},
      {"HeaderCutOff",
       "gpt-oss",
       "gpt-oss",
       "<|channel|>final<|message|>a<|end|><|start|>assistant<|chan",
       {"a<|start|>assistant<|chan", "", {}}},
      {"MarkersInText",
       "gpt-oss",
       "gpt-oss",
       "<|channel|>final<|message|>1 <|message|> <|x|> <|constrain|><",
       {"1 <|message|> <|x|> <|constrain|><", "", {}}},
      {"ThinkingOffStillReadsTheForm",
       "gpt-oss",
       "gpt-oss",
       "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>想🎉",
       {"想🎉", "a", {}},
       std::nullopt,
       /*enable_thinking=*/false},
  };
  return kCases;
}

INSTANTIATE_TEST_SUITE_P(Harmony, ParserCases, ::testing::ValuesIn(cases()),
                         [](const auto& test) { return "Harmony" + test.param.name; });

}  // namespace
}  // namespace lmdeploy
