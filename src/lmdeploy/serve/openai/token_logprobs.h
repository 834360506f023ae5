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

/// Of the piece's token i.
float chosen_logprob(const AnswerPiece& piece, size_t i);

/// {"tokens", "token_logprobs", "top_logprobs", "text_offset"} of one answer, as its tokens come.
class CompletionLogprobs {
 public:
  /// `tokenizer` must outlive it. `num_top` alternatives a token.
  CompletionLogprobs(const Tokenizer& tokenizer, int num_top) : tokenizer_(tokenizer), num_top_(num_top) {}

  /// The first token of a prompt: nothing predicts it.
  void add_unscored(int id);
  void add(int id, float logprob, const std::vector<std::pair<int, float>>& top);
  void add(const AnswerPiece& piece);
  bool empty() const { return tokens_.empty(); }
  /// What has been added since the last call.
  Json take();

 private:
  void add_token(const std::string& text);

  const Tokenizer& tokenizer_;
  const int num_top_;
  int64_t offset_ = 0;  // characters of all tokens so far
  JsonArray tokens_, logprobs_, tops_, offsets_;
};

}  // namespace lmdeploy
