#include "lmdeploy/pipeline/infilling.h"

#include <gtest/gtest.h>

#include "lmdeploy/pipeline/scripted_tokenizer.h"

namespace lmdeploy {
namespace {

struct Case {
  std::vector<ScriptedTokenizer::Piece> vocabulary;
  std::string prompt;
  std::vector<int> stop_ids;
};

TEST(Infilling, EachFormByItsMarks) {
  const Case cases[] = {
      {{{"x"},
        {"<|fim_prefix|>", true},
        {"<|fim_middle|>", true},
        {"<|fim_suffix|>", true},
        {"<|endoftext|>", true}},
       "<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>",
       {1, 3, 2, 4}},
      {{{"<fim_prefix>"}, {"<fim_suffix>"}, {"<fim_middle>"}},
       "<fim_prefix>a<fim_suffix>b<fim_middle>",
       {0, 1, 2}},
      {{{"<fim-prefix>"}, {"<fim-suffix>"}, {"<fim-middle>"}},
       "<fim-prefix>a<fim-suffix>b<fim-middle>",
       {0, 1, 2}},
      {{{"<｜fim▁begin｜>"}, {"<｜fim▁hole｜>"}, {"<｜fim▁end｜>"}},
       "<｜fim▁begin｜>a<｜fim▁hole｜>b<｜fim▁end｜>",
       {0, 1, 2}},
      {{{"▁<PRE>"}, {"▁<SUF>"}, {"▁<MID>"}, {"▁<EOT>"}}, "<PRE> a <SUF>b <MID>", {0, 1, 2, 3}},
      {{{"[PREFIX]"}, {"[SUFFIX]"}}, "[SUFFIX]b[PREFIX]a", {0, 1}},
  };
  for (const Case& c : cases) {
    const ScriptedTokenizer tokenizer(c.vocabulary);
    const InfillingForm* form = infilling_form(tokenizer);
    ASSERT_NE(form, nullptr) << c.prompt;
    EXPECT_EQ(infilling_prompt(*form, "a", "b"), c.prompt);
    EXPECT_EQ(infilling_stop_ids(*form, tokenizer), c.stop_ids) << c.prompt;
  }
}

TEST(Infilling, AVocabularyWithoutAllMarksHasNone) {
  EXPECT_EQ(infilling_form(ScriptedTokenizer({{"<fim_prefix>"}, {"<fim_suffix>"}})), nullptr);
}

}  // namespace
}  // namespace lmdeploy
