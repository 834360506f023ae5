#include "lmdeploy/pipeline/streams.h"

#include <utility>

namespace lmdeploy {

EngineStream::EngineStream(std::unique_ptr<RequestHandle> handle, TextStream text)
    : handle_(std::move(handle)), text_(std::move(text)) {}

std::optional<Response> EngineStream::next(std::chrono::milliseconds timeout) {
  if (text_.finished()) return std::nullopt;
  std::optional<RequestOutput> output = handle_->next(timeout);
  if (!output) return std::nullopt;
  session_tokens_ = output->session_tokens;
  Response piece = text_.push(std::move(*output));
  if (text_.stopped_by_text()) handle_->cancel();
  return piece;
}

std::optional<Response> RejectedStream::next(std::chrono::milliseconds) {
  if (std::exchange(finished_, true)) return std::nullopt;
  return reason_;
}

ChatStream::ChatStream(std::unique_ptr<EngineStream> stream, OnFinished on_finished)
    : stream_(std::move(stream)), on_finished_(std::move(on_finished)) {}

std::optional<Response> ChatStream::next(std::chrono::milliseconds timeout) {
  std::optional<Response> piece = stream_->next(timeout);
  if (!piece) return piece;
  append_piece(answer_, *piece);
  if (stream_->finished()) on_finished_(std::move(answer_), stream_->session_tokens());
  return piece;
}

void append_piece(Response& whole, const Response& piece) {
  whole.text += piece.text;
  whole.token_ids.insert(whole.token_ids.end(), piece.token_ids.begin(), piece.token_ids.end());
  whole.logprobs.insert(whole.logprobs.end(), piece.logprobs.begin(), piece.logprobs.end());
  whole.prompt_logprobs.insert(whole.prompt_logprobs.end(), piece.prompt_logprobs.begin(),
                               piece.prompt_logprobs.end());
  whole.logits.insert(whole.logits.end(), piece.logits.begin(), piece.logits.end());
  whole.last_hidden_state.insert(whole.last_hidden_state.end(), piece.last_hidden_state.begin(),
                                 piece.last_hidden_state.end());
  if (piece.ppl) whole.ppl = piece.ppl;
  whole.generate_token_len = piece.generate_token_len;
  whole.input_token_len = piece.input_token_len;
  whole.cached_tokens = piece.cached_tokens;
  whole.times = piece.times;
  whole.finish_reason = piece.finish_reason;
  whole.error_code = piece.error_code;
  whole.error_message = piece.error_message;
}

}  // namespace lmdeploy
