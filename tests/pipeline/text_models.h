// Model folders small enough for a test to write, load and predict: byte-level tokenizer, chat template,
// weights.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lmdeploy/core/json.h"

namespace lmdeploy::testing {

/// Ids of the tokenizer: bytes are themselves, then <s>, <|im_start|>, <|im_end|> and an unused one.
constexpr int kBos = 256, kImStart = 257, kImEnd = 258, kTextVocab = 260;

/// tokenizer.json and tokenizer_config.json: byte-level BPE without merges, a ChatML template. `eos`: whether
/// <|im_end|> is named as the end token. `marks`: more special tokens, with ids from kTextVocab on.
void write_tokenizer_files(const std::string& folder, bool eos = true,
                           const std::vector<std::string>& marks = {});

/// A Llama whose layers add nothing: the next token is a function of the last one.
///   "0" -> "1" -> ... -> "9" -> "0" without end;  "a" -> ... -> "z" -> <|im_end|>;
///   newline, with which a chat prompt ends -> `after_newline`;  all others -> themselves.
struct ChainModel {
  char after_newline = 'a';
  bool tokenizer = true, eos = true;
  int64_t max_positions = 4096;
  JsonObject config = {};             // over the defaults of config.json
  JsonObject generation_config = {};  // written when not empty
};
void write_chain_model(const std::string& folder, const ChainModel& model = {});

/// Random weights: every token depends on all before it.
void write_random_text_model(const std::string& folder, uint64_t seed);

}  // namespace lmdeploy::testing
