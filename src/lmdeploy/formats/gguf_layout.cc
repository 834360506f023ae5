#include "lmdeploy/formats/gguf_layout.h"

#include <array>

#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

struct Kind {
  uint32_t number;
  std::string_view name;
  std::optional<DType> dtype = std::nullopt;  // nothing: known by name only
};

constexpr std::array kKinds = {
    Kind{0, "f32", DType::kF32},
    Kind{1, "f16", DType::kF16},
    Kind{2, "q4_0", DType::kQ4_0},
    Kind{3, "q4_1", DType::kQ4_1},
    Kind{6, "q5_0", DType::kQ5_0},
    Kind{7, "q5_1", DType::kQ5_1},
    Kind{8, "q8_0", DType::kQ8_0},
    Kind{9, "q8_1"},
    Kind{10, "q2_k"},
    Kind{11, "q3_k"},
    Kind{12, "q4_k", DType::kQ4_K},
    Kind{13, "q5_k", DType::kQ5_K},
    Kind{14, "q6_k", DType::kQ6_K},
    Kind{15, "q8_k"},
    Kind{16, "iq2_xxs"},
    Kind{17, "iq2_xs"},
    Kind{18, "iq3_xxs"},
    Kind{19, "iq1_s"},
    Kind{20, "iq4_nl"},
    Kind{21, "iq3_s"},
    Kind{22, "iq2_s"},
    Kind{23, "iq4_xs"},
    Kind{24, "i8", DType::kI8},
    Kind{25, "i16", DType::kI16},
    Kind{26, "i32", DType::kI32},
    Kind{27, "i64", DType::kI64},
    Kind{28, "f64", DType::kF64},
    Kind{29, "iq1_m"},
    Kind{30, "bf16", DType::kBF16},
    Kind{34, "tq1_0"},
    Kind{35, "tq2_0"},
    Kind{39, "mxfp4"},
    Kind{40, "nvfp4"},
};

}  // namespace

std::optional<DType> dtype_of_gguf_kind(uint32_t kind) {
  for (const Kind& known : kKinds) {
    if (known.number == kind) return known.dtype;
  }
  return std::nullopt;
}

std::optional<uint32_t> gguf_kind_of(DType dtype) {
  for (const Kind& known : kKinds) {
    if (known.dtype == dtype) return known.number;
  }
  return std::nullopt;
}

std::string_view gguf_kind_name(uint32_t kind) {
  for (const Kind& known : kKinds) {
    if (known.number == kind) return known.name;
  }
  return "unknown";
}

std::string gguf_supported_kinds() {
  std::string out;
  for (const Kind& known : kKinds) {
    if (known.dtype) out += cat(out.empty() ? "" : ", ", known.name);
  }
  return out;
}

}  // namespace lmdeploy
