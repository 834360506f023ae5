// The unigram language model: of all ways to cut a word into tokens, the one with the highest sum of scores.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "lmdeploy/text/model/byte_fallback.h"
#include "lmdeploy/text/model/byte_trie.h"
#include "lmdeploy/text/model/token_model.h"

namespace lmdeploy {

struct UnigramToken {
  std::string_view text;  // a token without text is never found
  double score = 0;       // log-probability
  int id = 0;             // [0, Vocabulary::kMaxId)
};

struct UnigramOptions {
  /// A run of characters that are no token by themselves becomes one unk_id. Unset: encoding one throws.
  std::optional<int> unk_id;
  double unk_score = 0;        // of one unknown character
  ByteFallback byte_fallback;  // tried before unk_id
  /// Round the sum of scores to f32 after each token, as SentencePiece does; `tokenizers` sums in f64.
  /// Between near ties that decides.
  bool round_to_f32 = false;
};

/// Viterbi search: time is linear in the word, times the length of the longest token.
class UnigramModel : public TokenModel {
 public:
  UnigramModel(const std::vector<UnigramToken>& tokens, UnigramOptions options);
  void encode(std::string_view word, EncodeScratch& scratch, std::vector<int>& ids) const override;

 private:
  void find_best_path(std::string_view word, EncodeScratch& scratch) const;
  bool relax_known(std::string_view word, size_t begin, size_t char_size, EncodeScratch& scratch) const;
  void relax_unknown(size_t begin, size_t end, EncodeScratch& scratch) const;
  void append_path(std::string_view word, EncodeScratch& scratch, std::vector<int>& ids) const;
  void append_unknown(std::string_view run, std::vector<int>& ids) const;
  double rounded(double score) const {
    return options_.round_to_f32 ? static_cast<double>(static_cast<float>(score)) : score;
  }

  ByteTrie trie_;               // text to id
  std::vector<double> scores_;  // by id
  UnigramOptions options_;
};

}  // namespace lmdeploy
