// The activations of activation.h.
#pragma once

#include "lmdeploy/kernels/activation.h"

namespace lmdeploy::cuda {

__device__ inline float activated(float x, Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return x / (1 + expf(-x));
    case Activation::kGelu:
      return x * normcdff(x);    // no cancellation in the tail
    case Activation::kGeluTanh:  // (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)), without the cancellation
      return x / (1 + expf(-1.5957691216057308f * (x + 0.044715f * x * x * x)));
    case Activation::kQuickGelu:
      return x / (1 + expf(-1.702f * x));
    case Activation::kRelu:
      return x < 0 ? 0 : x;
  }
  return x;
}

}  // namespace lmdeploy::cuda
