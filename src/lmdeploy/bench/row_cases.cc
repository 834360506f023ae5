// Ops on rows: norms, rope, activations, soft cap. All are bandwidth.
#include <algorithm>

#include "lmdeploy/bench/kernel_cases.h"
#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

/// Calls `op` on `tokens` rows at a time of memory that no cache holds. `bytes`: read and written.
template <typename Op>
KernelCall over_rows(const KernelBench& bench, int64_t tokens, int64_t cols, double bytes, Op op) {
  const int64_t copies = std::max<int64_t>(1, bench.cold_bytes() / (tokens * cols * 4));
  const auto x = std::make_shared<Tensor>(filled_tensor({copies * tokens, cols}, 0.5f));
  const auto run = [x, op, tokens, copies, copy = int64_t{0}]() mutable {
    op(x->view().slice_rows(copy * tokens, tokens));
    copy = (copy + 1) % copies;
  };
  return {.run = run, .bytes = bytes};
}

struct NormCase {
  int64_t tokens, hidden;
  bool layer_norm = false;
  int64_t group = 0;
};

KernelCall prepare_norm(KernelBench& bench, const NormCase& c) {
  const auto out = std::make_shared<Tensor>(DType::kF32, Shape{c.tokens, c.hidden}),
             weight = std::make_shared<Tensor>(filled_tensor({c.group > 0 ? c.group : c.hidden}, 1));
  NormOptions options = {.group = c.group};
  if (c.layer_norm) options.kind = NormKind::kLayer, options.bias = *weight;
  return over_rows(bench, c.tokens, c.hidden, static_cast<double>(2 * c.tokens * c.hidden * 4),
                   [&kernels = bench.kernels(), out, weight, options](ConstTensorView x) {
                     kernels.norm(*out, x, *weight, options);
                   });
}

void add_norm_cases(KernelCases& cases) {
  const auto add = [&](const NormCase& c) {
    cases.push_back({cat("norm/",
                         c.layer_norm  ? "layer"
                         : c.group > 0 ? "rms_heads"
                                       : "rms",
                         "/", c.hidden, "/tokens:", c.tokens),
                     [=](KernelBench& bench) { return prepare_norm(bench, c); }});
  };
  for (const int64_t tokens : {1, 64, 512})
    for (const int64_t hidden : {576, 2048})
      for (const bool layer_norm : {false, true})
        add({.tokens = tokens, .hidden = hidden, .layer_norm = layer_norm});
  for (const int64_t tokens : {1, 512}) add({.tokens = tokens, .hidden = 4096, .group = 128});
}

KernelCall prepare_rope(KernelBench& bench, int64_t tokens, int64_t heads, RopeOptions options) {
  const auto table = std::make_shared<Tensor>(filled_tensor({tokens, options.head_dim}, 0.7f));
  return over_rows(
      bench, tokens, heads * options.head_dim, static_cast<double>(2 * tokens * heads * options.head_dim * 4),
      [&kernels = bench.kernels(), table, options](TensorView x) { kernels.rope(x, *table, options); });
}

void add_rope_cases(KernelCases& cases) {
  for (const int64_t tokens : {1, 64, 512})
    for (const bool interleaved : {false, true})
      cases.push_back({cat("rope/", interleaved ? "interleaved" : "halves", "/32x64/tokens:", tokens),
                       [=](KernelBench& bench) {
                         return prepare_rope(bench, tokens, 32, {.head_dim = 64, .interleaved = interleaved});
                       }});
}

/// Gate and up to their product: 2n columns read, n written.
template <typename Op>
KernelCall prepare_glu(KernelBench& bench, int64_t tokens, int64_t n, Op op) {
  const auto out = std::make_shared<Tensor>(DType::kF32, Shape{tokens, n});
  return over_rows(bench, tokens, 2 * n, static_cast<double>(3 * tokens * n * 4),
                   [&kernels = bench.kernels(), out, op](ConstTensorView x) { op(kernels, *out, x); });
}

void add_glu_cases(KernelCases& cases) {
  const auto add = [&](const char* name, Activation activation, int64_t tokens, int64_t n) {
    cases.push_back({cat("glu/", name, "/", n, "/tokens:", tokens), [=](KernelBench& bench) {
                       return prepare_glu(bench, tokens, n,
                                          [=](const Kernels& kernels, TensorView out, ConstTensorView x) {
                                            kernels.glu(out, x, activation);
                                          });
                     }});
  };
  for (const int64_t tokens : {1, 64, 512})
    for (const int64_t n : {1536, 8192}) add("silu", Activation::kSilu, tokens, n);
  add("gelu", Activation::kGelu, 64, 8192);
  add("gelu_tanh", Activation::kGeluTanh, 64, 8192);
  cases.push_back({"clamped_glu/2880/tokens:64", [](KernelBench& bench) {
                     return prepare_glu(bench, 64, 2880,
                                        [](const Kernels& kernels, TensorView out, ConstTensorView x) {
                                          kernels.clamped_glu(out, x, 7);
                                        });
                   }});
}

}  // namespace

void add_row_cases(KernelCases& cases) {
  add_norm_cases(cases);
  add_rope_cases(cases);
  add_glu_cases(cases);
  cases.push_back({"soft_cap/256000/tokens:1", [](KernelBench& bench) {  // Gemma 2's logits
                     const auto x = std::make_shared<Tensor>(filled_tensor({1, 256000}, 0.5f));
                     return KernelCall{.run = [&kernels = bench.kernels(), x] { kernels.soft_cap(*x, 30); },
                                       .bytes = static_cast<double>(2 * x->bytes())};
                   }});
}

}  // namespace lmdeploy
