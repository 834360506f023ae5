// A hash that is the same in every run: which node a prompt goes to must survive a restart.
#pragma once

#include <cstdint>
#include <string_view>

#include "lmdeploy/core/random.h"

namespace lmdeploy::proxy {

/// FNV-1a (Fowler, Noll, Vo), mixed; `seed` chains calls.
inline uint64_t hash_text(std::string_view text, uint64_t seed = 0) {
  uint64_t hash = 0xcbf29ce484222325ull ^ seed;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return mix_bits(hash);
}

}  // namespace lmdeploy::proxy
