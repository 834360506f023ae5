// The ops of mixture-of-experts layers: few tokens stream each chosen expert's weights once, many are
// arithmetic.
#include <algorithm>
#include <numeric>

#include "lmdeploy/bench/kernel_cases.h"
#include "lmdeploy/core/error.h"
#include "lmdeploy/core/random.h"

namespace lmdeploy {
namespace {

constexpr int64_t kExperts = 128, kTopK = 8, kRows = 1536, kCols = 2048;  // gate and up of Qwen3-30B-A3B

/// Random choices of k different experts for each token, sorted.
struct Choice {
  Tensor ids, expert_start, row_tokens, pair_rows;
  int64_t active = 0;  // experts with rows

  Choice(const Kernels& kernels, int64_t tokens, uint64_t seed)
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
    sort(kernels);
    const auto start = expert_start.span<int32_t>();
    for (size_t e = 0; e < kExperts; ++e) active += start[e + 1] > start[e] ? 1 : 0;
  }
  void sort(const Kernels& kernels) const {
    kernels.sort_by_expert(expert_start, row_tokens, pair_rows, ids);
  }
};

KernelCall prepare_linear(KernelBench& bench, DType dtype, int64_t tokens) {
  const Kernels& kernels = bench.kernels();
  std::vector<const PackedWeight*> weights;
  for (const auto& expert : bench.cold_weights(dtype, /*rounded_activations=*/false, kRows, kCols, kExperts))
    weights.push_back(expert.get());
  weights.resize(kExperts);
  const auto choices = std::make_shared<std::vector<Choice>>();
  double active = 0;  // on average
  for (uint64_t seed = 0; seed < 16; ++seed) {
    choices->emplace_back(kernels, tokens, seed);
    active += static_cast<double>(choices->back().active) / 16;
  }
  const auto x = std::make_shared<Tensor>(filled_tensor({tokens * kTopK, kCols}, 0.5f)),
             out = std::make_shared<Tensor>(DType::kF32, Shape{tokens * kTopK, kRows});
  const auto run = [&kernels, weights, choices, x, out, next = size_t{0}]() mutable {
    kernels.expert_linear(*out, *x, weights, (*choices)[next++ % choices->size()].expert_start);
  };
  return {.run = run,
          .bytes = active * static_cast<double>(weights[0]->bytes()),
          .flops = 2.0 * static_cast<double>(tokens * kTopK * kRows * kCols)};
}

KernelCall prepare_route(KernelBench& bench, int64_t tokens, int64_t experts) {
  const auto logits = std::make_shared<Tensor>(DType::kF32, Shape{tokens, experts}),
             weights = std::make_shared<Tensor>(DType::kF32, Shape{tokens, kTopK}),
             ids = std::make_shared<Tensor>(DType::kI32, Shape{tokens, kTopK});
  Rng rng(1);
  for (float& value : logits->span<float>()) value = static_cast<float>(8 * rng.uniform() - 4);
  RouteOptions options = {.renormalize = true};
  if (experts == 256)  // DeepSeek-V3
    options = {.sigmoid = true, .renormalize = true, .num_groups = 8, .groups_kept = 4, .group_best = 2};
  const auto run = [&kernels = bench.kernels(), logits, weights, ids, options] {
    kernels.route(*ids, *weights, *logits, std::nullopt, options);
  };
  return {.run = run, .bytes = static_cast<double>(logits->bytes())};
}

KernelCall prepare_sort(KernelBench& bench, int64_t tokens) {
  const auto choice = std::make_shared<Choice>(bench.kernels(), tokens, 1);
  return {.run = [&kernels = bench.kernels(), choice] { choice->sort(kernels); },
          .bytes = static_cast<double>(3 * tokens * kTopK * 4)};
}

KernelCall prepare_combine(KernelBench& bench, int64_t tokens) {
  const auto choice = std::make_shared<Choice>(bench.kernels(), tokens, 1);
  const auto x = std::make_shared<Tensor>(filled_tensor({tokens * kTopK, kCols}, 0.5f)),
             weights = std::make_shared<Tensor>(filled_tensor({tokens, kTopK}, 0.125f)),
             out = std::make_shared<Tensor>(DType::kF32, Shape{tokens, kCols});
  const auto run = [&kernels = bench.kernels(), choice, x, weights, out] {
    kernels.combine_experts(*out, *x, *weights, choice->pair_rows);
  };
  return {.run = run, .bytes = static_cast<double>(tokens * (kTopK + 1) * kCols * 4)};
}

}  // namespace

void add_expert_cases(KernelCases& cases) {
  for (const DType dtype : {DType::kQ4_1, DType::kQ8_0, DType::kBF16})
    for (const int64_t tokens : {1, 2, 8, 64, 512})
      cases.push_back({cat("expert_linear/", dtype, "/tokens:", tokens),
                       [=](KernelBench& bench) { return prepare_linear(bench, dtype, tokens); }});
  for (const int64_t tokens : {1, 512}) {
    for (const int64_t experts : {kExperts, int64_t{256}})
      cases.push_back({cat("route/", experts, "/tokens:", tokens),
                       [=](KernelBench& bench) { return prepare_route(bench, tokens, experts); }});
    cases.push_back({cat("sort_by_expert/tokens:", tokens),
                     [=](KernelBench& bench) { return prepare_sort(bench, tokens); }});
    cases.push_back({cat("combine_experts/tokens:", tokens),
                     [=](KernelBench& bench) { return prepare_combine(bench, tokens); }});
  }
}

}  // namespace lmdeploy
