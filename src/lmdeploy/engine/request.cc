// Names of finish reasons; the checks that need no session.
#include "lmdeploy/engine/request.h"

#include <algorithm>
#include <cmath>

namespace lmdeploy {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, "request: " + what);
}

void check_ids(std::string_view field, const std::vector<int>& ids, int64_t vocab_size) {
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || ids[i] >= vocab_size)
      refuse(cat(field, "[", i, "] is ", ids[i], "; the vocabulary has ids 0 to ", vocab_size - 1));
}

void check_range(std::string_view field, bool good, double found, std::string_view expected) {
  if (!good) refuse(cat(field, " is ", found, "; expected ", expected));
}

void check_sampling(const SamplingParams& p, int64_t vocab_size) {
  check_range("temperature", p.temperature >= 0 && std::isfinite(p.temperature), p.temperature, "0 or more");
  check_range("top_k", p.top_k >= -1, p.top_k, "1 or more, or 0 or -1 for off");
  check_range("top_p", p.top_p > 0 && p.top_p <= 1, p.top_p, "a number in (0, 1]");
  check_range("min_p", p.min_p >= 0 && p.min_p <= 1, p.min_p, "a number in [0, 1]");
  check_range("repetition_penalty", p.repetition_penalty > 0 && std::isfinite(p.repetition_penalty),
              p.repetition_penalty, "a number above 0");
  check_range("presence_penalty", std::isfinite(p.presence_penalty), p.presence_penalty, "a finite number");
  check_range("frequency_penalty", std::isfinite(p.frequency_penalty), p.frequency_penalty,
              "a finite number");
  for (const auto& [id, bias] : p.logit_bias) {
    check_ids("logit_bias", {id}, vocab_size);
    check_range("logit_bias", std::isfinite(bias), bias, "finite numbers");
  }
  for (const std::vector<int>& word : p.bad_words) {
    if (word.empty()) refuse("bad_words has an item without ids");
    check_ids("bad_words", word, vocab_size);
  }
}

}  // namespace

std::string_view to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return "none";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kAbort:
      return "abort";
    case FinishReason::kError:
      return "error";
  }
  return "unknown";
}

void check_request(const Request& request, int64_t vocab_size) {
  check_ids("input_ids", request.input_ids, vocab_size);
  check_sampling(request.sampling, vocab_size);
  if (request.input_ids.empty() && request.sequence_start) refuse("input_ids is empty");
  if (request.session_id == 0 && !request.sequence_start)
    refuse("sequence_start is false but session_id is 0: name the session to continue");
  if (request.session_id == 0 && !request.sequence_end)
    refuse("sequence_end is false but session_id is 0: name the session to keep");
  for (const LogitsProcessor& processor : request.logits_processors)
    if (!processor) refuse("logits_processors has an empty function");
  check_range("min_new_tokens", request.min_new_tokens >= 0, static_cast<double>(request.min_new_tokens),
              "0 or more");
  check_range("repetition_ngram_size", request.repetition_ngram_size >= 0, request.repetition_ngram_size,
              "0 or more");
  check_range("repetition_ngram_threshold", request.repetition_ngram_threshold >= 0,
              request.repetition_ngram_threshold, "0 or more");
}

}  // namespace lmdeploy
