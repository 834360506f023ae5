// The activations that ops apply. Plain constants only: this header is compiled for several instruction sets.
#pragma once

#include <cstdint>

namespace lmdeploy {

enum class Activation : uint8_t {
  kSilu,       // x / (1 + exp(-x))
  kGelu,       // x / 2 * (1 + erf(x / sqrt(2)))
  kGeluTanh,   // x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))
  kQuickGelu,  // x / (1 + exp(-1.702 x))
  kRelu,       // max(x, 0)
};

}  // namespace lmdeploy
