// norm() and glu(): bandwidth-bound rows.
#include "lmdeploy/kernels/machine_probe.h"

namespace lmdeploy {
namespace {

// Rows in turn over kColdBytes of memory where `tokens` alone would stay in the cache.
template <typename Call>
void run_rows(benchmark::State& state, int64_t tokens, int64_t cols, double bytes, const Call& call) {
  const int64_t copies = std::max<int64_t>(1, kColdBytes / (tokens * cols * 4));
  const Tensor x(DType::kF32, {copies * tokens, cols});
  for (float& value : x.span<float>()) value = 0.5f;
  int64_t copy = 0;
  for (auto _ : state) {
    call(x.view().slice_rows(copy * tokens, tokens));
    copy = (copy + 1) % copies;
  }
  report_rates(state, bytes, 0);
}

void norm_rows(benchmark::State& state) {
  const int64_t tokens = state.range(0), hidden = state.range(1);
  const Tensor out(DType::kF32, {tokens, hidden}), weight(DType::kF32, {hidden});
  for (float& value : weight.span<float>()) value = 1;
  run_rows(state, tokens, hidden, static_cast<double>(2 * tokens * hidden * 4),
           [&](ConstTensorView x) { bench_kernels().norm(out, x, weight, {}); });
}
BENCHMARK(norm_rows)->ArgsProduct({{1, 64, 512}, {576, 2048}})->UseRealTime();

void silu_mul_rows(benchmark::State& state) {
  const int64_t tokens = state.range(0), n = state.range(1);
  const Tensor out(DType::kF32, {tokens, n});
  run_rows(state, tokens, 2 * n, static_cast<double>(3 * tokens * n * 4),
           [&](ConstTensorView x) { bench_kernels().glu(out, x, Activation::kSilu); });
}
BENCHMARK(silu_mul_rows)->ArgsProduct({{1, 64, 512}, {1536, 8192}})->UseRealTime();

}  // namespace
}  // namespace lmdeploy
