// What ends an answer and what may not be in it: end ids of the model's files, stop words, bad words.
#pragma once

#include <string>
#include <vector>

#include "lmdeploy/core/json.h"

namespace lmdeploy {

class Tokenizer;
class ChatTemplate;

/// Stop words by the place where they can be seen: in the text, or as the id of a control token, whose text
/// the detokenizer hides.
struct StopWords {
  std::vector<std::string> texts;
  std::vector<int> ids;
};

/// A word that is exactly one control token becomes its id. Without a tokenizer all stay texts.
StopWords split_stop_words(const std::vector<std::string>& words, const Tokenizer* tokenizer);

/// The token sequences that spell `words`, each with and without a space before it (ordinary words begin with
/// one in running text). A sequence that ends in another one of the list is left out: the shorter one bans it
/// already. n log n in their ids.
std::vector<std::vector<int>> spell_bad_words(const std::vector<std::string>& words,
                                              const Tokenizer& tokenizer);

/// Ids that end a turn, ascending: generation_config.json's eos_token_id (config.json's when that names
/// none), the tokenizer's end ids, and the template's stop words that are control tokens. `tokenizer` and
/// `chat_template` may be nullptr.
std::vector<int> collect_eos_ids(const Json& generation_config, const std::vector<int>& config_eos_ids,
                                 const Tokenizer* tokenizer, const ChatTemplate* chat_template);

}  // namespace lmdeploy
