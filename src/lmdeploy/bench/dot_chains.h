// Chains of multiply-adds in registers: what the arithmetic units of a core can do at most.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace lmdeploy {

struct DotChain {
  enum class Numbers { kF32, kBF16, kInt8 };
  Numbers numbers;
  const char* name;            // the instructions, and the width of their registers
  int64_t ops;                 // of a step; a multiply-add is two
  void (*run)(int64_t steps);  // on the calling thread
};

/// "f32", "bf16", "int8"
std::string_view to_string(DotChain::Numbers numbers);

/// Those that this processor has, the slowest of each kind of number first; none but on x86.
std::vector<DotChain> dot_chains();

}  // namespace lmdeploy
