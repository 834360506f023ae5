// Byte-pair encoding: a word's characters join pair by pair, lowest rank first.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lmdeploy/text/model/byte_fallback.h"
#include "lmdeploy/text/model/merge_table.h"
#include "lmdeploy/text/model/token_model.h"
#include "lmdeploy/text/model/vocabulary.h"

namespace lmdeploy {

struct BpeOptions {
  /// Words come as bytes, and the vocabulary spells tokens as bytes; otherwise both are in characters.
  bool byte_units = false;
  std::optional<int> unk_id;   // for a character that is no token; unset: it is dropped
  bool fuse_unk = false;       // a run of unknown characters is one unk_id
  bool byte_fallback = false;  // an unknown character becomes <0xHH> tokens, if all of them exist
  bool ignore_merges = false;  // a word that is a token is that token, whatever the merges say
  std::string continuing_prefix, end_suffix;  // of all characters but the first; of the last one
  /// Ids from here on stand for characters that only occur inside tokens; a lone one counts as unknown.
  int first_virtual_id = Vocabulary::kMaxId;
};

/// Immutable; thread-safe.
class BpeModel : public TokenModel {
 public:
  BpeModel(Vocabulary vocabulary, MergeTable merges, BpeOptions options);

  void encode(std::string_view word, EncodeScratch& scratch, std::vector<int>& ids) const override;
  const Vocabulary& vocabulary() const { return vocabulary_; }

  /// Tells that a merge joins a token ending in `left` with one beginning with `right`. After all merges have
  /// been told, allow_cuts() lets encode() cut a long word between characters that no merge joins.
  void note_junction(char32_t left, char32_t right);
  void allow_cuts();

 private:
  void encode_part(std::string_view part, EncodeScratch& scratch, std::vector<int>& ids) const;
  void encode_uncached(std::string_view part, EncodeScratch& scratch, std::vector<int>& ids) const;
  void split_symbols(std::string_view word, std::vector<int>& symbols) const;
  std::string_view spell(std::string_view unit, bool first, bool last, std::string& buffer) const;
  std::optional<int> find_symbol(std::string_view spelled) const;
  void append_symbols(const std::vector<int>& symbols, std::vector<int>& ids) const;
  size_t next_cut(std::string_view word, size_t from) const;
  void merge_short(EncodeScratch& scratch) const;
  void merge_long(EncodeScratch& scratch) const;

  Vocabulary vocabulary_;
  MergeTable merges_;
  BpeOptions options_;
  std::vector<int> id_of_byte_;  // byte_units: the token of each byte; -1 for none
  ByteFallback byte_fallback_;   // empty unless the options ask for it
  std::vector<bool> junctions_;  // hashed pairs of characters that some merge joins; empty: no cuts
  bool cuts_allowed_ = false;
};

}  // namespace lmdeploy
