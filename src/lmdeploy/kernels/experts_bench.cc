// The ops of mixture-of-experts layers: few tokens stream each chosen expert's weights once, many are
// arithmetic.
#include <map>
#include <numeric>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/random.h"
#include "lmdeploy/kernels/machine_probe.h"

namespace lmdeploy {
namespace {

constexpr int64_t kExperts = 128, kTopK = 8, kRows = 1536, kCols = 2048;  // gate and up of Qwen3-30B-A3B

using Experts = std::vector<std::unique_ptr<PackedWeight>>;

/// More memory than any cache holds; packed once for all benchmarks of the kind.
const Experts& experts_of(DType dtype) {
  static std::map<DType, Experts> packed;
  Experts& experts = packed[dtype];
  if (!experts.empty()) return experts;
  Tensor weight(dtype, {kRows, kCols});
  Rng rng(1);
  // Random bits whose scales are small: exponent bits above 2^-2 are cleared, so that no product overflows.
  for (uint8_t& byte : weight.span<uint8_t>()) byte = static_cast<uint8_t>(rng.bits() & 0xbf);
  const ConstTensorView parts[] = {weight};
  for (int64_t e = 0; e < kExperts; ++e) experts.push_back(bench_kernels().pack_weight(parts));
  return experts;
}

/// Random choices of k different experts for each token, sorted.
struct Choice {
  Tensor ids, expert_start, row_tokens, pair_rows;
  int64_t active = 0;  // experts with rows

  Choice(int64_t tokens, uint64_t seed)
      : ids(DType::kI32, {tokens, kTopK}),
        expert_start(DType::kI32, {kExperts + 1}),
        row_tokens(DType::kI32, {tokens * kTopK}),
        pair_rows(DType::kI32, {tokens, kTopK}) {
    Rng rng(seed);
    std::vector<int32_t> order(kExperts);
    std::iota(order.begin(), order.end(), 0);
    for (int64_t t = 0; t < tokens; ++t) {
      for (size_t j = 0; j < kTopK; ++j) std::swap(order[j], order[j + rng.below(kExperts - j)]);
      std::copy_n(order.begin(), kTopK, ids.view().row<int32_t>(t));
    }
    sort();
    const auto start = expert_start.span<int32_t>();
    for (size_t e = 0; e < kExperts; ++e) active += start[e + 1] > start[e] ? 1 : 0;
  }
  void sort() const { bench_kernels().sort_by_expert(expert_start, row_tokens, pair_rows, ids); }
};

void run_expert_linear(benchmark::State& state, DType dtype, int64_t tokens) {
  const Experts& experts = experts_of(dtype);
  std::vector<const PackedWeight*> weights;
  for (const auto& expert : experts) weights.push_back(expert.get());
  std::vector<Choice> choices;
  for (uint64_t seed = 0; seed < 16; ++seed) choices.emplace_back(tokens, seed);
  const Tensor x(DType::kF32, {tokens * kTopK, kCols}), out(DType::kF32, {tokens * kTopK, kRows});
  for (float& value : x.span<float>()) value = 0.5f;
  size_t next = 0;
  double active = 0;
  for (auto _ : state) {
    const Choice& choice = choices[next++ % choices.size()];
    bench_kernels().expert_linear(out, x, weights, choice.expert_start);
    active += static_cast<double>(choice.active);
  }
  const double mean = active / static_cast<double>(state.iterations());
  report_rates(state, mean * static_cast<double>(experts[0]->bytes()),
               2.0 * static_cast<double>(tokens * kTopK * kRows * kCols));
}

void route(benchmark::State& state) {
  const int64_t tokens = state.range(0), experts = state.range(1);
  const Tensor logits(DType::kF32, {tokens, experts}), weights(DType::kF32, {tokens, kTopK}),
      ids(DType::kI32, {tokens, kTopK});
  Rng rng(1);
  for (float& value : logits.span<float>()) value = static_cast<float>(8 * rng.uniform() - 4);
  RouteOptions options = {.renormalize = true};
  if (experts == 256)  // DeepSeek-V3
    options = {.sigmoid = true, .renormalize = true, .num_groups = 8, .groups_kept = 4, .group_best = 2};
  for (auto _ : state) bench_kernels().route(ids, weights, logits, std::nullopt, options);
  report_rates(state, static_cast<double>(tokens * experts * 4), 0);
}
BENCHMARK(route)->ArgsProduct({{1, 512}, {kExperts, 256}})->UseRealTime();

void sort_by_expert(benchmark::State& state) {
  const Choice choice(state.range(0), 1);
  for (auto _ : state) choice.sort();
  report_rates(state, static_cast<double>(3 * state.range(0) * kTopK * 4), 0);
}
BENCHMARK(sort_by_expert)->Arg(1)->Arg(512)->UseRealTime();

void combine_experts(benchmark::State& state) {
  const int64_t tokens = state.range(0);
  const Choice choice(tokens, 1);
  const Tensor x(DType::kF32, {tokens * kTopK, kCols}), weights(DType::kF32, {tokens, kTopK}),
      out(DType::kF32, {tokens, kCols});
  for (float& value : x.span<float>()) value = 0.5f;
  for (float& value : weights.span<float>()) value = 0.125f;
  for (auto _ : state) bench_kernels().combine_experts(out, x, weights, choice.pair_rows);
  report_rates(state, static_cast<double>(tokens * (kTopK + 1) * kCols * 4), 0);
}
BENCHMARK(combine_experts)->Arg(1)->Arg(512)->UseRealTime();

void register_all() {
  for (const DType dtype : {DType::kQ4_1, DType::kQ8_0, DType::kBF16}) {
    for (const int64_t tokens : {1, 2, 8, 64, 512}) {
      const std::string name = cat("expert_linear/", dtype, "/tokens:", tokens);
      benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
        run_expert_linear(state, dtype, tokens);
      })->UseRealTime();
    }
  }
}
const bool registered = (register_all(), true);

}  // namespace
}  // namespace lmdeploy
