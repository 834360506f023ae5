// The names safetensors headers give to element types.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "lmdeploy/core/dtype.h"

namespace lmdeploy {

/// Nothing for a name that is unknown or that DType cannot express.
std::optional<DType> dtype_of_safetensors(std::string_view name);
/// Nothing for quantised kinds.
std::optional<std::string_view> safetensors_name(DType dtype);
/// Place among the dtypes of one file as written: 8-byte types first.
size_t safetensors_rank(DType dtype);
/// "I64, F64, ...", for messages.
std::string safetensors_dtype_names();

}  // namespace lmdeploy
