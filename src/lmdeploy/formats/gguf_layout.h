// Constants of the GGUF format shared by reader and writer.
// Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md; kind numbers: `enum ggml_type` in
// ggml.h.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lmdeploy/core/dtype.h"

namespace lmdeploy {

static_assert(std::endian::native == std::endian::little, "GGUF bytes are used as they are stored");

inline constexpr uint32_t kGgufMagic = 0x46554747;  // "GGUF"
inline constexpr uint32_t kGgufVersion = 3;         // written; 2 has the same layout
inline constexpr uint64_t kGgufDefaultAlignment = 32;
inline constexpr std::string_view kGgufAlignmentKey = "general.alignment";
inline constexpr uint64_t kGgufMaxAlignment = 1 << 20;
/// A power of two from 8 on, so that every dtype is aligned.
inline bool valid_gguf_alignment(uint64_t alignment) {
  return alignment >= 8 && alignment <= kGgufMaxAlignment && std::has_single_bit(alignment);
}

/// Nothing for a kind that DType cannot express.
std::optional<DType> dtype_of_gguf_kind(uint32_t kind);
std::optional<uint32_t> gguf_kind_of(DType dtype);
/// "q2_k", ...; "unknown" for a number not given out.
std::string_view gguf_kind_name(uint32_t kind);
/// "f32, f16, ...": the kinds that can be read, for messages.
std::string gguf_supported_kinds();

}  // namespace lmdeploy
