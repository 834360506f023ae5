// The forms in which checkpoints store their weights, by the names that the option `model_format` has.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lmdeploy {

enum class WeightFormat {
  kHf,     // hub form, plain numbers
  kLlama,  // Meta's consolidated.NN.pth
  kGguf,
  kAwq,
  kGptq,
  kCompressedTensors,
  kFp8,
  kMxfp4,
  kW8A8,  // SmoothQuant
};

/// "hf", "llama", "gguf", "awq", ...
std::string_view to_string(WeightFormat format);
/// The reverse; nothing for an unknown name.
std::optional<WeightFormat> weight_format_from_string(std::string_view name);
/// "hf, llama, gguf, ...", for messages.
std::string weight_format_names();

/// Throws Error(kInvalidArgument) for a name that is not one of them; empty is none.
void check_weight_format_name(std::string_view name);
/// Throws Error(kInvalidArgument): "folder says w8a8, option says awq". An empty option agrees with
/// everything.
void check_model_format(const std::string& path, WeightFormat found, std::string_view option);

}  // namespace lmdeploy
