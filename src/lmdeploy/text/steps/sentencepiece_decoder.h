// Decoding as SentencePiece does it.
#pragma once

#include <memory>

#include "lmdeploy/text/files/sentencepiece_file.h"
#include "lmdeploy/text/steps/decoder.h"

namespace lmdeploy {

/// One step: "▁" is a space, but none where the text begins; <0xHH> a byte, each bad byte U+FFFD; the unknown
/// piece its surface. Special pieces that get here show as they are spelled.
std::unique_ptr<Decoder> make_sentencepiece_step(const SentencePieceFile& file);

}  // namespace lmdeploy
