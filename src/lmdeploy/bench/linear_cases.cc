// linear(): bandwidth for few tokens, arithmetic for many, with cold weights.
#include "lmdeploy/bench/kernel_cases.h"
#include "lmdeploy/bench/machine_probe.h"
#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

struct LinearShape {
  int64_t rows;
  int64_t cols;
};

KernelCall prepare(KernelBench& bench, DType dtype, bool rounded, LinearShape shape, int64_t tokens) {
  const PackedCopies& copies = bench.cold_weights(dtype, rounded, shape.rows, shape.cols);
  const auto x = std::make_shared<Tensor>(filled_tensor({tokens, shape.cols}, 0.5f)),
             out = std::make_shared<Tensor>(DType::kF32, Shape{tokens, shape.rows});
  const auto run = [&kernels = bench.kernels(rounded), &copies, x, out, next = size_t{0}]() mutable {
    kernels.linear(*out, *x, *copies[next]);
    next = (next + 1) % copies.size();
  };
  return {.run = run,
          .bytes = static_cast<double>(copies[0]->bytes()),
          .flops = 2.0 * static_cast<double>(tokens * shape.rows * shape.cols),
          .numbers = numbers_of(dtype, rounded)};
}

}  // namespace

void add_linear_cases(KernelCases& cases) {
  constexpr LinearShape kShapes[] = {
      {1536, 576}, {576, 1536}, {49152, 576}, {2048, 8192}};  // SmolLM2, Llama 1B
  for (const DType dtype :
       {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0, DType::kQ4_K, DType::kQ5_K,
        DType::kQ6_K, DType::kU4G128, DType::kI8G64, DType::kF8G64, DType::kBF16, DType::kF16, DType::kF32}) {
    for (const LinearShape& shape : kShapes) {
      if (shape.cols % block_size(dtype) != 0) continue;
      for (const bool rounded : {false, true}) {
        const DotChain::Numbers numbers = numbers_of(dtype, rounded);
        if (rounded && numbers == DotChain::Numbers::kF32) continue;
        for (const int64_t tokens : {1, 2, 4, 8, 16, 64, 512}) {
          cases.push_back(
              {cat("linear/", dtype, '/', to_string(numbers), '/', shape.rows, "x", shape.cols,
                   "/tokens:", tokens),
               [=](KernelBench& bench) { return prepare(bench, dtype, rounded, shape, tokens); }});
        }
      }
    }
  }
}

}  // namespace lmdeploy
