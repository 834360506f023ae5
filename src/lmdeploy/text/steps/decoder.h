// Decoders of tokenizer.json: token spellings become text, one token at a time.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lmdeploy/core/json.h"

namespace lmdeploy {

/// One running step of a decoder. A token may come in several parts; a step that joins tokens gives out one
/// token that only ends with the stream.
class DecodeStage {
 public:
  virtual ~DecodeStage() = default;
  /// More of the current token; `ends`: nothing more of it will come.
  virtual void push(std::string_view part, bool ends) = 0;
  /// No more tokens.
  virtual void finish() = 0;
};

/// Immutable; thread-safe. Makes running steps.
class Decoder {
 public:
  virtual ~Decoder() = default;
  /// A fresh step that hands its output to `next`.
  virtual std::unique_ptr<DecodeStage> start(DecodeStage& next) const = 0;
  /// The bytes that one token stands for in the middle of a text.
  virtual std::string token_bytes(std::string spelled) const = 0;
};

/// Steps in order; none: tokens are joined by spaces (what tokenizer.json means by "decoder": null).
using DecoderChain = std::vector<std::unique_ptr<Decoder>>;

/// From the JSON object of a decoder; sequences are flattened. Throws Error(kUnsupported) naming a type that
/// is not supported.
DecoderChain read_decoder(const Json& json, const std::string& where);
DecoderChain make_joining_decoder();
DecoderChain make_byte_level_decoder();
/// SentencePiece: "▁" is a space, <0xHH> a byte; one space at the front goes when `strip_space`.
DecoderChain make_sentencepiece_decoder(bool strip_space);
/// What transformers' clean_up_tokenization_spaces does: no space before ".", "n't", ...
void add_space_clean_up(DecoderChain& chain);

}  // namespace lmdeploy
