// norm(), glu() and soft_cap(): bandwidth-bound rows.
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

// range(2): LayerNorm with bias; range(3): elements of a group, 0 for whole rows.
void norm_rows(benchmark::State& state) {
  const int64_t tokens = state.range(0), hidden = state.range(1), group = state.range(3);
  const int64_t size = group > 0 ? group : hidden;
  const Tensor out(DType::kF32, {tokens, hidden}), weight(DType::kF32, {size});
  for (float& value : weight.span<float>()) value = 1;
  NormOptions options = {.group = group};
  if (state.range(2) != 0) options.kind = NormKind::kLayer, options.bias = weight;
  run_rows(state, tokens, hidden, static_cast<double>(2 * tokens * hidden * 4),
           [&](ConstTensorView x) { bench_kernels().norm(out, x, weight, options); });
}
BENCHMARK(norm_rows)
    ->ArgsProduct({{1, 64, 512}, {576, 2048}, {0, 1}, {0}})
    ->ArgsProduct({{1, 512}, {4096}, {0}, {128}})
    ->UseRealTime();

void glu_rows(benchmark::State& state, Activation activation) {
  const int64_t tokens = state.range(0), n = state.range(1);
  const Tensor out(DType::kF32, {tokens, n});
  run_rows(state, tokens, 2 * n, static_cast<double>(3 * tokens * n * 4),
           [&](ConstTensorView x) { bench_kernels().glu(out, x, activation); });
}
BENCHMARK_CAPTURE(glu_rows, silu, Activation::kSilu)
    ->ArgsProduct({{1, 64, 512}, {1536, 8192}})
    ->UseRealTime();
BENCHMARK_CAPTURE(glu_rows, gelu, Activation::kGelu)->ArgsProduct({{64}, {8192}})->UseRealTime();
BENCHMARK_CAPTURE(glu_rows, gelu_tanh, Activation::kGeluTanh)->ArgsProduct({{64}, {8192}})->UseRealTime();

void clamped_glu_rows(benchmark::State& state) {
  const int64_t tokens = state.range(0), n = state.range(1);
  const Tensor out(DType::kF32, {tokens, n});
  run_rows(state, tokens, 2 * n, static_cast<double>(3 * tokens * n * 4),
           [&](ConstTensorView x) { bench_kernels().clamped_glu(out, x, 7); });
}
BENCHMARK(clamped_glu_rows)->ArgsProduct({{64}, {2880}})->UseRealTime();

void soft_cap_rows(benchmark::State& state) {
  const Tensor x(DType::kF32, {state.range(0), state.range(1)});
  for (float& value : x.span<float>()) value = 0.5f;
  for (auto _ : state) bench_kernels().soft_cap(x, 30);
  report_rates(state, static_cast<double>(2 * x.bytes()), 0);
}
BENCHMARK(soft_cap_rows)->Args({1, 256000})->UseRealTime();  // Gemma 2's logits

}  // namespace
}  // namespace lmdeploy
