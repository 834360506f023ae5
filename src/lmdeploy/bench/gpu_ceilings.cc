#include "lmdeploy/bench/gpu_ceilings.h"

#include "lmdeploy/bench/text_line.h"
#include "lmdeploy/core/error.h"
#include "lmdeploy/kernels/cuda/device_probe.h"

namespace lmdeploy {
namespace {

std::string bandwidth_text(double bytes_per_s) { return cat(fixed(bytes_per_s / 1e12, 3), " TB/s"); }
std::string product_text(std::optional<double> flops_per_s) {
  return flops_per_s ? cat(fixed(*flops_per_s / 1e12, 0), " TFLOP/s") : "the library has none";
}

void add_bandwidth(BenchReport& report, const JsonObject& setting, double bytes_per_s) {
  report.add({.block = "ceilings",
              .setting = setting,
              .figures = {{"bytes_per_s", bytes_per_s}},
              .text = bandwidth_text(bytes_per_s)});
}

void add_product(BenchReport& report, const char* numbers, std::optional<double> flops_per_s) {
  report.add({.block = "ceilings",
              .setting = {{"what", "product"}, {"numbers", numbers}},
              .figures = {{"flops_per_s", flops_per_s ? Json(*flops_per_s) : Json(nullptr)}},
              .text = product_text(flops_per_s)});
}

void add_gap(BenchReport& report, bool overlap) {
  const double seconds = cuda::measure_graph_gap(overlap);
  report.add({.block = "ceilings",
              .setting = {{"what", "graph_gap"}, {"overlap", overlap}},
              .figures = {{"gap_s", seconds}},
              .text = cat(fixed(seconds * 1e6, 2), " us from kernel to kernel")});
}

}  // namespace

void run_ceilings(BenchReport& report) {
  for (int64_t mib = 8; mib <= 4096; mib *= 2)
    add_bandwidth(report, {{"what", "read"}, {"mib", mib}}, cuda::measure_read_bandwidth(mib << 20));
  add_bandwidth(report, {{"what", "copy"}}, cuda::measure_copy_bandwidth());
  add_product(report, "bf16", cuda::measure_bf16_product());
  add_product(report, "e4m3", cuda::measure_fp8_product());
  add_gap(report, /*overlap=*/false);
  add_gap(report, /*overlap=*/true);
}

GpuRates::GpuRates(BenchReport& report)
    : report_(report),
      read_bytes_per_s_(cuda::measure_read_bandwidth()),
      bf16_flops_per_s_(cuda::measure_bf16_product()) {
  report.note(cat("limits: read ", bandwidth_text(read_bytes_per_s_), ", bf16 product ",
                  product_text(bf16_flops_per_s_)));
}

DeviceRates GpuRates::of(DType weights) {
  DeviceRates rates = {.read_bytes_per_s = read_bytes_per_s_,
                       .product_flops_per_s = bf16_flops_per_s_,
                       .attention_flops_per_s = bf16_flops_per_s_};
  if (weights != DType::kF8G64) return rates;
  if (!knows_fp8_) {
    fp8_flops_per_s_ = cuda::measure_fp8_product();
    knows_fp8_ = true;
    report_.note(cat("limits: e4m3 product ", product_text(fp8_flops_per_s_)));
  }
  rates.product_flops_per_s = fp8_flops_per_s_.value_or(bf16_flops_per_s_);
  return rates;
}

}  // namespace lmdeploy
