// A hash of short texts, inline: tables of tokens are asked millions of times while a file loads.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

#include "lmdeploy/core/random.h"

namespace lmdeploy {

/// Equal for equal texts, within one run of the program. All bits are well mixed.
inline uint64_t hash_bytes(std::string_view text) {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15ull;
  const char* at = text.data();
  size_t left = text.size();
  uint64_t hash = left * kOdd;
  uint64_t word;
  for (; left > 8; at += 8, left -= 8) {
    std::memcpy(&word, at, 8);
    hash = (hash ^ word) * kOdd;
    hash ^= hash >> 32;
  }
  word = 0;
  for (; left > 0; --left) word = word << 8 | static_cast<uint8_t>(at[left - 1]);
  return mix_bits(hash ^ word);
}

}  // namespace lmdeploy
