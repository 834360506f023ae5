// Sources: the model cards of Qwen2.5-Coder, CodeGemma, StarCoder2, SantaCoder, DeepSeek-Coder, CodeLlama
// (infilling of codellama/example_infilling.py) and Codestral (mistral-common's fim encoding).
#include "lmdeploy/pipeline/infilling.h"

#include <algorithm>
#include <iterator>

#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

constexpr InfillingForm kForms[] = {
    {{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
     "<|fim_prefix|>",
     "<|fim_suffix|>",
     "<|fim_middle|>"},
    {{"<fim_prefix>", "<fim_suffix>", "<fim_middle>"}, "<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
    {{"<fim-prefix>", "<fim-suffix>", "<fim-middle>"}, "<fim-prefix>", "<fim-suffix>", "<fim-middle>"},
    {{"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},
     "<｜fim▁begin｜>",
     "<｜fim▁hole｜>",
     "<｜fim▁end｜>"},
    {{"▁<PRE>", "▁<SUF>", "▁<MID>"}, "<PRE> ", " <SUF>", " <MID>"},
    {{"[PREFIX]", "[SUFFIX]"}, "[SUFFIX]", "[PREFIX]", "", /*suffix_first=*/true},
};

// Ends of such an answer that are no end ids of the model.
constexpr std::string_view kEnds[] = {"▁<EOT>", "<|endoftext|>", "<|fim_pad|>", "<|file_separator|>",
                                      "<|file_sep|>"};

}  // namespace

const InfillingForm* infilling_form(const Tokenizer& tokenizer) {
  for (const InfillingForm& form : kForms)
    if (std::ranges::all_of(form.marks, [&](std::string_view mark) {
          return mark.empty() || tokenizer.token_id(mark).has_value();
        }))
      return &form;
  return nullptr;
}

std::string infilling_prompt(const InfillingForm& form, std::string_view prefix, std::string_view suffix) {
  const std::string_view first = form.suffix_first ? suffix : prefix;
  const std::string_view second = form.suffix_first ? prefix : suffix;
  return cat(form.begin, first, form.between, second, form.end);
}

std::vector<int> infilling_stop_ids(const InfillingForm& form, const Tokenizer& tokenizer) {
  std::vector<int> ids;
  const auto add = [&](std::string_view text) {
    if (text.empty()) return;
    if (const std::optional<int> id = tokenizer.token_id(text)) ids.push_back(*id);
  };
  std::ranges::for_each(form.marks, add);
  std::ranges::for_each(kEnds, add);
  return ids;
}

}  // namespace lmdeploy
