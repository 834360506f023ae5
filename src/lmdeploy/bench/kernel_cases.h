// The calls whose speed `lmdeploy bench kernels` measures: one list, a file for each group of ops.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lmdeploy/bench/dot_chains.h"
#include "lmdeploy/core/thread_pool.h"
#include "lmdeploy/kernels/kernels.h"

namespace lmdeploy {

using PackedCopies = std::vector<std::unique_ptr<PackedWeight>>;

/// What all cases share.
class KernelBench {
 public:
  /// cold_bytes: see below.
  KernelBench(int num_threads, int64_t cold_bytes)
      : threads_(std::make_shared<ThreadPool>(num_threads)), cold_bytes_(cold_bytes) {}

  ThreadPool& threads() const { return *threads_; }
  const Kernels& kernels(bool rounded_activations = false) const {
    return rounded_activations ? *rounded_ : *in_f32_;
  }
  /// A working set that no cache holds: calls take turns on copies of this many bytes in all.
  int64_t cold_bytes() const { return cold_bytes_; }
  /// Equal matrices of cold_bytes() together, or `least` of them where that is more; the last ones asked for
  /// are kept.
  const PackedCopies& cold_weights(DType dtype, bool rounded_activations, int64_t rows, int64_t cols,
                                   int64_t least = 1);

 private:
  const std::shared_ptr<ThreadPool> threads_;
  const int64_t cold_bytes_;
  const std::unique_ptr<Kernels> in_f32_ = make_cpu_kernels(threads_),
                                 rounded_ = make_cpu_kernels(threads_, {.rounded_activations = true});
  std::string kept_;  // what copies_ is
  PackedCopies copies_;
};

/// A call that is ready to be made again and again.
struct KernelCall {
  std::function<void()> run;
  double bytes = 0;  // read and written
  double flops = 0;  // a multiply-add is two
  DotChain::Numbers numbers = DotChain::Numbers::kF32;
};

struct KernelCase {
  std::string name;  // "linear/q4_0/f32/2048x8192/tokens:1"
  std::function<KernelCall(KernelBench&)> prepare;
};
using KernelCases = std::vector<KernelCase>;

void add_linear_cases(KernelCases& cases);
void add_attention_cases(KernelCases& cases);
void add_row_cases(KernelCases& cases);
void add_expert_cases(KernelCases& cases);
void add_sampler_cases(KernelCases& cases);
/// All of them.
KernelCases kernel_cases();

/// f32, all elements `value`.
Tensor filled_tensor(const Shape& shape, float value);

}  // namespace lmdeploy
