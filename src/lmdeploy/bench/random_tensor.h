// Random numbers as weights of any kind, quickly made.
#pragma once

#include "lmdeploy/core/tensor.h"

namespace lmdeploy {

/// Numbers around 0, evenly spread, with about this standard deviation; of quantised kinds random integers
/// under equal scales. Only the first million differs from all else: copies of it fill the rest.
Tensor random_tensor(DType dtype, const Shape& shape, double deviation, uint64_t seed);

}  // namespace lmdeploy
