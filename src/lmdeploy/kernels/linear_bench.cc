// linear(): bandwidth for few tokens, arithmetic for many, with cold weights.
#include <cstring>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/random.h"
#include "lmdeploy/kernels/machine_probe.h"

namespace lmdeploy {
namespace {

struct LinearShape {
  int64_t rows;
  int64_t cols;
};

Tensor random_weight(DType dtype, const LinearShape& shape) {
  Tensor weight(dtype, {shape.rows, shape.cols});
  Rng rng(1);
  if (!is_quantized(dtype)) {  // random bits would be subnormals, which are slow on some processors
    for (int64_t r = 0; r < shape.rows; ++r)
      for (int64_t k = 0; k < shape.cols; ++k) weight.view().set(r, k, rng.uniform() - 0.5);
    return weight;
  }
  // Random bits whose scales are small: exponent bits above 2^-2 are cleared, so that no product overflows.
  for (uint8_t& byte : weight.span<uint8_t>()) byte = static_cast<uint8_t>(rng.bits() & 0xbf);
  if (!is_integer_group(dtype)) return weight;
  const float scale = 0.01f;
  const int32_t zero = 8;
  const auto step = static_cast<size_t>(block_bytes(dtype));
  for (size_t at = 0; at < weight.bytes(); at += step) {
    std::memcpy(&weight.span<uint8_t>()[at], &scale, sizeof(scale));
    std::memcpy(&weight.span<uint8_t>()[at + 4], &zero, sizeof(zero));
  }
  return weight;
}

using Copies = std::vector<std::unique_ptr<PackedWeight>>;

/// Kept until another weight is asked for: a benchmark is entered many times.
const Copies& cold_copies(DType dtype, bool int8, const LinearShape& shape) {
  static std::string kept;
  static Copies copies;
  const std::string wanted = cat(dtype, int8, shape.rows, "x", shape.cols);
  if (kept == wanted) return copies;
  copies.clear();
  const Tensor weight = random_weight(dtype, shape);
  const ConstTensorView parts[] = {weight};
  const int64_t num_copies = std::max<int64_t>(1, kColdBytes / static_cast<int64_t>(weight.bytes()));
  for (int64_t i = 0; i < num_copies; ++i) copies.push_back(bench_kernels(int8).pack_weight(parts));
  kept = wanted;
  return copies;
}

void run_linear(benchmark::State& state, DType dtype, bool int8, LinearShape shape, int64_t tokens) {
  const Kernels& kernels = bench_kernels(int8);
  const Copies& copies = cold_copies(dtype, int8, shape);
  const Tensor x(DType::kF32, {tokens, shape.cols}), out(DType::kF32, {tokens, shape.rows});
  for (float& value : x.span<float>()) value = 0.5f;
  size_t next = 0;
  for (auto _ : state) {
    kernels.linear(out, x, *copies[next]);
    next = (next + 1) % copies.size();
  }
  report_rates(state, static_cast<double>(copies[0]->bytes()),
               2.0 * static_cast<double>(tokens * shape.rows * shape.cols), int8);
}

void register_all() {
  constexpr LinearShape kShapes[] = {
      {1536, 576}, {576, 1536}, {49152, 576}, {2048, 8192}};  // SmolLM2, Llama 1B
  for (const DType dtype :
       {DType::kQ4_1, DType::kQ4_0, DType::kQ8_0, DType::kQ4_K, DType::kQ6_K, DType::kQ5_1, DType::kU4G128,
        DType::kI8G64, DType::kBF16, DType::kF16, DType::kF32}) {
    for (const LinearShape& shape : kShapes) {
      if (shape.cols % block_size(dtype) != 0) continue;
      for (const bool int8 : {false, true}) {
        if (int8 && !is_quantized(dtype)) continue;
        for (const int64_t tokens : {1, 2, 4, 8, 16, 64, 512}) {
          const std::string name = cat("linear/", dtype, int8 ? "/int8/" : "/f32/", shape.rows, "x",
                                       shape.cols, "/tokens:", tokens);
          benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
            run_linear(state, dtype, int8, shape, tokens);
          })->UseRealTime();
        }
      }
    }
  }
}
const bool registered = (register_all(), true);

}  // namespace
}  // namespace lmdeploy
