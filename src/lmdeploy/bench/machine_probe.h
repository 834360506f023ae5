// What this machine can do at the moment, to set beside each sample: on shared machines it changes by the
// minute.
#pragma once

#include "lmdeploy/bench/dot_chains.h"
#include "lmdeploy/bench/memory_reader.h"
#include "lmdeploy/core/dtype.h"

namespace lmdeploy {

/// Of all threads together; 0 where it cannot be measured.
struct MachineLimits {
  double bytes_per_s = 0;  // read from memory
  double f32_ops = 0;      // a second, of multiply-adds in registers
  double bf16_ops = 0;     // of products of bf16, likewise
  double int8_ops = 0;     // of byte products

  double ops(DotChain::Numbers numbers) const {
    if (numbers == DotChain::Numbers::kF32) return f32_ops;
    return numbers == DotChain::Numbers::kBF16 ? bf16_ops : int8_ops;
  }
};

/// What linear() multiplies weights of that type in with the best instruction set here.
DotChain::Numbers numbers_of(DType weights, bool rounded_activations);

/// The mean of what was measured before and after a sample.
MachineLimits mean_of(const MachineLimits& before, const MachineLimits& after);

class MachineProbe {
 public:
  /// Reads `bytes` of memory: more than any cache holds.
  MachineProbe(ThreadPool& threads, int64_t bytes);

  /// Takes some 50 ms.
  MachineLimits measure();

 private:
  ThreadPool& threads_;
  MemoryReader memory_;
};

}  // namespace lmdeploy
