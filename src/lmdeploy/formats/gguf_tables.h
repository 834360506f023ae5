// The architectures of GGUF files that can be said in the hub's words, as data.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace lmdeploy {

/// A tensor's name in the file and on the hub; "{e}" stands for an expert's number in both.
struct GgufNameRule {
  std::string_view stored;
  std::string_view hub;
};

/// A metadata key (after "ARCHITECTURE.") and the key in config.json. An array is taken when its items are
/// equal.
struct GgufConfigRule {
  enum class Kind : uint8_t {
    kInt,
    kFloat,
    kBool,
    kScores,  // how router logits become scores: 1 "softmax", 2 "sigmoid"
  };
  std::string_view stored;
  std::string_view hub;
  Kind kind;
  bool required = false;
};

/// A metadata key that changes the model: refused unless it has the neutral value, or the architecture has a
/// counterpart for it.
struct GgufNeutralRule {
  std::string_view stored;
  double neutral;
};

/// A config key whose value (JSON) follows from whether the file has a tensor.
struct GgufTensorRule {
  std::string_view tensor;
  std::string_view hub;
  std::string_view present;
  std::string_view absent;
};

struct GgufArchitecture {
  std::string_view name;       // general.architecture
  std::string_view hub_class;  // architectures[0]
  /// The same where expert_count is above 0; "": such files are refused.
  std::string_view expert_class = {};
  std::string_view model_type;
  /// q and k rows are stored for rotary pairs (2j, 2j + 1).
  bool rope_interleaved = false;
  std::string_view constants;  // a JSON object: what all files of the architecture have; rules override it
  std::span<const GgufNameRule> names;
  /// "blk.{l}.STORED.weight" -> LAYER_PREFIX "{l}.HUB.weight", .bias too; a rule whose stored name ends with
  /// ".weight" or ".bias" holds for that one only and says the whole hub name.
  std::span<const GgufNameRule> layer_names;
  std::string_view layer_prefix = "model.layers.";
  std::span<const GgufConfigRule> config;  // beside gguf_common_config()
  std::span<const GgufTensorRule> tensors = {};
  /// Gemma's largest model has this many layers and scales queries by hidden size / heads, the others by the
  /// head's; 0: no Gemma.
  int64_t wide_query_layers = 0;
  int64_t window_period = 0;      // every so many layers one has no window, if the file does not say; 0: none
  bool latent_attention = false;  // DeepSeek-V2's head sizes
  bool divided_experts = false;   // an expert's size that is absent follows from feed_forward_length
};

/// nullptr when there is no table for this name.
const GgufArchitecture* find_gguf_architecture(std::string_view name);

/// For all architectures.
std::span<const GgufConfigRule> gguf_common_config();
std::span<const GgufTensorRule> gguf_common_tensors();
std::span<const GgufNeutralRule> gguf_neutral();

}  // namespace lmdeploy
