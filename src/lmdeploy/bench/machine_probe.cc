#include "lmdeploy/bench/machine_probe.h"

#include <algorithm>

#include "lmdeploy/bench/measure.h"
#include "lmdeploy/kernels/kernels.h"
#include "lmdeploy/pipeline/device.h"

namespace lmdeploy {
namespace {

constexpr int64_t kSteps = 500000;  // of a chain: about a millisecond
constexpr int kTries = 3;

// Of the fastest instructions for this kind of number.
double ops_per_s(ThreadPool& threads, DotChain::Numbers numbers) {
  double best = 0;
  for (const DotChain& chain : dot_chains()) {
    if (chain.numbers != numbers) continue;
    const double ops = static_cast<double>(kSteps * chain.ops * threads.num_threads());
    for (int i = 0; i < kTries; ++i)
      best = std::max(best, ops / seconds_of([&] { threads.run([&](int) { chain.run(kSteps); }); }));
  }
  return best;
}

}  // namespace

MachineLimits mean_of(const MachineLimits& before, const MachineLimits& after) {
  return {.bytes_per_s = (before.bytes_per_s + after.bytes_per_s) / 2,
          .f32_ops = (before.f32_ops + after.f32_ops) / 2,
          .bf16_ops = (before.bf16_ops + after.bf16_ops) / 2,
          .int8_ops = (before.int8_ops + after.int8_ops) / 2};
}

DotChain::Numbers numbers_of(DType weights, bool rounded_activations) {
  const CpuIsa isa = best_cpu_isa();
  if (rounded_activations && weights == DType::kBF16 && isa == CpuIsa::kAvx512BF16)
    return DotChain::Numbers::kBF16;
  const bool in_bytes = rounded_activations && holds_integers(weights) && isa != CpuIsa::kPortable;
  return in_bytes ? DotChain::Numbers::kInt8 : DotChain::Numbers::kF32;
}

MachineProbe::MachineProbe(ThreadPool& threads, int64_t bytes)
    : threads_(threads), memory_(bytes, Pages::kHuge) {}

MachineLimits MachineProbe::measure() {
  MachineLimits limits;
  for (const int64_t streams : {1, 2, 4})
    limits.bytes_per_s = std::max(limits.bytes_per_s, memory_.read(threads_, streams));
  limits.f32_ops = ops_per_s(threads_, DotChain::Numbers::kF32);
  limits.bf16_ops = ops_per_s(threads_, DotChain::Numbers::kBF16);
  limits.int8_ops = ops_per_s(threads_, DotChain::Numbers::kInt8);
  return limits;
}

}  // namespace lmdeploy
