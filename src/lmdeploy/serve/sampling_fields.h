// The fields of sampling that all generating routes share, and what they mean for the pipeline.
#pragma once

#include "lmdeploy/pipeline/pipeline.h"
#include "lmdeploy/serve/fields.h"

namespace lmdeploy {

/// Values of a route for what a client leaves out.
struct SamplingDefaults {
  double temperature = 0.7, top_p = 1;
  int64_t top_k = 40;
  std::optional<int64_t> max_tokens;  // unset: as many as fit
};

/// temperature, top_p, ..., with their defaults in the text form of openapi.json.
const Fields& sampling_fields();
/// stream and stream_options.
const Fields& stream_fields();
/// Of stream_options.
bool wants_usage(const Body& body);

/// Draws always; temperature 0 is greedy. Reads max_tokens and max_completion_tokens too, the latter first.
/// Throws ApiError.
GenerationConfig read_generation_config(const Body& body, const SamplingDefaults& defaults);

/// Throws ApiError naming `param`.
ResponseFormat read_format(const Json& format, const std::string& param);

/// OpenAI's map of id texts to biases in [-100, 100].
std::vector<std::pair<int, float>> read_logit_bias(const JsonObject& map);

}  // namespace lmdeploy
