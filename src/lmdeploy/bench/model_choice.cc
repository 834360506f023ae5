#include "lmdeploy/bench/model_choice.h"

#include "lmdeploy/bench/text_line.h"
#include "lmdeploy/core/error.h"

namespace lmdeploy {

JsonObject setting_of(const BenchModel& bench, DType kv_dtype) {
  return {{"model", bench.shape()}, {"weights", to_string(bench.weights())}, {"kv", to_string(kv_dtype)}};
}

void for_each_model(const std::string& block, const ModelChoice& choice, const BenchDevice& device,
                    BenchReport& report, const std::function<void(const BenchModel&)>& body) {
  for (const std::string& shape : choice.models) {
    for (const DType weights : choice.weights) {
      const JsonObject setting = {{"model", shape}, {"weights", to_string(weights)}};
      report.begin(block, setting);
      const std::string problem = BenchModel::why_not(shape, weights, device);
      if (!problem.empty()) {
        report.skip(block, setting, problem);
        continue;
      }
      const BenchModel bench(shape, weights, device);
      report.note(cat(shape, " in ", weights, ": ",
                      bytes_text(static_cast<double>(bench.model().weight_bytes())), ", loaded in ",
                      three_digits(bench.loading_s()), " s"));
      body(bench);
    }
  }
}

bool begin_case(const BenchModel& bench, int64_t cache_bytes, const std::string& block,
                const JsonObject& setting, BenchReport& report) {
  report.begin(block, setting);
  const std::string problem = bench.why_no_cache(cache_bytes);
  if (!problem.empty()) report.skip(block, setting, problem);
  return problem.empty();
}

}  // namespace lmdeploy
