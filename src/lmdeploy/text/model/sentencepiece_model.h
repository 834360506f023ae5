// The four models of SentencePiece files.
#pragma once

#include <memory>
#include <string>

#include "lmdeploy/text/files/sentencepiece_file.h"
#include "lmdeploy/text/model/token_model.h"
#include "lmdeploy/text/model/vocabulary.h"

namespace lmdeploy {

/// Takes normalized text, a whole section at once. `vocabulary` holds the file's pieces by id; `where` (the
/// path) begins error messages.
std::unique_ptr<TokenModel> make_sentencepiece_model(const SentencePieceFile& file,
                                                     const Vocabulary& vocabulary, const std::string& where);

}  // namespace lmdeploy
