// The blocks of gpu_bench that run models: decode and prefill steps, idle time, static batches, traces.
#pragma once

#include <cstdint>
#include <vector>

#include "lmdeploy/bench/model_choice.h"
#include "lmdeploy/bench/request_trace.h"

namespace lmdeploy {

struct DecodeOptions {
  std::vector<int64_t> batches = {1, 16, 64, 256};
  std::vector<int64_t> contexts = {512, 1024, 2048};  // tokens of each sequence after the step
};

struct PrefillOptions {
  std::vector<int64_t> tokens = {512, 2048, 8192};
};

/// LMDeploy's own table: as profile_generation.py has it.
struct StaticOptions {
  std::vector<int64_t> batches = {1, 16, 32, 64};
  std::vector<int64_t> prompts = {1, 128, 128, 2048, 2048};
  std::vector<int64_t> outputs = {128, 128, 2048, 128, 2048};  // with the prompt at the same place
};

struct TraceBlockOptions {
  TraceOptions trace = {};
  double cache_gb = 40;            // 10^9 bytes of KV cache, the same for each kind
  int64_t max_batch = 512;         // running sequences
  std::vector<double> rates = {};  // requests a second; none: all requests at once
};

/// Each loads its models one after the other.
void run_decode(const ModelChoice& choice, const DecodeOptions& options, const BenchDevice& device,
                BenchReport& report);
void run_prefill(const ModelChoice& choice, const PrefillOptions& options, const BenchDevice& device,
                 BenchReport& report);
/// How long the device waits for the engine between two decode steps.
void run_idle(const ModelChoice& choice, const DecodeOptions& options, const BenchDevice& device,
              BenchReport& report);
void run_static(const ModelChoice& choice, const StaticOptions& options, const BenchDevice& device,
                BenchReport& report);
void run_trace(const ModelChoice& choice, const TraceBlockOptions& options, const BenchDevice& device,
               BenchReport& report);

}  // namespace lmdeploy
