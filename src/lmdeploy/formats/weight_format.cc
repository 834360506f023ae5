#include "lmdeploy/formats/weight_format.h"

#include <array>
#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/quote.h"

namespace lmdeploy {
namespace {

using namespace std::string_view_literals;

constexpr std::array kNames = {
    std::pair{WeightFormat::kHf, "hf"sv},
    std::pair{WeightFormat::kLlama, "llama"sv},
    std::pair{WeightFormat::kGguf, "gguf"sv},
    std::pair{WeightFormat::kAwq, "awq"sv},
    std::pair{WeightFormat::kGptq, "gptq"sv},
    std::pair{WeightFormat::kCompressedTensors, "compressed-tensors"sv},
    std::pair{WeightFormat::kFp8, "fp8"sv},
    std::pair{WeightFormat::kMxfp4, "mxfp4"sv},
    std::pair{WeightFormat::kW8A8, "w8a8"sv},
};

}  // namespace

std::string_view to_string(WeightFormat format) {
  for (const auto& [known, name] : kNames) {
    if (known == format) return name;
  }
  LMD_CHECK(false, static_cast<int>(format));
}

std::optional<WeightFormat> weight_format_from_string(std::string_view name) {
  for (const auto& [format, known] : kNames) {
    if (known == name) return format;
  }
  return std::nullopt;
}

std::string weight_format_names() {
  std::string out;
  for (const auto& [format, name] : kNames) out += cat(out.empty() ? "" : ", ", name);
  return out;
}

void check_weight_format_name(std::string_view name) {
  if (!name.empty() && !weight_format_from_string(name))
    throw Error(ErrorCode::kInvalidArgument,
                cat("model_format is ", quote(name), ", expected one of ", weight_format_names()));
}

void check_model_format(const std::string& path, WeightFormat found, std::string_view option) {
  check_weight_format_name(option);
  if (!option.empty() && option != to_string(found))
    throw Error(ErrorCode::kInvalidArgument, cat("open ", path, ": folder says ", found, ", option says ",
                                                 option, "; leave model_format out"));
}

}  // namespace lmdeploy
