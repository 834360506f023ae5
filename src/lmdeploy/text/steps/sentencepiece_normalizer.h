// The normalizer inside SentencePiece models.
#pragma once

#include <memory>

#include "lmdeploy/text/files/sentencepiece_file.h"
#include "lmdeploy/text/steps/normalizer.h"

namespace lmdeploy {

/// Character map, white space rules and the "▁" in front (or at the end). User-defined pieces stay as they
/// are. `where` begins the message of Error(kInvalidData), thrown for a broken character map.
std::unique_ptr<Normalizer> make_sentencepiece_normalizer(const SentencePieceFile& file,
                                                          const std::string& where);

}  // namespace lmdeploy
