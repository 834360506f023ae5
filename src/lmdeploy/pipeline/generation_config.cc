// GenerationConfig: which values are allowed, and what differs between the choices of one prompt.
#include <cmath>
#include <limits>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/random.h"
#include "lmdeploy/pipeline/pipeline.h"

namespace lmdeploy {
namespace {

template <typename T>
[[noreturn]] void refuse(const std::string& field, const T& value, std::string_view expected) {
  throw Error(ErrorCode::kInvalidArgument, cat("gen_config.", field, " is ", value, "; expected ", expected));
}

void check_range(const char* field, double value, double low, double high) {
  if (!(value >= low && value <= high)) refuse(field, value, cat("a number from ", low, " to ", high));
}

void check_words(const char* field, const std::vector<std::string>& words) {
  for (size_t i = 0; i < words.size(); ++i)
    if (words[i].empty()) refuse(cat(field, "[", i, "]"), "empty", "at least one character");
}

void check_ids(const char* field, const std::vector<int>& ids) {
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0) refuse(cat(field, "[", i, "]"), ids[i], "a token id, 0 or more");
}

void check_logit_bias(const std::vector<std::pair<int, float>>& logit_bias) {
  for (const auto& [id, bias] : logit_bias) {
    if (id < 0) refuse("logit_bias", cat("for id ", id), "a token id, 0 or more");
    if (!std::isfinite(bias)) refuse(cat("logit_bias[", id, "]"), bias, "a finite number");
  }
}

}  // namespace

void GenerationConfig::validate() const {
  constexpr int kMaxChoices = 16384;
  if (n < 1 || n > kMaxChoices) refuse("n", n, cat("1 to ", kMaxChoices));
  if (max_new_tokens && *max_new_tokens < 0)
    refuse("max_new_tokens", *max_new_tokens, "0 or more (or none: as many as fit)");
  if (min_new_tokens < 0) refuse("min_new_tokens", min_new_tokens, "0 or more");
  if (top_k < 0) refuse("top_k", top_k, "0 (no limit) or more");
  check_range("top_p", top_p, 0, 1);
  check_range("min_p", min_p, 0, 1);
  check_range("temperature", temperature, 0, 2);
  if (!(repetition_penalty > 0) || !std::isfinite(repetition_penalty))
    refuse("repetition_penalty", repetition_penalty, "a number above 0 (1: off)");
  check_range("presence_penalty", presence_penalty, -2, 2);
  check_range("frequency_penalty", frequency_penalty, -2, 2);
  if (logprobs && *logprobs < 0) refuse("logprobs", *logprobs, "0 or more");
  if (prompt_logprobs && *prompt_logprobs < 0) refuse("prompt_logprobs", *prompt_logprobs, "0 or more");
  check_words("stop_words", stop_words);
  check_words("bad_words", bad_words);
  check_ids("stop_token_ids", stop_token_ids);
  check_ids("bad_token_ids", bad_token_ids);
  check_logit_bias(logit_bias);
}

GenerationConfig GenerationConfig::choice(int i) const {
  GenerationConfig one = *this;
  one.n = 1;
  if (random_seed && i > 0) one.random_seed = random_bits(*random_seed, static_cast<uint64_t>(i));
  return one;
}

}  // namespace lmdeploy
