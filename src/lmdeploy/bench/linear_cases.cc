// linear(): bandwidth for few tokens, arithmetic for many, with cold weights.
#include "lmdeploy/bench/kernel_cases.h"
#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

struct LinearShape {
  int64_t rows;
  int64_t cols;
};

KernelCall prepare(KernelBench& bench, DType dtype, bool int8, LinearShape shape, int64_t tokens) {
  const PackedCopies& copies = bench.cold_weights(dtype, int8, shape.rows, shape.cols);
  const auto x = std::make_shared<Tensor>(filled_tensor({tokens, shape.cols}, 0.5f)),
             out = std::make_shared<Tensor>(DType::kF32, Shape{tokens, shape.rows});
  const auto run = [&kernels = bench.kernels(int8), &copies, x, out, next = size_t{0}]() mutable {
    kernels.linear(*out, *x, *copies[next]);
    next = (next + 1) % copies.size();
  };
  return {.run = run,
          .bytes = static_cast<double>(copies[0]->bytes()),
          .flops = 2.0 * static_cast<double>(tokens * shape.rows * shape.cols),
          .in_int8 = int8};
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
      for (const bool int8 : {false, true}) {
        if (int8 && (!is_quantized(dtype) || dtype == DType::kF8G64)) continue;
        for (const int64_t tokens : {1, 2, 4, 8, 16, 64, 512}) {
          cases.push_back({cat("linear/", dtype, int8 ? "/int8/" : "/f32/", shape.rows, "x", shape.cols,
                               "/tokens:", tokens),
                           [=](KernelBench& bench) { return prepare(bench, dtype, int8, shape, tokens); }});
        }
      }
    }
  }
}

}  // namespace lmdeploy
