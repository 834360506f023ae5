#include "lmdeploy/core/dtype.h"

#include <array>
#include <utility>

#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

struct DTypeInfo {
  DType dtype;
  std::string_view name;
  int64_t block_size;   // elements
  int64_t block_bytes;  // bytes
};

// In the order of the enum.
constexpr std::array kInfo = {
    DTypeInfo{DType::kF64, "f64", 1, 8},
    DTypeInfo{DType::kF32, "f32", 1, 4},
    DTypeInfo{DType::kF16, "f16", 1, 2},
    DTypeInfo{DType::kBF16, "bf16", 1, 2},
    DTypeInfo{DType::kI64, "i64", 1, 8},
    DTypeInfo{DType::kI32, "i32", 1, 4},
    DTypeInfo{DType::kI16, "i16", 1, 2},
    DTypeInfo{DType::kI8, "i8", 1, 1},
    DTypeInfo{DType::kU8, "u8", 1, 1},
    DTypeInfo{DType::kU4, "u4", 2, 1},
    DTypeInfo{DType::kBool, "bool", 1, 1},
    DTypeInfo{DType::kF8E4M3, "f8_e4m3", 1, 1},
    DTypeInfo{DType::kF8E5M2, "f8_e5m2", 1, 1},
    DTypeInfo{DType::kQ4_0, "q4_0", 32, 18},
    DTypeInfo{DType::kQ4_1, "q4_1", 32, 20},
    DTypeInfo{DType::kQ5_0, "q5_0", 32, 22},
    DTypeInfo{DType::kQ5_1, "q5_1", 32, 24},
    DTypeInfo{DType::kQ8_0, "q8_0", 32, 34},
    DTypeInfo{DType::kQ4_K, "q4_k", 256, 144},
    DTypeInfo{DType::kQ5_K, "q5_k", 256, 176},
    DTypeInfo{DType::kQ6_K, "q6_k", 256, 210},
    DTypeInfo{DType::kU4G32, "u4_g32", 32, 24},
    DTypeInfo{DType::kU4G128, "u4_g128", 128, 72},
    DTypeInfo{DType::kU5G32, "u5_g32", 32, 40},
    DTypeInfo{DType::kI8G64, "i8_g64", 64, 72},
    DTypeInfo{DType::kF8G64, "f8_g64", 64, 68},
};

const DTypeInfo& info(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  LMD_CHECK(index < kInfo.size() && kInfo[index].dtype == dtype, "dtype ", index);
  return kInfo[index];
}

}  // namespace

int64_t block_size(DType dtype) { return info(dtype).block_size; }
int64_t block_bytes(DType dtype) { return info(dtype).block_bytes; }

int64_t row_bytes(DType dtype, int64_t num_elements) {
  const DTypeInfo& i = info(dtype);
  LMD_CHECK(num_elements >= 0 && num_elements % i.block_size == 0, i.name, " row of ", num_elements);
  return num_elements / i.block_size * i.block_bytes;
}

std::string_view to_string(DType dtype) { return info(dtype).name; }

std::optional<DType> dtype_from_string(std::string_view name) {
  for (const DTypeInfo& i : kInfo) {
    if (i.name == name) return i.dtype;
  }
  return std::nullopt;
}

double epsilon(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return 0x1p-53;
    case DType::kF32:
      return 0x1p-24;
    case DType::kF16:
      return 0x1p-11;
    case DType::kBF16:
      return 0x1p-8;
    default:
      break;
  }
  LMD_CHECK(false, "epsilon of ", to_string(dtype));
}

}  // namespace lmdeploy
