// What the GPU can do at most, measured: printed, and for the limits of what models do.
#pragma once

#include <optional>

#include "lmdeploy/bench/bench_report.h"
#include "lmdeploy/bench/step_limits.h"
#include "lmdeploy/core/dtype.h"

namespace lmdeploy {

/// The block of that name: reads by size, copy, products in bf16 and e4m3, gap between kernels of a graph.
void run_ceilings(BenchReport& report);

/// The ceilings of models, measured once.
class GpuRates {
 public:
  /// Measures and prints what all models need.
  explicit GpuRates(BenchReport& report);
  /// Weights in e4m3 are set against products in e4m3 where the card has them, others in bf16.
  DeviceRates of(DType weights);

 private:
  BenchReport& report_;
  const double read_bytes_per_s_, bf16_flops_per_s_;
  bool knows_fp8_ = false;
  std::optional<double> fp8_flops_per_s_;
};

}  // namespace lmdeploy
