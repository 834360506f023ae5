// The answers of one request as they are generated: text with thoughts and tool calls taken apart, tokens,
// counts.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lmdeploy/http/exchange.h"
#include "lmdeploy/parsers/output_parser.h"
#include "lmdeploy/pipeline/pipeline.h"
#include "lmdeploy/serve/api_error.h"
#include "lmdeploy/serve/metrics.h"
#include "lmdeploy/serve/request_registry.h"

namespace lmdeploy {

/// What is new in one answer.
struct AnswerPiece {
  size_t index = 0;  // of the answer
  OutputDelta text;
  std::vector<int> token_ids;
  std::vector<std::vector<std::pair<int, float>>> logprobs;  // as Response::logprobs
  std::vector<TokenLogprobs> prompt_logprobs;                // likewise
  FinishReason finish = FinishReason::kNone;                 // set in the last piece
  std::optional<ApiErrorInfo> error;                         // with kError
};

struct AnswerCounts {
  int64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
};

/// One answer. Used on one strand.
class Answer {
 public:
  /// `one_call`: tool calls after the first one are dropped.
  Answer(std::unique_ptr<ResponseStream> stream, std::optional<OutputParser> parser, bool one_call,
         RequestRecord record);

  /// Nothing: there is nothing new, or it has ended. Text that a parser holds back gives a piece without
  /// text.
  std::optional<AnswerPiece> poll();
  bool finished() const { return stream_->finished(); }
  void cancel() { stream_->cancel(); }
  /// Called from any thread when poll() may have something.
  void set_notify(std::function<void()> notify) { stream_->set_notify(std::move(notify)); }
  const AnswerCounts& counts() const { return counts_; }
  /// All of them whole.
  bool has_tool_calls() const { return has_tool_calls_; }

 private:
  OutputDelta parse(Response& piece);

  std::unique_ptr<ResponseStream> stream_;
  std::optional<OutputParser> parser_;
  bool one_call_;
  RequestRecord record_;
  AnswerCounts counts_;
  bool has_tool_calls_ = false;
};

/// Several that run together. Destroying it cancels what still runs.
class Answers {
 public:
  /// `prompt_field`: what the client calls the prompt, for errors.
  explicit Answers(http::Exchange& exchange, std::string prompt_field = "prompt")
      : exchange_(exchange), prompt_field_(std::move(prompt_field)) {}

  void add(Answer answer);
  /// Once it is set, all answers end with kAbort. It must set signal().
  void set_abort(std::shared_ptr<AbortSwitch> abort) { abort_ = std::move(abort); }
  /// Called once: when one has failed, or none runs any more and their last words are about to be handed out.
  /// A client that has the whole answer finds what the request held given back.
  void set_on_end(std::function<void(bool failed)> on_end) { on_end_ = std::move(on_end); }
  const http::Signal& signal() const { return signal_; }
  size_t size() const { return answers_.size(); }
  const Answer& operator[](size_t index) const { return answers_[index]; }

  /// The next piece of any of them; nothing: all have ended. The server's end is an error. Throws
  /// http::ClientGone.
  http::Task<std::optional<AnswerPiece>> next();
  /// Waits until an answer has something, or `patience` is over. Throws ApiError when the first thing an
  /// answer says is why there is none: before anything is sent, that is an error of the whole request.
  http::Task<> wait_for_first(std::chrono::milliseconds patience);

 private:
  std::optional<AnswerPiece> poll();
  http::Task<std::optional<AnswerPiece>> wait_for_piece();
  bool all_finished() const;
  void check_abort();

  http::Exchange& exchange_;
  const std::string prompt_field_;
  http::Signal signal_;
  std::vector<Answer> answers_;
  std::optional<AnswerPiece> first_;  // seen by wait_for_first()
  std::shared_ptr<AbortSwitch> abort_;
  std::function<void(bool)> on_end_;
  bool ended_ = false;  // the server's end has been told
  size_t turn_ = 0;     // whose turn to be asked it is
};

}  // namespace lmdeploy
