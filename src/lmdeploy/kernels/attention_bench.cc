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
  int64_t latent_dim = 0;
  int64_t window = 0;
  float soft_cap = 0;
  bool sinks = false;
  bool alibi = false;
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
  const KvLayout layout = {.dtype = dtype,
                           .num_layers = 1,
                           .num_kv_heads = shape.num_kv_heads,
                           .head_dim = shape.head_dim,
                           .latent_dim = shape.latent_dim};
  const int64_t blocks_each = (load.kv_len + layout.block_len - 1) / layout.block_len;
  const int64_t step_bytes = load.num_seqs * blocks_each * layout.block_bytes();
  const int64_t copies = std::max<int64_t>(1, kColdBytes / step_bytes);
  const int64_t num_blocks = load.num_seqs * blocks_each * copies;
  const Tensor memory(DType::kU8, {num_blocks * layout.block_bytes()});
  std::memset(memory.view().data(), 0x3c,
              memory.bytes());  // about 1 in every float type; codes and scales too
  const KvCacheView cache = {.layout = layout, .data = memory.view().data(), .num_blocks = num_blocks};
  const Tensor tables(DType::kI32, {copies * load.num_seqs, blocks_each});
  for (int64_t i = 0; i < num_blocks; ++i)
    tables.span<int32_t>()[static_cast<size_t>(i)] = static_cast<int32_t>(i);
  const int64_t tokens = load.num_seqs * load.rows;
  const Tensor q(DType::kF32, {tokens, shape.num_heads * shape.head_dim}),
      out(DType::kF32, {tokens, shape.num_heads * layout.value_dim()}), heads(DType::kF32, {shape.num_heads});
  for (float& value : heads.span<float>()) value = 0.01f;
  AttentionOptions options = {
      .num_heads = shape.num_heads, .window = shape.window, .soft_cap = shape.soft_cap};
  if (shape.sinks) options.sinks = heads;
  if (shape.alibi) options.alibi_slopes = heads;
  for (float& value : q.span<float>()) value = 0.01f;
  const Tensor query_start = indices(load.num_seqs + 1, 0, load.rows),
               kv_len = indices(load.num_seqs, load.kv_len, 0);
  int64_t copy = 0;
  for (auto _ : state) {
    const ConstTensorView table = tables.view().slice_rows(copy * load.num_seqs, load.num_seqs);
    bench_kernels().attention(out, q, cache, {query_start, kv_len, table}, options);
    copy = (copy + 1) % copies;
  }
  // Row r sees the last `window` of kv_len - rows + r + 1 keys; two products of multiply-adds each.
  const int64_t window = shape.window > 0 ? shape.window : load.kv_len;
  int64_t seen = 0;
  for (int64_t r = 0; r < load.rows; ++r) seen += std::min(window, load.kv_len - load.rows + r + 1);
  const int64_t read = std::min(load.kv_len, window + load.rows - 1);  // keys of a sequence
  report_rates(state, static_cast<double>(load.num_seqs * read * layout.block_bytes() / layout.block_len),
               2.0 * static_cast<double>(seen * load.num_seqs * shape.num_heads) *
                   static_cast<double>(shape.head_dim + layout.value_dim()));
}

void register_all() {
  constexpr AttentionShape kShapes[] = {
      {"smollm2", 9, 3, 64},
      {"llama1b", 32, 8, 64},
      {"llama8b", 32, 8, 128},
      {.name = "gemma2_9b", .num_heads = 16, .num_kv_heads = 8, .head_dim = 256, .soft_cap = 50},
      {.name = "gpt_oss_sliding",
       .num_heads = 64,
       .num_kv_heads = 8,
       .head_dim = 64,
       .window = 128,
       .sinks = true},
      {.name = "baichuan13b", .num_heads = 40, .num_kv_heads = 40, .head_dim = 128, .alibi = true},
      {.name = "deepseek_v2_lite", .num_heads = 16, .num_kv_heads = 1, .head_dim = 576, .latent_dim = 512}};
  constexpr AttentionLoad kLoads[] = {{"decode_1x512", 1, 512, 1},   {"decode_1x2048", 1, 2048, 1},
                                      {"decode_1x8192", 1, 8192, 1}, {"decode_8x512", 8, 512, 1},
                                      {"decode_8x2048", 8, 2048, 1}, {"decode_8x8192", 8, 8192, 1},
                                      {"prefill_512", 1, 512, 512},  {"chunk_128_at_2048", 1, 2048, 128}};
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kU8, DType::kU4}) {
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
