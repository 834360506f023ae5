// Weights that f16 cannot hold: found while they are loaded.
#pragma once

#include <cstdint>
#include <string>

#include "lmdeploy/core/tensor.h"
#include "lmdeploy/core/thread_pool.h"

namespace lmdeploy {

constexpr float kLargestF16 = 65504;

class F16Range {
 public:
  /// Looks through weights of a tensor: those of f32 and bf16, as the other kinds are not made f16. [rows,
  /// cols], read once by all threads.
  void add(ConstTensorView weights, const std::string& tensor, ThreadPool& threads);
  /// How many are beyond it, where the largest is, and what becomes of them; "" if there are none. NaN does
  /// not count.
  std::string warning() const;

 private:
  int64_t count_ = 0;
  float largest_ = 0;
  std::string tensor_;  // of the largest
};

}  // namespace lmdeploy
