// The models that a block of gpu_bench runs over.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lmdeploy/bench/bench_model.h"
#include "lmdeploy/bench/bench_report.h"

namespace lmdeploy {

struct ModelChoice {
  std::vector<std::string> models = {"llama-8b"};
  std::vector<DType> weights = {DType::kBF16};
  std::vector<DType> kv_dtypes = {DType::kBF16};  // for the caller
};

/// "model", "weights" and "kv" of a result.
JsonObject setting_of(const BenchModel& bench, DType kv_dtype);

/// Loads each shape with each kind of weights, one after the other. What does not fit is reported as skipped.
void for_each_model(const std::string& block, const ModelChoice& choice, const BenchDevice& device,
                    BenchReport& report, const std::function<void(const BenchModel&)>& body);

/// Before each case. Whether a KV cache of so many bytes fits; reports the case as skipped where not.
bool begin_case(const BenchModel& bench, int64_t cache_bytes, const std::string& block,
                const JsonObject& setting, BenchReport& report);

}  // namespace lmdeploy
