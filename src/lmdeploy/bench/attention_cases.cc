// attention(): decode reads the cache once, prefill is arithmetic.
#include <algorithm>
#include <cstring>

#include "lmdeploy/bench/kernel_cases.h"
#include "lmdeploy/core/error.h"
#include "lmdeploy/models/step_work.h"

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

/// One step's attention, over as many copies of the cache as are cold.
class AttentionStep {
 public:
  AttentionStep(const KernelBench& bench, DType dtype, const AttentionShape& shape, const AttentionLoad& load)
      : kernels_(bench.kernels()),
        load_(load),
        cache_{.layout = {.dtype = dtype,
                          .num_layers = 1,
                          .num_kv_heads = shape.num_kv_heads,
                          .head_dim = shape.head_dim,
                          .latent_dim = shape.latent_dim}},
        q_(filled_tensor({tokens(), shape.num_heads * shape.head_dim}, 0.01f)),
        out_(filled_tensor({tokens(), shape.num_heads * cache_.layout.value_dim()}, 0.01f)),
        heads_(filled_tensor({shape.num_heads}, 0.01f)),
        query_start_(indices(load.num_seqs + 1, 0, load.rows)),
        kv_len_(indices(load.num_seqs, load.kv_len, 0)),
        options_{.num_heads = shape.num_heads, .window = shape.window, .soft_cap = shape.soft_cap} {
    if (shape.sinks) options_.sinks = heads_;
    if (shape.alibi) options_.alibi_slopes = heads_;
    const int64_t blocks_each = (load.kv_len + cache_.layout.block_len - 1) / cache_.layout.block_len;
    const int64_t blocks = load.num_seqs * blocks_each;
    copies_ = std::max<int64_t>(1, bench.cold_bytes() / (blocks * cache_.layout.block_bytes()));
    cache_.num_blocks = blocks * copies_;
    memory_ = Tensor(DType::kU8, {cache_.num_blocks * cache_.layout.block_bytes()});
    cache_.data = memory_.view().data();
    std::memset(cache_.data, 0x3c, memory_.bytes());  // about 1 in every float type; codes and scales too
    tables_ = Tensor(DType::kI32, {copies_ * load.num_seqs, blocks_each});
    for (int64_t i = 0; i < cache_.num_blocks; ++i)
      tables_.span<int32_t>()[static_cast<size_t>(i)] = static_cast<int32_t>(i);
  }

  void run() {
    const ConstTensorView table = tables_.view().slice_rows(copy_ * load_.num_seqs, load_.num_seqs);
    kernels_.attention(out_, q_, cache_, {query_start_, kv_len_, table}, options_);
    copy_ = (copy_ + 1) % copies_;
  }
  double bytes() const {
    return static_cast<double>(load_.num_seqs * seen().distinct * cache_.layout.block_bytes() /
                               cache_.layout.block_len);
  }
  double flops() const {
    return 2.0 * static_cast<double>(load_.num_seqs * seen().pairs * options_.num_heads) *
           static_cast<double>(cache_.layout.head_dim + cache_.layout.value_dim());
  }

 private:
  int64_t tokens() const { return load_.num_seqs * load_.rows; }
  SeenKeys seen() const { return seen_keys(load_.rows, load_.kv_len, options_.window); }

  const Kernels& kernels_;
  const AttentionLoad load_;
  KvCacheView cache_;
  const Tensor q_, out_, heads_, query_start_, kv_len_;
  AttentionOptions options_;
  int64_t copies_ = 1, copy_ = 0;
  Tensor memory_, tables_;
};

KernelCall prepare(KernelBench& bench, DType dtype, const AttentionShape& shape, const AttentionLoad& load) {
  const auto step = std::make_shared<AttentionStep>(bench, dtype, shape, load);
  return {.run = [step] { step->run(); }, .bytes = step->bytes(), .flops = step->flops()};
}

}  // namespace

void add_attention_cases(KernelCases& cases) {
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
        cases.push_back({cat("attention/", dtype, "/", shape.name, "/", load.name),
                         [=](KernelBench& bench) { return prepare(bench, dtype, shape, load); }});
      }
    }
  }
}

}  // namespace lmdeploy
