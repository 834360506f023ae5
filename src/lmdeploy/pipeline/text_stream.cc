#include "lmdeploy/pipeline/text_stream.h"

#include <algorithm>
#include <utility>

namespace lmdeploy {
namespace {

std::vector<std::pair<int, float>> with_chosen(const TokenLogprobs& logprobs, int id) {
  std::vector<std::pair<int, float>> all = logprobs.top;
  const bool listed =
      std::any_of(all.begin(), all.end(), [&](const auto& entry) { return entry.first == id; });
  if (!listed) all.emplace_back(id, logprobs.chosen);
  return all;
}

void drop_rows(std::vector<float>& rows, size_t count, int64_t width) {
  rows.resize(rows.size() - std::min(count * static_cast<size_t>(width), rows.size()));
}

}  // namespace

TextStream::TextStream(std::shared_ptr<const Tokenizer> tokenizer, TextStreamOptions options)
    : tokenizer_(std::move(tokenizer)), options_(std::move(options)), matcher_(options_.stop_words) {
  if (tokenizer_) detokenizer_.emplace(tokenizer_, options_.skip_special_tokens);
}

Response TextStream::push(RequestOutput output) {
  Response piece;
  const bool stop_id_included = is_included_stop_id(output);
  const size_t num_text_tokens = output.token_ids.size() - (stop_id_included ? 1 : 0);
  size_t kept = 0;
  while (kept < num_text_tokens && !matcher_.stopped()) {
    piece.text += token_text(output.token_ids[kept++]);
    ++num_tokens_;
  }
  if (output.finish != FinishReason::kNone && !matcher_.stopped()) piece.text += closing_text();
  if (stop_id_included && !matcher_.stopped()) {
    if (tokenizer_)
      piece.text += tokenizer_->decode({&output.token_ids.back(), 1}, /*skip_special_tokens=*/false);
    ++kept;
    ++num_tokens_;
  }
  keep_tokens(output, kept);
  if (matcher_.stopped()) output.finish = FinishReason::kStop;
  finished_ = output.finish != FinishReason::kNone;
  move_results(output, piece);
  return piece;
}

/// The text that is certain once `id` is known.
std::string TextStream::token_text(int id) {
  if (!detokenizer_) return {};
  const std::string text = detokenizer_->push({&id, 1});
  if (num_tokens_ < options_.min_new_tokens) return text;
  return matcher_.push(text, options_.include_stop);
}

/// What was held back: an unfinished character, the beginning of a stop word.
std::string TextStream::closing_text() {
  if (!detokenizer_) return {};
  std::string text = matcher_.push(detokenizer_->finish(), options_.include_stop);
  if (!matcher_.stopped()) text += matcher_.finish();
  return text;
}

bool TextStream::is_included_stop_id(const RequestOutput& output) const {
  return options_.include_stop && output.finish == FinishReason::kStop && !output.token_ids.empty() &&
         std::binary_search(options_.stop_ids.begin(), options_.stop_ids.end(), output.token_ids.back());
}

/// Drops what the engine generated past the token that completed a stop word.
void TextStream::keep_tokens(RequestOutput& output, size_t count) const {
  const size_t dropped = output.token_ids.size() - count;
  output.token_ids.resize(count);
  if (output.logprobs.size() > count) output.logprobs.resize(count);
  drop_rows(output.logits, dropped, options_.vocab_size);
  drop_rows(output.hidden_states, dropped, options_.hidden_size);
}

void TextStream::move_results(RequestOutput& output, Response& piece) const {
  for (size_t i = 0; i < output.logprobs.size(); ++i)
    piece.logprobs.push_back(with_chosen(output.logprobs[i], output.token_ids[i]));
  piece.token_ids = std::move(output.token_ids);
  piece.prompt_logprobs = std::move(output.prompt_logprobs);
  piece.logits = std::move(output.logits);
  piece.last_hidden_state = std::move(output.hidden_states);
  if (options_.has_ppl && finished_ && output.prompt_tokens > 1)
    piece.ppl = output.prompt_nll / static_cast<double>(output.prompt_tokens - 1);
  piece.generate_token_len = num_tokens_;
  piece.input_token_len = output.prompt_tokens;
  piece.cached_tokens = output.cached_tokens;
  piece.times = output.times;
  piece.finish_reason = output.finish;
  if (output.finish == FinishReason::kError) {
    piece.error_code = output.error_code;
    piece.error_message = std::move(output.error_message);
  }
}

}  // namespace lmdeploy
