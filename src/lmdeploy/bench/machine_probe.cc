#include "lmdeploy/bench/machine_probe.h"

#include <algorithm>

#include "lmdeploy/bench/dot_chains.h"
#include "lmdeploy/bench/measure.h"

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
          .int8_ops = (before.int8_ops + after.int8_ops) / 2};
}

MachineProbe::MachineProbe(ThreadPool& threads, int64_t bytes)
    : threads_(threads), memory_(bytes, Pages::kHuge) {}

MachineLimits MachineProbe::measure() {
  MachineLimits limits;
  for (const int64_t streams : {1, 2, 4})
    limits.bytes_per_s = std::max(limits.bytes_per_s, memory_.read(threads_, streams));
  limits.f32_ops = ops_per_s(threads_, DotChain::Numbers::kF32);
  limits.int8_ops = ops_per_s(threads_, DotChain::Numbers::kInt8);
  return limits;
}

}  // namespace lmdeploy
