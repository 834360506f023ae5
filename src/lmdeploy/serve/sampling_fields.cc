#include "lmdeploy/serve/sampling_fields.h"

#include <charconv>
#include <limits>

#include "lmdeploy/serve/api_error.h"

namespace lmdeploy {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kMinPenalty = 0.01;  // logits are divided by it, and have to stay finite
constexpr double kMaxInt = std::numeric_limits<int>::max();

const Fields& stream_option_fields() {
  static const Fields fields = {{"include_usage", FieldType::kBool, "A last piece with the counts"}};
  return fields;
}

}  // namespace

const Fields& sampling_fields() {
  static const Fields fields = {
      {"top_p", FieldType::kNumber, "Draw from the smallest set of tokens whose probabilities sum to this",
       false, 0, 1, true, "1.0"},
      {"top_k", FieldType::kInteger, "Draw from that many best tokens; 0 or -1: from all", false, -1, kMaxInt,
       false, "40"},
      {"temperature", FieldType::kNumber, "0: always the best token", false, 0, 2, false, "0.7"},
      {"min_p", FieldType::kNumber, "Least probability, as a share of the best token's", false, 0, 1, false,
       "0.0"},
      {"repetition_penalty", FieldType::kNumber, "Above 1: tokens that occurred become less likely", false,
       kMinPenalty, kInfinity, false, "1.0"},
      {"presence_penalty", FieldType::kNumber, "Taken from the logit of each token generated already", false,
       -2, 2, false, "0.0"},
      {"frequency_penalty", FieldType::kNumber, "Likewise, for each time it was generated", false, -2, 2,
       false, "0.0"},
      {"max_tokens", FieldType::kInteger, "Most tokens of an answer; null: as many as fit", false, 1},
      {"max_completion_tokens", FieldType::kInteger, "The newer name of max_tokens; comes first", false, 1},
      {"min_new_tokens", FieldType::kInteger, "No end before that many tokens", false, 0},
      {"stop", FieldType::kTextsOrFalse, "Texts that end the answer, beside the chat template's"},
      {"stop_token_ids", FieldType::kIntegerArray, "Token ids that end the answer"},
      {"bad_words", FieldType::kStringOrArray, "Texts that are never generated"},
      {"ignore_eos", FieldType::kBool, "Only the length ends the answer", false, -kInfinity, kInfinity, false,
       "false"},
      {"skip_special_tokens", FieldType::kBool, "Leave special tokens out of the text", false, -kInfinity,
       kInfinity, false, "true"},
      {"spaces_between_special_tokens", FieldType::kBool,
       "Accepted for old clients: special tokens stand as they are", false, -kInfinity, kInfinity, false,
       "true"},
      {"include_stop_str_in_output", FieldType::kBool, "Keep the stop text in the answer", false, -kInfinity,
       kInfinity, false, "false"},
      {"seed", FieldType::kInteger, "The same seed draws the same tokens"},
      {"logit_bias", FieldType::kNumberMap,
       "Token id (as text) to a number from -100 to 100 that is added to its logit"},
      {"repetition_ngram_size", FieldType::kInteger, "With the threshold: ends an answer that repeats itself",
       false, 0, kMaxInt, false, "0"},
      {"repetition_ngram_threshold", FieldType::kInteger, "How often the last n tokens may have come", false,
       0, kMaxInt, false, "0"},
      {"response_format", FieldType::kObject,
       "text, json_object, json_schema, regex_schema or choice: what the answer must be"},
      {"session_id", FieldType::kInteger, "A name for this request while it runs; -1: the server chooses one",
       false, -1, kInfinity, false, "-1"},
      {"user_id", FieldType::kString, "Whose quota the request counts on, where the server has quotas"},
  };
  return fields;
}

bool wants_usage(const Body& body) {
  const Json* options = body.find("stream_options");
  const Json* usage = options == nullptr ? nullptr : options->as_object().if_contains("include_usage");
  return usage != nullptr && usage->is_bool() && usage->get_bool();
}

std::vector<std::pair<int, float>> read_logit_bias(const JsonObject& map) {
  std::vector<std::pair<int, float>> biases;
  for (const auto& entry : map) {
    const std::string_view key = entry.key();
    int id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0)
      refuse_field("logit_bias", cat("logit_bias: the key \"", key, "\" is not a token id"));
    const bool is_number = entry.value().is_number();
    const double bias = is_number ? entry.value().to_number<double>() : 0;
    if (!is_number || bias < -100 || bias > 100)
      refuse_field("logit_bias", cat("logit_bias[", id, "]: found ", to_json_text(entry.value()),
                                     "; expected a number in [-100, 100]"));
    biases.emplace_back(id, static_cast<float>(bias));
  }
  return biases;
}

const Fields& stream_fields() {
  static const Fields fields = {
      {"stream", FieldType::kBool, "Send the answer in pieces", false, -kInfinity, kInfinity, false, "false"},
      {"stream_options",
       FieldType::kObject,
       "{\"include_usage\": true}: a last piece with the counts",
       false,
       -kInfinity,
       kInfinity,
       false,
       "null",
       {},
       stream_option_fields},
  };
  return fields;
}

ResponseFormat read_format(const Json& format, const std::string& param) {
  try {
    return read_response_format(format, param);
  } catch (const Error& error) {
    refuse_field(param, error.what());
  }
}

GenerationConfig read_generation_config(const Body& body, const SamplingDefaults& defaults) {
  GenerationConfig config;
  config.do_sample = true;
  config.temperature = static_cast<float>(body.number("temperature", defaults.temperature));
  config.top_p = static_cast<float>(body.number("top_p", defaults.top_p));
  config.top_k = static_cast<int>(std::max<int64_t>(body.integer("top_k", defaults.top_k), 0));
  config.min_p = static_cast<float>(body.number("min_p", 0));
  config.repetition_penalty = static_cast<float>(body.number("repetition_penalty", 1));
  config.presence_penalty = static_cast<float>(body.number("presence_penalty", 0));
  config.frequency_penalty = static_cast<float>(body.number("frequency_penalty", 0));
  config.max_new_tokens =
      body.has("max_completion_tokens") ? body.integer("max_completion_tokens") : body.integer("max_tokens");
  if (!config.max_new_tokens) config.max_new_tokens = defaults.max_tokens;
  config.min_new_tokens = body.integer("min_new_tokens", 0);
  config.stop_words = body.texts("stop");
  std::erase(config.stop_words, "");
  config.stop_token_ids = body.ids("stop_token_ids");
  config.bad_words = body.texts("bad_words");
  config.ignore_eos = body.flag("ignore_eos", false);
  config.skip_special_tokens = body.flag("skip_special_tokens", true);
  config.spaces_between_special_tokens = body.flag("spaces_between_special_tokens", true);
  config.include_stop_str_in_output = body.flag("include_stop_str_in_output", false);
  if (const Json* seed = body.find("seed"))
    config.random_seed =
        seed->is_uint64() ? seed->get_uint64() : static_cast<uint64_t>(*body.integer("seed"));
  if (const Json* map = body.find("logit_bias")) config.logit_bias = read_logit_bias(map->as_object());
  config.repetition_ngram_size = static_cast<int>(body.integer("repetition_ngram_size", 0));
  config.repetition_ngram_threshold = static_cast<int>(body.integer("repetition_ngram_threshold", 0));
  if (const Json* format = body.find("response_format"))
    config.response_format = read_format(*format, "response_format");
  return config;
}

}  // namespace lmdeploy
