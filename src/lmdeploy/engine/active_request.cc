// Tokens in, outputs out, and when to end.
#include "lmdeploy/engine/active_request.h"

#include <algorithm>
#include <utility>

#include "lmdeploy/engine/logits.h"

namespace lmdeploy {
namespace {

constexpr size_t kRepetitionWindow = 1024;  // tokens

bool contains(const std::vector<int>& ids, int id) { return std::ranges::find(ids, id) != ids.end(); }

}  // namespace

SampleInput ActiveRequest::draw_input() const {
  SampleInput input;
  input.params = &request.sampling;
  input.generated_begin = prompt_end;
  if (num_generated < request.min_new_tokens) input.banned_ids = request.stop_ids;
  input.draw = sequence->num_drawn;
  return input;
}

GuessTarget ActiveRequest::guess_target() {
  return {.sequence = sequence.get(),
          .state = &guesses,
          .draw = draw_input(),
          .most = max_length - sequence->length() - 1};
}

SampleInput ActiveRequest::sample_input(int64_t row, int64_t vocab_size) {
  SampleInput input = draw_input();
  input.row = row;
  input.tokens = sequence->tokens;
  if (request.grammar != nullptr) {
    try {
      fill_allowed(vocab_size);
    } catch (const Error& error) {
      grammar_error = error.what();
    }
    input.allowed = allowed_;
  }
  input.num_logprobs = request.num_logprobs;
  input.keeps_row = request.logits != LogitsOutput::kNone;
  return input;
}

void ActiveRequest::fill_allowed(int64_t vocab_size) {
  if (matcher_ == nullptr) matcher_ = request.grammar->start();
  allowed_.resize(static_cast<size_t>(vocab_size + 31) / 32);
  matcher_->fill_mask(allowed_);
  const bool may_stop = matcher_->can_stop();
  for (const int stop_id : request.stop_ids) {
    if (stop_id < 0 || stop_id >= vocab_size) continue;  // it can never be drawn
    uint32_t& word = allowed_[static_cast<size_t>(stop_id) / 32];
    const uint32_t bit = 1u << (stop_id % 32);
    word = may_stop ? word | bit : word & ~bit;
  }
}

void ActiveRequest::read_prompt_rows(const StepEntry& entry, StepLogits& logits, int64_t first_row) {
  if (sequence->rows_from == Sequence::kNoRows) return;
  const int64_t end = entry.first + entry.count;
  const int64_t begin = end - entry.num_rows;  // the token that the entry's first row belongs to
  for (int64_t i = std::max(begin, sequence->rows_from); i < std::min(end, prompt_end); ++i) {
    const int64_t row = first_row + i - begin;
    if (request.logits == LogitsOutput::kAll) append_row(logits.host(), row);
    if (request.score_prompt && i + 1 < prompt_end)
      prompt_nll += negative_log_likelihood(logits_row(logits.host(), row, row_buffer_),
                                            sequence->tokens[static_cast<size_t>(i) + 1]);
  }
  sequence->rows_from = std::max(sequence->rows_from, end);  // not again, should the request be preempted
}

FinishReason ActiveRequest::accept(const SampleResult& drawn, StepLogits& logits, int64_t row) {
  const bool row_is_out = request.logits == LogitsOutput::kAll && sequence->length() == prompt_end;
  sequence->tokens.push_back(drawn.token);
  ++sequence->num_drawn;
  if (request.include_stop_id || !contains(request.stop_ids, drawn.token)) {
    if (++num_generated == 1) times.first_token = std::chrono::steady_clock::now();
    output.token_ids.push_back(drawn.token);
    if (request.num_logprobs >= 0) output.logprobs.push_back(drawn.logprobs);
    if (request.logits != LogitsOutput::kNone && !row_is_out) append_row(logits.host(), row);
  }
  return finish_after(drawn.token);
}

FinishReason ActiveRequest::finish_after(int token) {
  if (contains(request.stop_ids, token)) return FinishReason::kStop;
  if (matcher_ != nullptr && completes_grammar(token)) return FinishReason::kStop;
  const auto generated = std::span(sequence->tokens).subspan(static_cast<size_t>(prompt_end));
  if (num_generated >= request.min_new_tokens &&
      repeats(generated, request.repetition_ngram_size, request.repetition_ngram_threshold))
    return FinishReason::kStop;
  return sequence->length() >= max_length ? FinishReason::kLength : FinishReason::kNone;
}

bool ActiveRequest::completes_grammar(int token) {
  try {
    if (!matcher_->accept(token)) grammar_error = cat("token ", token, " does not fit the response_format");
    return grammar_error.empty() && matcher_->is_complete();
  } catch (const Error& error) {
    grammar_error = error.what();
    return false;
  }
}

void ActiveRequest::append_row(ConstTensorView logits, int64_t row) {
  const std::span<const float> values = logits_row(logits, row, row_buffer_);
  output.logits.insert(output.logits.end(), values.begin(), values.end());
}

RequestOutput ActiveRequest::take_output(FinishReason reason) {
  output.prompt_tokens = static_cast<int64_t>(request.input_ids.size());
  output.cached_tokens = std::max<int64_t>(0, sequence->num_reused);
  output.generated_tokens = num_generated;
  output.session_tokens = sequence->length();
  if (reason != FinishReason::kNone) times.finished = std::chrono::steady_clock::now();
  output.times = times;
  output.prompt_nll = prompt_nll;
  output.finish = reason;
  return std::exchange(output, {});
}

bool repeats(std::span<const int> tokens, int size, int threshold) {
  if (size <= 0 || threshold <= 0) return false;
  tokens = tokens.last(std::min(tokens.size(), kRepetitionWindow));
  const auto n = static_cast<size_t>(size);
  if (tokens.size() < n) return false;
  const std::span<const int> last = tokens.last(n);
  int found = 0;
  for (size_t i = 0; i + n <= tokens.size(); ++i)
    if (std::ranges::equal(tokens.subspan(i, n), last) && ++found >= threshold) return true;
  return false;
}

}  // namespace lmdeploy
