// Asking a code model for the text between two others: which marks its vocabulary has for that.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lmdeploy/text/tokenizer.h"

namespace lmdeploy {

/// One way to write it: begin, one text, between, the other text, end.
struct InfillingForm {
  std::string_view marks[3];  // as the vocabulary spells them; two or three
  std::string_view begin, between, end;
  bool suffix_first = false;
};

/// nullptr: the model has not learnt it.
const InfillingForm* infilling_form(const Tokenizer& tokenizer);
std::string infilling_prompt(const InfillingForm& form, std::string_view prefix, std::string_view suffix);
/// The marks, and those that end such an answer beside the usual end ids.
std::vector<int> infilling_stop_ids(const InfillingForm& form, const Tokenizer& tokenizer);

}  // namespace lmdeploy
