#include "lmdeploy/pipeline/request_builder.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/log.h"
#include "lmdeploy/core/random.h"

namespace lmdeploy {
namespace {

void check_in_vocabulary(const char* field, int id, int64_t vocab_size) {
  if (id >= vocab_size)
    throw Error(ErrorCode::kInvalidArgument,
                cat("gen_config.", field, ": id ", id, " is outside the model's vocabulary of ", vocab_size));
}

void set_draw(const GenerationConfig& gen_config, SamplingParams& sampling) {
  sampling.temperature = gen_config.temperature;
  sampling.top_k = gen_config.top_k;
  // The smallest set whose sum reaches 0 is the best token alone; the engine's range leaves 0 itself out.
  sampling.top_p = std::max(gen_config.top_p, std::numeric_limits<float>::min());
  sampling.min_p = gen_config.min_p;
  sampling.seed = gen_config.random_seed ? *gen_config.random_seed : entropy_bits();
}

}  // namespace

RequestBuilder::RequestBuilder(RequestDefaults defaults)
    : defaults_(std::move(defaults)),
      grammars_(std::make_shared<grammar::GrammarCache>(defaults_.tokenizer)) {}

void RequestBuilder::check(const GenerationConfig& gen_config) const {
  check_fields(gen_config);
  grammar_of(gen_config);
}

void RequestBuilder::check_fields(const GenerationConfig& gen_config) const {
  if (defaults_.gives_score)
    throw Error(ErrorCode::kUnsupported, "a reward model gives scores and no text: use get_reward_score");
  gen_config.validate();
  check_vocabulary(gen_config);
  check_words(gen_config);
}

std::shared_ptr<const TokenGrammar> RequestBuilder::grammar_of(const GenerationConfig& gen_config) const {
  if (gen_config.response_format.kind == ResponseFormat::Kind::kText) return nullptr;
  return grammars_->get(gen_config.response_format, "gen_config.response_format");
}

PreparedRequest RequestBuilder::build(std::vector<int> input_ids, const GenerationConfig& gen_config) const {
  check_fields(gen_config);
  PreparedRequest prepared;
  prepared.request.grammar = grammar_of(gen_config);
  prepared.request.max_new_tokens = clamp_new_tokens(gen_config, input_ids.size());
  prepared.request.input_ids = std::move(input_ids);
  prepared.request.sampling = sampling(gen_config);
  prepared.request.min_new_tokens = gen_config.min_new_tokens;
  prepared.request.repetition_ngram_size = std::max(gen_config.repetition_ngram_size, 0);
  prepared.request.repetition_ngram_threshold = std::max(gen_config.repetition_ngram_threshold, 0);
  prepared.request.num_logprobs = gen_config.logprobs.value_or(-1);
  prepared.request.num_prompt_logprobs = gen_config.prompt_logprobs.value_or(-1);
  prepared.request.logits = gen_config.output_logits;
  prepared.request.hidden_states = gen_config.output_last_hidden_state;
  prepared.request.score_prompt = gen_config.return_ppl;
  prepared.request.logits_processors = gen_config.logits_processors;
  prepared.text.skip_special_tokens = gen_config.skip_special_tokens;
  prepared.text.include_stop = gen_config.include_stop_str_in_output;
  prepared.text.min_new_tokens = gen_config.min_new_tokens;
  prepared.text.vocab_size = defaults_.vocab_size;
  prepared.text.hidden_size = defaults_.hidden_size;
  prepared.text.has_ppl = gen_config.return_ppl;
  if (!gen_config.ignore_eos) set_stop_rules(gen_config, prepared);
  return prepared;
}

Response RequestBuilder::rejection(size_t num_prompt_tokens) const {
  Response response;
  response.input_token_len = static_cast<int64_t>(num_prompt_tokens);
  response.finish_reason = FinishReason::kLength;
  response.error_code = ErrorCode::kInvalidArgument;
  response.error_message =
      cat("the prompt has ", num_prompt_tokens, " tokens; session_len is ", defaults_.session_len,
          " and must hold it and at least one new token: shorten the prompt or raise session_len");
  return response;
}

void RequestBuilder::check_vocabulary(const GenerationConfig& gen_config) const {
  for (const int id : gen_config.stop_token_ids)
    check_in_vocabulary("stop_token_ids", id, defaults_.vocab_size);
  for (const int id : gen_config.bad_token_ids)
    check_in_vocabulary("bad_token_ids", id, defaults_.vocab_size);
  for (const auto& entry : gen_config.logit_bias)
    check_in_vocabulary("logit_bias", entry.first, defaults_.vocab_size);
}

void RequestBuilder::check_words(const GenerationConfig& gen_config) const {
  const bool has_words = !gen_config.stop_words.empty() || !gen_config.bad_words.empty();
  if (has_words && defaults_.tokenizer == nullptr)
    throw Error(
        ErrorCode::kUnsupported,
        "gen_config: stop_words and bad_words need a tokenizer, which the checkpoint does not have; use "
        "stop_token_ids and bad_token_ids");
}

/// Penalties, bias and bad words act under greedy too; only the draw is off without do_sample.
SamplingParams RequestBuilder::sampling(const GenerationConfig& gen_config) const {
  SamplingParams params;
  if (gen_config.do_sample && gen_config.temperature > 0) set_draw(gen_config, params);
  params.repetition_penalty = gen_config.repetition_penalty;
  params.presence_penalty = gen_config.presence_penalty;
  params.frequency_penalty = gen_config.frequency_penalty;
  params.logit_bias = gen_config.logit_bias;
  if (defaults_.tokenizer) params.bad_words = spell_bad_words(gen_config.bad_words, *defaults_.tokenizer);
  for (const int id : gen_config.bad_token_ids) params.bad_words.push_back({id});
  return params;
}

void RequestBuilder::set_stop_rules(const GenerationConfig& gen_config, PreparedRequest& prepared) const {
  StopWords words = split_stop_words(gen_config.stop_words, defaults_.tokenizer.get());
  std::vector<int> ids = defaults_.eos_ids;
  ids.insert(ids.end(), words.ids.begin(), words.ids.end());
  ids.insert(ids.end(), gen_config.stop_token_ids.begin(), gen_config.stop_token_ids.end());
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());

  StopWords more = split_stop_words(defaults_.template_stop_words, defaults_.tokenizer.get());
  words.texts.insert(words.texts.end(), more.texts.begin(), more.texts.end());
  prepared.text.stop_words = std::move(words.texts);
  prepared.text.stop_ids = ids;
  prepared.request.stop_ids = std::move(ids);
  prepared.request.include_stop_id = gen_config.include_stop_str_in_output;
}

int64_t RequestBuilder::clamp_new_tokens(const GenerationConfig& gen_config, size_t num_prompt_tokens) const {
  LMD_CHECK(fits(num_prompt_tokens, gen_config), num_prompt_tokens);
  const int64_t space = defaults_.session_len - static_cast<int64_t>(num_prompt_tokens);
  const int64_t wanted = gen_config.max_new_tokens.value_or(space);
  // No prompt length in the text, so that the log shows it once and not for every prompt.
  if (wanted > space)
    LMD_LOG(kWarning, "max_new_tokens ", wanted,
            " does not fit beside the prompt; clamped to the space left of session_len ",
            defaults_.session_len);
  return std::min(wanted, space);
}

}  // namespace lmdeploy
