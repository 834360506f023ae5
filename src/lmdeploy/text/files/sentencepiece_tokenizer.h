// Tokenizers from SentencePiece's .model files.
#pragma once

#include <string>
#include <string_view>

#include "lmdeploy/text/composed_tokenizer.h"

namespace lmdeploy {

/// Where a .model stands decides how it is used.
enum class SentencePieceUse {
  /// A file by itself: as SentencePiece does it. The text of control pieces in the input is plain text.
  kFile,
  /// A model folder's tokenizer.model: as transformers does it. Control pieces in the input are recognised,
  /// and each part of the text between them gets its own "▁" in front.
  kLegacyFolder,
  /// The same with "legacy": false in tokenizer_config.json: only the beginning of the text gets a "▁".
  kFolder,
};

/// `where` (the path) begins error messages. Throws Error(kInvalidData | kUnsupported).
TokenizerParts read_sentencepiece_tokenizer(std::string_view bytes, const std::string& where,
                                            SentencePieceUse use);

}  // namespace lmdeploy
