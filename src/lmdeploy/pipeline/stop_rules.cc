#include "lmdeploy/pipeline/stop_rules.h"

#include <algorithm>
#include <optional>

#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/text/chat/chat_template.h"
#include "lmdeploy/text/tokenizer.h"

namespace lmdeploy {
namespace {

using Sequence = std::vector<int>;

std::optional<int> control_token(const std::string& text, const Tokenizer* tokenizer) {
  if (tokenizer == nullptr) return std::nullopt;
  const std::optional<int> id = tokenizer->token_id(text);
  if (!id || !tokenizer->is_special(*id)) return std::nullopt;
  return id;
}

/// By their last ids first: a sequence stands before those that end in it, and nothing else between them.
bool ends_before(const Sequence& a, const Sequence& b) {
  return std::lexicographical_compare(a.rbegin(), a.rend(), b.rbegin(), b.rend());
}
bool ends_with(const Sequence& sequence, const Sequence& suffix) {
  return sequence.size() >= suffix.size() && std::equal(suffix.rbegin(), suffix.rend(), sequence.rbegin());
}

bool starts_with_space(const std::string& word) {
  return word[0] == ' ' || word[0] == '\n' || word[0] == '\t';
}

}  // namespace

StopWords split_stop_words(const std::vector<std::string>& words, const Tokenizer* tokenizer) {
  StopWords split;
  for (const std::string& word : words) {
    if (const std::optional<int> id = control_token(word, tokenizer)) {
      split.ids.push_back(*id);
    } else {
      split.texts.push_back(word);
    }
  }
  return split;
}

std::vector<Sequence> spell_bad_words(const std::vector<std::string>& words, const Tokenizer& tokenizer) {
  const EncodeOptions plain = {.add_special_tokens = false, .parse_special = true};
  std::vector<Sequence> spellings;
  for (const std::string& word : words) {
    spellings.push_back(tokenizer.encode(word, plain));
    if (!control_token(word, &tokenizer) && !starts_with_space(word))
      spellings.push_back(tokenizer.encode(" " + word, plain));
  }
  std::sort(spellings.begin(), spellings.end(), ends_before);
  std::vector<Sequence> needed;
  for (Sequence& candidate : spellings) {
    const bool covered = !needed.empty() && ends_with(candidate, needed.back());
    if (!candidate.empty() && !covered) needed.push_back(std::move(candidate));
  }
  return needed;
}

std::vector<int> collect_eos_ids(const Json& generation_config, const std::vector<int>& config_eos_ids,
                                 const Tokenizer* tokenizer, const ChatTemplate* chat_template) {
  // generation_config.json is the newer word on what ends a generation; config.json often keeps an id from
  // pre-training there.
  std::vector<int> ids = token_ids_from(generation_config, "eos_token_id", "generation_config.json");
  if (ids.empty()) ids = config_eos_ids;
  const auto add = [&](const std::vector<int>& more) { ids.insert(ids.end(), more.begin(), more.end()); };
  if (tokenizer != nullptr) add(tokenizer->end_ids());
  if (chat_template != nullptr) add(split_stop_words(chat_template->stop_words(), tokenizer).ids);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace lmdeploy
