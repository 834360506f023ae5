// params.json, as Meta publishes it beside consolidated.NN.pth, in the words of the hub.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lmdeploy/core/dtype.h"
#include "lmdeploy/core/json.h"

namespace lmdeploy {

/// What only the weights say.
struct MetaWeights {
  int64_t embedding_rows = 0;
  int64_t ffn_rows = 0;  // rows of layers.0.feed_forward.w1
  bool has_output = true;
  DType dtype = DType::kBF16;
};

/// The config.json of the LlamaForCausalLM that `params` describes. Throws Error beginning with `where`:
/// kInvalidData for values that are missing, wrong or not those of the weights, kUnsupported for a key that
/// is not known (another kind of model).
JsonObject meta_hub_config(const Json& params, const std::string& where, const MetaWeights& weights);

}  // namespace lmdeploy
