// Log probabilities in the two forms of OpenAI's answers.
#pragma once

#include <string>
#include <vector>

#include "lmdeploy/core/json.h"
#include "lmdeploy/serve/answers.h"
#include "lmdeploy/text/tokenizer.h"

namespace lmdeploy {

/// {"content": [{"token", "bytes", "logprob", "top_logprobs": [...]}]}: `num_top` alternatives a token, the
/// best first.
Json chat_logprobs(const AnswerPiece& piece, const Tokenizer& tokenizer, int num_top);

/// {"tokens", "token_logprobs", "top_logprobs", "text_offset"}. `offset`: characters of the text before this
/// piece; moved on.
Json completion_logprobs(const AnswerPiece& piece, const Tokenizer& tokenizer, int num_top, int64_t& offset);

}  // namespace lmdeploy
