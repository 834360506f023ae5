// WordPiece and WordLevel: words are looked up in the vocabulary.
#pragma once

#include <optional>
#include <string>

#include "lmdeploy/text/model/byte_trie.h"
#include "lmdeploy/text/model/token_model.h"
#include "lmdeploy/text/model/vocabulary.h"

namespace lmdeploy {

struct WordPieceOptions {
  std::optional<int> unk_id;             // for a word that cannot be put together; unset: encoding one throws
  std::string continuing_prefix = "##";  // how the vocabulary spells tokens that continue a word
  size_t max_chars = 100;                // a longer word is unknown
};

/// From the left, always the longest token that the word goes on with.
class WordPieceModel : public TokenModel {
 public:
  WordPieceModel(const Vocabulary& vocabulary, const WordPieceOptions& options);
  void encode(std::string_view word, EncodeScratch& scratch, std::vector<int>& ids) const override;

 private:
  bool append_pieces(std::string_view word, std::vector<int>& ids) const;
  ByteTrie first_, continuing_;  // tokens that begin a word, and those that go on with it, without prefix
  WordPieceOptions options_;
};

/// A word is one token.
class WordLevelModel : public TokenModel {
 public:
  WordLevelModel(Vocabulary vocabulary, std::optional<int> unk_id)
      : vocabulary_(std::move(vocabulary)), unk_id_(unk_id) {}
  void encode(std::string_view word, EncodeScratch& scratch, std::vector<int>& ids) const override;

 private:
  Vocabulary vocabulary_;
  std::optional<int> unk_id_;
};

}  // namespace lmdeploy
