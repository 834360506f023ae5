// attention(): decode reads the cache once, prefill is arithmetic.
#include "lmdeploy/core/error.h"
#include "lmdeploy/kernels/machine_probe.h"

namespace lmdeploy {
namespace {

struct AttentionShape {
  const char* name;
  int64_t num_heads;
  int64_t num_kv_heads;
  int64_t head_dim;
};

// `num_seqs` sequences of `kv_len` tokens, of which the last `rows` are in the step.
struct AttentionLoad {
  const char* name;
  int64_t num_seqs;
  int64_t kv_len;
  int64_t rows;
};

Tensor indices(int64_t count, int64_t first, int64_t step) {
  Tensor t(DType::kI32, {count});
  for (int64_t i = 0; i < count; ++i)
    t.span<int32_t>()[static_cast<size_t>(i)] = static_cast<int32_t>(first + i * step);
  return t;
}

void run_attention(benchmark::State& state, DType dtype, const AttentionShape& shape,
                   const AttentionLoad& load) {
  const KvLayout layout = {
      .dtype = dtype, .num_layers = 1, .num_kv_heads = shape.num_kv_heads, .head_dim = shape.head_dim};
  const int64_t blocks_each = (load.kv_len + layout.block_len - 1) / layout.block_len;
  const int64_t step_bytes = load.num_seqs * blocks_each * layout.block_bytes();
  const int64_t copies = std::max<int64_t>(1, kColdBytes / step_bytes);
  const int64_t num_blocks = load.num_seqs * blocks_each * copies;
  const Tensor memory(DType::kU8, {num_blocks * layout.block_bytes()});
  std::memset(memory.view().data(), 0x3c, memory.bytes());  // about 1 in every float type
  const KvCacheView cache = {.layout = layout, .data = memory.view().data(), .num_blocks = num_blocks};
  const Tensor tables(DType::kI32, {copies * load.num_seqs, blocks_each});
  for (int64_t i = 0; i < num_blocks; ++i)
    tables.span<int32_t>()[static_cast<size_t>(i)] = static_cast<int32_t>(i);
  const int64_t tokens = load.num_seqs * load.rows;
  const Tensor q(DType::kF32, {tokens, shape.num_heads * shape.head_dim}), out(DType::kF32, q.shape());
  for (float& value : q.span<float>()) value = 0.01f;
  const Tensor query_start = indices(load.num_seqs + 1, 0, load.rows),
               kv_len = indices(load.num_seqs, load.kv_len, 0);
  int64_t copy = 0;
  for (auto _ : state) {
    const ConstTensorView table = tables.view().slice_rows(copy * load.num_seqs, load.num_seqs);
    bench_kernels().attention(out, q, cache, {query_start, kv_len, table}, {.num_heads = shape.num_heads});
    copy = (copy + 1) % copies;
  }
  // Row r sees kv_len - rows + r + 1 keys; two products of head_dim multiply-adds each.
  const double seen = static_cast<double>(load.rows) *
                      (static_cast<double>(load.kv_len) - static_cast<double>(load.rows - 1) / 2);
  report_rates(state, static_cast<double>(step_bytes),
               4.0 * seen * static_cast<double>(load.num_seqs * shape.num_heads * shape.head_dim));
}

void register_all() {
  constexpr AttentionShape kShapes[] = {
      {"smollm2", 9, 3, 64}, {"llama1b", 32, 8, 64}, {"llama8b", 32, 8, 128}};
  constexpr AttentionLoad kLoads[] = {{"decode_1x256", 1, 256, 1},
                                      {"decode_1x4096", 1, 4096, 1},
                                      {"decode_16x512", 16, 512, 1},
                                      {"prefill_512", 1, 512, 512},
                                      {"chunk_128_at_2048", 1, 2048, 128}};
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const AttentionShape& shape : kShapes) {
      for (const AttentionLoad& load : kLoads) {
        const std::string name = cat("attention/", dtype, "/", shape.name, "/", load.name);
        benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
          run_attention(state, dtype, shape, load);
        })->UseRealTime();
      }
    }
  }
}
const bool registered = (register_all(), true);

}  // namespace
}  // namespace lmdeploy
