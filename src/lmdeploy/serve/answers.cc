#include "lmdeploy/serve/answers.h"

#include <algorithm>
#include <utility>

namespace lmdeploy {
namespace {

constexpr const char* kTooLong = "context_length_exceeded";

/// The prompt does not fit: a stream's only piece says so.
std::optional<ApiErrorInfo> error_of(const Response& piece) {
  if (!piece.error_code) return std::nullopt;
  ApiErrorInfo info = to_api_error(*piece.error_code, piece.error_message);
  if (piece.finish_reason == FinishReason::kLength) info.code = kTooLong;
  return info;
}

}  // namespace

Answer::Answer(std::unique_ptr<ResponseStream> stream, std::optional<OutputParser> parser, bool one_call,
               RequestRecord record)
    : stream_(std::move(stream)),
      parser_(std::move(parser)),
      one_call_(one_call),
      record_(std::move(record)) {}

std::optional<AnswerPiece> Answer::poll() {
  std::optional<Response> piece = stream_->next(std::chrono::milliseconds(0));
  if (!piece) return std::nullopt;
  counts_ = {piece->input_token_len, piece->cached_tokens, piece->generate_token_len};
  record_.progress(*piece);
  AnswerPiece out;
  out.text = parse(*piece);
  if (one_call_) std::erase_if(out.text.tool_calls, [](const ToolCallDelta& call) { return call.index > 0; });
  out.token_ids = std::move(piece->token_ids);
  out.logprobs = std::move(piece->logprobs);
  out.prompt_logprobs = std::move(piece->prompt_logprobs);
  out.finish = piece->finish_reason;
  out.error = error_of(*piece);
  has_tool_calls_ = (has_tool_calls_ || !out.text.tool_calls.empty()) && !out.text.cut_off;
  if (out.finish != FinishReason::kNone) record_.finish(out.error ? FinishReason::kError : out.finish);
  return out;
}

OutputDelta Answer::parse(Response& piece) {
  OutputDelta delta;
  if (!parser_) {
    delta.content = std::move(piece.text);
    return delta;
  }
  delta = parser_->push(piece.text);
  if (piece.finish_reason == FinishReason::kNone) return delta;
  OutputDelta rest = parser_->finish();
  delta.content += rest.content;
  delta.reasoning_content += rest.reasoning_content;
  for (ToolCallDelta& call : rest.tool_calls) delta.tool_calls.push_back(std::move(call));
  delta.cut_off = rest.cut_off;
  return delta;
}

void Answers::add(Answer answer) {
  answers_.push_back(std::move(answer));
  answers_.back().set_notify([signal = signal_] { signal.set(); });
}

void Answers::check_abort() {
  if (abort_ == nullptr || !abort_->is_set()) return;
  abort_.reset();
  for (Answer& answer : answers_) answer.cancel();
}

std::optional<AnswerPiece> Answers::poll() {
  check_abort();
  for (size_t i = 0; i < answers_.size(); ++i) {
    const size_t index = turn_++ % answers_.size();
    if (answers_[index].finished()) continue;
    std::optional<AnswerPiece> piece = answers_[index].poll();
    if (!piece) continue;
    piece->index = index;
    if (piece->error && piece->error->code == kTooLong) piece->error->param = prompt_field_;
    return piece;
  }
  return std::nullopt;
}

bool Answers::all_finished() const { return std::ranges::all_of(answers_, &Answer::finished); }

http::Task<std::optional<AnswerPiece>> Answers::next() {
  std::optional<AnswerPiece> piece = co_await wait_for_piece();
  const bool failed = piece && piece->error;
  if (on_end_ && (failed || !piece || all_finished())) std::exchange(on_end_, nullptr)(failed);
  co_return piece;
}

http::Task<std::optional<AnswerPiece>> Answers::wait_for_piece() {
  if (first_) co_return std::exchange(first_, std::nullopt);
  while (!exchange_.server_ends()) {
    if (std::optional<AnswerPiece> piece = poll()) co_return piece;
    if (all_finished()) co_return std::nullopt;
    try {
      co_await exchange_.wait(signal_);
    } catch (const http::ServerEnds&) {  // the loop ends
    }
  }
  if (std::exchange(ended_, true)) co_return std::nullopt;
  AnswerPiece last;
  last.finish = FinishReason::kError;
  last.error = server_ends(http::ServerEnds());
  co_return last;
}

http::Task<> Answers::wait_for_first(std::chrono::milliseconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!(first_ = poll())) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    if (left.count() <= 0 || !co_await exchange_.wait(signal_, left)) co_return;
  }
  if (first_->error) throw ApiError(*first_->error);
}

}  // namespace lmdeploy
