// tiktoken's rank files: a line for each token, its bytes in base64 and its rank.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lmdeploy/text/composed_tokenizer.h"

namespace lmdeploy {

/// What a rank file does not say.
struct TiktokenRules {
  std::string pattern;                                           // each of its matches is a word
  std::vector<std::pair<std::string, int>> special_tokens = {};  // text and id
  int id_offset = 0;               // of ids over ranks; ids below without a name are "<SPECIAL_n>" (Tekken)
  bool nfc = false;                // text is normalized first
  std::string bos = {}, eos = {};  // "" when there is none
  std::string end_of_turn = {};    // ends an answer besides eos
};

/// From the text of a tiktoken.json: {"pat_str", "special_tokens": {text: id}, "id_offset"}.
TiktokenRules read_tiktoken_rules(const Json& json, const std::string& where);
/// By the name of a rank file without its extension ("cl100k_base", "qwen", ...).
std::optional<TiktokenRules> find_tiktoken_rules(std::string_view name);
/// Names that find_tiktoken_rules() knows, for messages: "cl100k_base, ...".
std::string tiktoken_names();

/// Whether the file is a rank file, by its first line.
bool is_tiktoken(std::string_view bytes);
/// Special tokens in the text are plain text as in a bare file; nothing is put around it. `where` (the path)
/// begins error messages. Throws Error(kInvalidData).
TokenizerParts read_tiktoken(std::string_view bytes, const TiktokenRules& rules, const std::string& where);

}  // namespace lmdeploy
