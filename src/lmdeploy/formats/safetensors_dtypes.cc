#include "lmdeploy/formats/safetensors_dtypes.h"

#include <array>
#include <utility>

#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

using namespace std::string_view_literals;

// In the order in which the reference implementation writes the tensors of a file (its `Dtype`, downwards).
constexpr std::array kNames = {
    std::pair{DType::kI64, "I64"sv},        std::pair{DType::kF64, "F64"sv},
    std::pair{DType::kF32, "F32"sv},        std::pair{DType::kI32, "I32"sv},
    std::pair{DType::kBF16, "BF16"sv},      std::pair{DType::kF16, "F16"sv},
    std::pair{DType::kI16, "I16"sv},        std::pair{DType::kF8E4M3, "F8_E4M3"sv},
    std::pair{DType::kF8E5M2, "F8_E5M2"sv}, std::pair{DType::kI8, "I8"sv},
    std::pair{DType::kU8, "U8"sv},          std::pair{DType::kBool, "BOOL"sv},
};

}  // namespace

std::optional<DType> dtype_of_safetensors(std::string_view name) {
  for (const auto& [dtype, known] : kNames) {
    if (known == name) return dtype;
  }
  return std::nullopt;
}

std::optional<std::string_view> safetensors_name(DType dtype) {
  for (const auto& [known, name] : kNames) {
    if (known == dtype) return name;
  }
  return std::nullopt;
}

size_t safetensors_rank(DType dtype) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i].first == dtype) return i;
  }
  return kNames.size();
}

std::string safetensors_dtype_names() {
  std::string out;
  for (const auto& [dtype, name] : kNames) out += cat(out.empty() ? "" : ", ", name);
  return out;
}

}  // namespace lmdeploy
