// The architectures of GGUF files that can be said in the hub's words, as data.
#pragma once

#include <span>
#include <string_view>

namespace lmdeploy {

/// A tensor's name in the file and on the hub.
struct GgufNameRule {
  std::string_view stored;
  std::string_view hub;
};

/// A metadata key (after "ARCHITECTURE.") and the key in config.json. An array is taken when its items are
/// equal.
struct GgufConfigRule {
  enum class Kind { kInt, kFloat };
  std::string_view stored;
  std::string_view hub;
  Kind kind;
  bool required = false;
};

/// A metadata key that changes the model and has no counterpart: refused unless it has the neutral value.
struct GgufNeutralRule {
  std::string_view stored;
  double neutral;
};

struct GgufArchitecture {
  std::string_view name;       // general.architecture
  std::string_view hub_class;  // architectures[0]
  std::string_view model_type;
  std::string_view hidden_act;
  bool rope_interleaved;  // q and k rows are stored for rotary pairs (2j, 2j + 1)
  std::span<const GgufNameRule> names;
  std::span<const GgufNameRule>
      layer_names;  // "blk.{l}.STORED.weight" -> "model.layers.{l}.HUB.weight"; .bias too
  std::span<const GgufConfigRule> config;
  std::span<const GgufNeutralRule> neutral;
};

/// nullptr when there is no table for this name.
const GgufArchitecture* find_gguf_architecture(std::string_view name);

}  // namespace lmdeploy
