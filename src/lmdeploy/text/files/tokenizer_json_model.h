// The models of tokenizer.json: BPE, Unigram, WordPiece, WordLevel.
#pragma once

#include <memory>

#include "lmdeploy/text/files/json_fields.h"
#include "lmdeploy/text/model/token_model.h"
#include "lmdeploy/text/model/vocabulary.h"
#include "lmdeploy/text/steps/pre_tokenizer.h"

namespace lmdeploy {

/// The tokens as the file spells them. Throws Error(kInvalidData).
Vocabulary read_model_vocabulary(const JsonFields& model);

/// The model in the field "model", with the vocabulary read from it. `pre_tokenizer` still spells bytes
/// afterwards if the model does not take bytes itself. Throws Error(kInvalidData | kUnsupported).
std::unique_ptr<TokenModel> read_model(const JsonFields& model, const Vocabulary& vocabulary,
                                       PreTokenizerChain& pre_tokenizer);

}  // namespace lmdeploy
