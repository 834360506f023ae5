// The tokenizer that tokenizer.json and GGUF files describe, put together from its parts.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "lmdeploy/text/model/token_model.h"
#include "lmdeploy/text/model/vocabulary.h"
#include "lmdeploy/text/steps/added_tokens.h"
#include "lmdeploy/text/steps/decoder.h"
#include "lmdeploy/text/steps/normalizer.h"
#include "lmdeploy/text/steps/pre_tokenizer.h"
#include "lmdeploy/text/tokenizer.h"

namespace lmdeploy {

/// What becomes of the text of special tokens in the input.
enum class SpecialText {
  kParsed,       // it is the token, unless EncodeOptions::parse_special says no
  kPlain,        // it is plain text, unless EncodeOptions::parse_special says yes
  kAlwaysPlain,  // whatever EncodeOptions::parse_special says
};

struct TokenizerParts {
  std::unique_ptr<Normalizer> normalizer;  // nullptr: text stays as it is
  PreTokenizerChain pre_tokenizer;
  std::unique_ptr<TokenModel> model;
  DecoderChain decoder;
  Vocabulary vocabulary;  // as the file spells tokens; without added tokens
  AddedTokens added_tokens;
  int num_new_tokens = 0;                   // of these, the ones that the vocabulary has not
  std::vector<int> prefix_ids, suffix_ids;  // what add_special_tokens puts around a text
  std::string bos_token, eos_token;         // "" when there is none
  std::optional<int> bos_id, eos_id;
  std::vector<int> end_ids;  // more than eos_id
  std::string chat_template;
  SpecialText special_text = SpecialText::kParsed;

  /// The id of an added token or, failing that, of the vocabulary.
  std::optional<int> find_token(std::string_view text) const;
  /// Adds with `id`, or the id that the token has, or, as the `tokenizers` library does, the number of
  /// tokens: in a vocabulary with gaps, that id may be another token's.
  void add_token(const AddedToken& token, std::optional<int> id = std::nullopt);
};

class ComposedTokenizer : public Tokenizer {
 public:
  explicit ComposedTokenizer(TokenizerParts parts);
  ~ComposedTokenizer() override;

  std::vector<int> encode(std::string_view text, const EncodeOptions& options) const override;
  std::string decode(std::span<const int> ids, bool skip_special_tokens) const override;
  std::unique_ptr<DecodeStream> decode_stream(bool skip_special_tokens) const override;
  int vocab_size() const override { return static_cast<int>(kinds_.size()); }
  std::string_view token_text(int id) const override;
  std::string token_bytes(int id) const override;
  std::optional<int> token_id(std::string_view text) const override { return parts_.find_token(text); }
  bool is_special(int id) const override;
  std::optional<int> bos_id() const override { return parts_.bos_id; }
  std::optional<int> eos_id() const override { return parts_.eos_id; }
  std::vector<int> end_ids() const override;
  std::string bos_token() const override { return parts_.bos_token; }
  std::string eos_token() const override { return parts_.eos_token; }
  std::string chat_template() const override { return parts_.chat_template; }

 private:
  class Stream;
  class ScratchLease;
  void encode_section(std::string_view text, bool at_start, bool parse_special, EncodeScratch& scratch,
                      std::vector<int>& ids) const;
  void encode_plain(std::string text, bool at_start, EncodeScratch& scratch, std::vector<int>& ids) const;

  TokenizerParts parts_;
  /// How decoding spells a token: token_text(), but for added tokens that are looked for in normalized text,
  /// whose normalized form counts (as in the `tokenizers` library from 0.22 on, also for what is special).
  std::string_view decoded_spelling(int id) const;

  enum Kind : uint8_t { kSpecial = 1, kAdded = 2, kRespelled = 4 };
  uint8_t kind_of(int id) const { return id >= 0 && id < vocab_size() ? kinds_[static_cast<size_t>(id)] : 0; }

  std::vector<uint8_t> kinds_;                                 // of each id, bits of Kind
  std::unordered_map<int, std::string> normalized_spellings_;  // of the respelled ones
  mutable std::mutex scratch_mutex_;
  mutable std::vector<std::unique_ptr<EncodeScratch>> idle_scratch_;  // as many as ever encoded at once
};

}  // namespace lmdeploy
