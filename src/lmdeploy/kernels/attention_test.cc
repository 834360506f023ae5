// attention against the reference.
#include <cfenv>
#include <numeric>

#include "lmdeploy/kernels/testing.h"

namespace lmdeploy {
namespace {

struct Sequence {
  int64_t kv_len;
  int64_t rows;  // of this step
};

enum class Alibi { kNone, kF32, kBf16 };

struct AttentionCase {
  std::string name;
  std::vector<Sequence> sequences;
  int64_t num_heads = 2;
  int64_t num_kv_heads = 1;
  int64_t head_dim = 16;
  int64_t block_len = 16;
  int64_t padding = 0;  // between rows of q and out
  int64_t latent_dim = 0;
  int64_t window = 0;
  float soft_cap = 0;
  bool sinks = false;
  Alibi alibi = Alibi::kNone;
  uint64_t seed = 1;

  int64_t value_dim() const { return latent_dim > 0 ? latent_dim : head_dim; }
};

int64_t blocks_for(int64_t tokens, int64_t block_len) { return (tokens + block_len - 1) / block_len; }

// A cache in which each sequence's blocks are scattered, all memory outside its tokens is NaN, and K and V
// were written by the reference.
class Cache {
 public:
  Cache(const AttentionCase& c, DType dtype) : c_(c) {
    view_.layout = {.dtype = dtype,
                    .num_layers = 2,
                    .num_kv_heads = c.num_kv_heads,
                    .head_dim = c.head_dim,
                    .block_len = c.block_len,
                    .latent_dim = c.latent_dim};
    int64_t most = 1;
    for (const Sequence& s : c.sequences) {
      view_.num_blocks += blocks_for(s.kv_len, c.block_len);
      most = std::max(most, blocks_for(s.kv_len, c.block_len));
    }
    memory_ = Tensor(DType::kU8, {std::max<int64_t>(1, view_.num_blocks) * view_.layout.block_bytes()});
    std::memset(memory_.view().data(), 0xff, memory_.bytes());  // NaN in every float type
    view_.data = memory_.view().data();
    table_ = Tensor(DType::kI32, {static_cast<int64_t>(c.sequences.size()), most + 1});
    deal_blocks();
  }

  const KvCacheView& view() const { return view_; }
  ConstTensorView table() const { return table_; }
  int64_t slot(int64_t sequence, int64_t position) const {
    const int64_t block = table_.view().row<int32_t>(sequence)[position / c_.block_len];
    return block * c_.block_len + position % c_.block_len;
  }

 private:
  void deal_blocks() {
    std::vector<int32_t> order(static_cast<size_t>(view_.num_blocks));
    std::iota(order.begin(), order.end(), 0);
    Rng rng(c_.seed + 100);
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
    size_t next = 0;
    for (size_t s = 0; s < c_.sequences.size(); ++s) {
      int32_t* row = table_.view().row<int32_t>(static_cast<int64_t>(s));
      std::fill(row, row + table_.dim(1), -1);  // entries past the sequence are not looked at
      for (int64_t b = 0; b < blocks_for(c_.sequences[s].kv_len, c_.block_len); ++b) row[b] = order[next++];
    }
  }

  AttentionCase c_;
  KvCacheView view_;
  Tensor memory_;
  Tensor table_;
};

// Queries, keys and values of all tokens of all sequences, keys and values in the cache.
struct Problem {
  AttentionCase c;
  DType activation;
  Cache cache;
  std::vector<TestTensor> q;  // one per sequence: the rows of all its kv_len tokens
  Tensor sinks, slopes;       // [num_heads]

  Problem(const AttentionCase& with, DType cache_dtype, DType activation_dtype)
      : c(with),
        activation(activation_dtype),
        cache(with, cache_dtype),
        sinks(DType::kF32, {c.num_heads}),
        slopes(DType::kF32, {c.num_heads}) {
    Rng rng(c.seed);
    for (float& sink : sinks.span<float>()) sink = static_cast<float>(random_value(rng, Fill::kOrdinary));
    for (float& slope : slopes.span<float>()) slope = static_cast<float>(std::exp2(-1 - 7 * rng.uniform()));
    for (size_t s = 0; s < c.sequences.size(); ++s) {
      const int64_t tokens = c.sequences[s].kv_len;
      q.push_back(random_tensor(rng, activation, tokens, c.num_heads * c.head_dim));
      const TestTensor k = random_tensor(rng, DType::kF32, tokens, c.num_kv_heads * c.head_dim);
      const TestTensor v = random_tensor(rng, DType::kF32, tokens, c.num_kv_heads * c.head_dim);
      std::vector<int64_t> slots;
      for (int64_t t = 0; t < tokens; ++t) slots.push_back(cache.slot(static_cast<int64_t>(s), t));
      ref_kernels().kv_write(cache.view(), 1, k, v, index_tensor(DType::kI64, slots));
    }
  }

  AttentionOptions options() const {
    AttentionOptions o = {.scale = 1 / std::sqrt(static_cast<float>(c.head_dim)),
                          .layer = 1,
                          .num_heads = c.num_heads,
                          .window = c.window,
                          .soft_cap = c.soft_cap,
                          .alibi_in_bf16 = c.alibi == Alibi::kBf16};
    if (c.sinks) o.sinks = sinks;
    if (c.alibi != Alibi::kNone) o.alibi_slopes = slopes;
    return o;
  }

  // The given sequences as one step, each with its last `rows` of its first `kv_len` tokens. Blocks that have
  // left the window have ids of nothing.
  TestTensor run(const Kernels& kernels, DType out_dtype, const std::vector<size_t>& which,
                 const std::vector<Sequence>& lengths) const {
    std::vector<int64_t> start = {0}, kv_len;
    for (const Sequence& s : lengths) {
      start.push_back(start.back() + s.rows);
      kv_len.push_back(s.kv_len);
    }
    const int64_t cols = c.num_heads * c.head_dim;
    TestTensor rows(activation, start.back(), cols, c.padding),
        out(out_dtype, start.back(), c.num_heads * c.value_dim(), c.padding);
    const Tensor table(DType::kI32, {static_cast<int64_t>(which.size()), cache.table().cols()});
    for (size_t i = 0; i < which.size(); ++i) {
      for (int64_t r = 0; r < lengths[i].rows; ++r)
        std::memcpy(rows.view().row_data(start[i] + r),
                    q[which[i]].view().row_data(lengths[i].kv_len - lengths[i].rows + r),
                    static_cast<size_t>(row_bytes(activation, cols)));
      std::memcpy(table.view().row_data(static_cast<int64_t>(i)),
                  cache.table().row_data(static_cast<int64_t>(which[i])),
                  static_cast<size_t>(table.dim(1)) * 4);
      const int64_t gone = c.window == 0 ? 0 : lengths[i].kv_len - lengths[i].rows + 1 - c.window;
      std::fill_n(table.view().row<int32_t>(static_cast<int64_t>(i)),
                  std::max<int64_t>(0, gone) / c.block_len, INT32_MIN);
    }
    const Tensor query_start = index_tensor(DType::kI32, start), lens = index_tensor(DType::kI32, kv_len);
    kernels.attention(out, rows, cache.view(), {query_start, lens, table}, options());
    out.expect_padding_untouched();
    return out;
  }

  TestTensor run_all(const Kernels& kernels, DType out_dtype) const {
    std::vector<size_t> which(c.sequences.size());
    std::iota(which.begin(), which.end(), size_t{0});
    return run(kernels, out_dtype, which, c.sequences);
  }
};

const AttentionCase kCases[] = {
    {.name = "one_key", .sequences = {{1, 1}}},
    {.name = "no_rows", .sequences = {{7, 0}}},
    {.name = "decode_below_tile", .sequences = {{63, 1}}, .num_heads = 3},
    {.name = "decode_at_tile", .sequences = {{64, 1}}},
    {.name = "decode_above_tile", .sequences = {{65, 1}}, .num_heads = 4, .num_kv_heads = 2},
    {.name = "odd_head_and_blocks",
     .sequences = {{71, 5}},
     .num_heads = 6,
     .num_kv_heads = 2,
     .head_dim = 13,
     .block_len = 7,
     .padding = 3},
    {.name = "head_dim_1", .sequences = {{5, 3}}, .head_dim = 1, .block_len = 1},
    {.name = "head_dim_40", .sequences = {{20, 20}}, .head_dim = 40},
    {.name = "prefill", .sequences = {{130, 130}}, .num_heads = 3, .num_kv_heads = 3},
    {.name = "chunk", .sequences = {{200, 37}}, .num_heads = 7, .block_len = 64},
    {.name = "below_span", .sequences = {{511, 2}}},
    {.name = "at_span", .sequences = {{512, 1}}},
    {.name = "above_span", .sequences = {{513, 3}}},
    {.name = "two_spans_two_sequences",
     .sequences = {{1100, 1}, {530, 40}},
     .num_heads = 4,
     .num_kv_heads = 2},
    {.name = "ragged",
     .sequences = {{1, 1}, {40, 0}, {90, 90}, {33, 1}, {77, 12}},
     .num_heads = 9,
     .num_kv_heads = 3,
     .head_dim = 64,
     .block_len = 64,
     .padding = 16},  // SmolLM2-135M's heads
    {.name = "many_heads_on_one", .sequences = {{40, 2}}, .num_heads = 130, .head_dim = 8},
    {.name = "head_dim_128", .sequences = {{70, 3}}, .num_heads = 4, .num_kv_heads = 2, .head_dim = 128},
};

// Each option alone, at the borders of tiles (64 keys) and spans (512), then together.
const AttentionCase kOptionCases[] = {
    {.name = "window_1", .sequences = {{70, 70}, {9, 1}}, .window = 1},
    {.name = "window_2_blocks_of_1", .sequences = {{67, 20}}, .num_heads = 5, .block_len = 1, .window = 2},
    {.name = "window_63", .sequences = {{200, 40}}, .block_len = 7, .window = 63},
    {.name = "window_64", .sequences = {{200, 40}, {64, 1}, {65, 1}}, .num_heads = 4, .window = 64},
    {.name = "window_65", .sequences = {{200, 40}, {65, 2}}, .block_len = 64, .window = 65},
    {.name = "window_511", .sequences = {{1100, 3}}, .block_len = 64, .window = 511},
    {.name = "window_512", .sequences = {{1024, 2}, {1025, 1}}, .window = 512},
    {.name = "window_513", .sequences = {{1030, 17}}, .num_heads = 1, .block_len = 64, .window = 513},
    {.name = "window_of_prefill",
     .sequences = {{300, 300}},
     .num_heads = 4,
     .num_kv_heads = 2,
     .window = 100},
    {.name = "window_above_kv_len", .sequences = {{40, 40}}, .window = 1000},
    {.name = "soft_cap", .sequences = {{130, 5}}, .soft_cap = 4},
    {.name = "soft_cap_of_gemma2", .sequences = {{70, 3}}, .head_dim = 256, .soft_cap = 50},
    {.name = "sinks", .sequences = {{65, 65}, {520, 1}}, .num_heads = 6, .num_kv_heads = 2, .sinks = true},
    {.name = "alibi",
     .sequences = {{513, 3}, {20, 20}},
     .num_heads = 3,
     .num_kv_heads = 3,
     .alibi = Alibi::kF32},
    {.name = "alibi_in_bf16", .sequences = {{700, 3}, {20, 20}}, .num_heads = 3, .alibi = Alibi::kBf16},
    {.name = "latent", .sequences = {{70, 5}}, .num_heads = 3, .head_dim = 40, .latent_dim = 24},
    {.name = "latent_odd",
     .sequences = {{70, 5}},
     .num_heads = 13,
     .head_dim = 19,
     .block_len = 5,
     .latent_dim = 7},
    {.name = "latent_of_deepseek",
     .sequences = {{66, 2}},
     .num_heads = 16,
     .head_dim = 576,
     .block_len = 64,
     .latent_dim = 512},
    {.name = "gpt_oss",
     .sequences = {{300, 3}},
     .num_heads = 16,
     .num_kv_heads = 2,
     .head_dim = 64,
     .block_len = 64,
     .window = 128,
     .sinks = true},
    {.name = "all_options",
     .sequences = {{150, 40}, {1, 1}, {600, 2}},
     .num_heads = 14,
     .num_kv_heads = 2,
     .block_len = 7,
     .padding = 3,
     .window = 70,
     .soft_cap = 10,
     .sinks = true,
     .alibi = Alibi::kF32},
    {.name = "all_options_latent",
     .sequences = {{150, 30}, {1, 1}, {1040, 2}},
     .num_heads = 5,
     .head_dim = 24,
     .latent_dim = 17,
     .window = 520,
     .soft_cap = 10,
     .sinks = true,
     .alibi = Alibi::kBf16},
};

// Prompts whose rows fill a GPU, and decoding whose keys are split over it: rows beyond and below the tiles
// (64 or 128 rows, 16 of them a warp; 64 keys), groups up to 16, a window that begins inside a tile,
// sequences of every length beside each other.
const AttentionCase kTileCases[] = {
    {.name = "prompt",
     .sequences = {{300, 300}},
     .num_heads = 32,
     .num_kv_heads = 8,
     .head_dim = 64,
     .block_len = 64},
    {.name = "prompts_and_decoding",
     .sequences = {{300, 290}, {1, 1}, {65, 65}, {40, 0}, {200, 1}, {129, 3}, {64, 64}},
     .num_heads = 32,
     .num_kv_heads = 8,
     .head_dim = 128,
     .block_len = 32,
     .padding = 8},
    {.name = "prompt_all_options",
     .sequences = {{700, 330}, {2, 2}, {128, 128}},
     .num_heads = 32,
     .num_kv_heads = 16,
     .head_dim = 64,
     .window = 100,
     .soft_cap = 10,
     .sinks = true,
     .alibi = Alibi::kF32},
    {.name = "prompt_alibi_in_bf16",
     .sequences = {{290, 290}},
     .num_heads = 32,
     .num_kv_heads = 32,
     .head_dim = 72,
     .block_len = 128,
     .alibi = Alibi::kBf16},
    {.name = "prompt_head_dim_192",
     .sequences = {{300, 300}},
     .num_heads = 16,
     .num_kv_heads = 8,
     .head_dim = 192},
    {.name = "prompt_head_dim_256",
     .sequences = {{300, 290}, {17, 17}},
     .num_heads = 16,
     .num_kv_heads = 8,
     .head_dim = 256,
     .window = 70},
    {.name = "prompt_group_1",
     .sequences = {{400, 400}},
     .num_heads = 24,
     .num_kv_heads = 24,
     .head_dim = 80},
    {.name = "prompt_group_16",
     .sequences = {{600, 300}},
     .num_heads = 32,
     .num_kv_heads = 2,
     .head_dim = 112},
    {.name = "prompt_group_3", .sequences = {{513, 512}}, .num_heads = 15, .num_kv_heads = 5, .head_dim = 96},
    {.name = "decoding",
     .sequences = {{2000, 1}, {1, 1}, {300, 1}, {256, 1}, {257, 1}, {1024, 1}},
     .num_heads = 8,
     .num_kv_heads = 2,
     .head_dim = 128},
    {.name = "decoding_window",
     .sequences = {{2000, 1}, {5, 1}, {300, 2}, {99, 1}, {356, 1}},
     .num_heads = 8,
     .num_kv_heads = 2,
     .head_dim = 64,
     .block_len = 128,
     .window = 100,
     .sinks = true},
    {.name = "decoding_far",
     .sequences = {{9000, 1}, {70, 1}},
     .num_heads = 3,
     .head_dim = 64,
     .block_len = 64},
    {.name = "decoding_many",
     .sequences = std::vector<Sequence>(80, {70, 1}),
     .num_heads = 16,
     .num_kv_heads = 8,
     .head_dim = 128},
};

std::vector<AttentionCase> shape_cases() {
  std::vector<AttentionCase> cases;
  for (const int64_t head_dim : {64, 80, 96, 112, 128, 192, 256, 576})
    cases.push_back(
        {.name = cat("head_dim_", head_dim), .sequences = {{66, 3}}, .head_dim = head_dim, .block_len = 64});
  for (int64_t group = 1; group <= 16; ++group)
    cases.push_back({.name = cat("group_", group),
                     .sequences = {{90, 9}},
                     .num_heads = 2 * group,
                     .num_kv_heads = 2,
                     .head_dim = 8,
                     .window = 33,
                     .sinks = true});
  return cases;
}

class AttentionTest : public ::testing::TestWithParam<std::tuple<Backend, DType, AttentionCase>> {};

// Over codes a GPU multiplies f16: weights and values are rounded to it, each of them by half of eps, at most
// 6 of a value less its min; in 4 bits queries too, and for prompts queries, keys and values. A score's
// roundings are a normal sum then with a deviation of 1.8 eps, rarely beyond 8 eps, which moves at most a
// quarter of the weight by 6; a value's is at most 3 eps.
double f16_bound(const AttentionCase& c, DType cache, Backend backend) {
  constexpr int64_t kLeastRows = 32;  // that the kernel of prompts takes of a sequence
  const bool has_kernel = is_cuda(backend) && dtype_of(backend) != DType::kF32 && !is_float(cache) &&
                          (c.head_dim == 64 || c.head_dim == 128);
  if (!has_kernel) return 0;
  const int64_t group = c.num_heads / c.num_kv_heads;
  const bool has_prompt =
      std::ranges::any_of(c.sequences, [&](const Sequence& s) { return s.rows * group >= kLeastRows; });
  return (has_prompt || cache == DType::kU4 ? 15 : 6) * epsilon(DType::kF16);
}

// Values are in [-3, 3] and weights sum to 1. A score is a sum of head_dim products of at most 9 (at most two
// roundings a term, sqrt rule), scaled; a soft cap never makes its error larger and adds that of tanh, ALiBi
// adds two roundings of its bias and one of the sum. The score's error, and that of exp, is relative in the
// weight, and the weighted sum and the sum of weights have n terms each. Codes are summed apart from mins:
// terms of at most 3 times the range of 6, and of 3 times the min.
double attention_bound(const AttentionCase& c, DType cache, Backend backend) {
  const double d = static_cast<double>(c.head_dim), largest = is_float(cache) ? 3 : 9;
  int64_t keys = 1;
  for (const Sequence& s : c.sequences) keys = std::max(keys, s.kv_len);
  double score =
      3 * largest * d / std::sqrt(d) * (2 * std::sqrt(d) + 4) + 10 * static_cast<double>(c.soft_cap);
  if (c.alibi != Alibi::kNone) {
    const double steepest = 0.5 / (c.alibi == Alibi::kBf16 ? std::sqrt(d) : 1);
    score += 3 * steepest * static_cast<double>(keys) + 9 * std::sqrt(d);
  }
  return largest * kF32Epsilon * (2 * score + 4 * std::sqrt(static_cast<double>(keys)) + 16) +
         f16_bound(c, cache, backend);
}

TEST_P(AttentionTest, MatchesReference) {
  const auto& [backend, dtype, c] = GetParam();
  LMD_REQUIRE_BACKEND(backend);
  LMD_REQUIRE_CACHE(backend, dtype);
  const Problem problem(c, dtype, dtype_of(backend));
  const TestTensor want = problem.run_all(ref_kernels(), DType::kF64);
  const TestTensor got = problem.run_all(kernels_of(backend), dtype_of(backend));
  expect_close(got, want, [&](int64_t, int64_t, double v) {
    return attention_bound(c, dtype, backend) + store_error(backend, v);
  });
}

std::string case_name(const ::testing::TestParamInfo<std::tuple<Backend, DType, AttentionCase>>& test) {
  const AttentionCase& c = std::get<2>(test.param);
  return cat(std::get<0>(test.param), "_", std::get<1>(test.param), "_", c.name, "_seed", c.seed);
}
const auto kCacheDtypes = ::testing::Values(DType::kF32, DType::kF16, DType::kBF16, DType::kU8, DType::kU4);
INSTANTIATE_TEST_SUITE_P(Cases, AttentionTest,
                         ::testing::Combine(::testing::ValuesIn(all_backends()), kCacheDtypes,
                                            ::testing::ValuesIn(kCases)),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Options, AttentionTest,
                         ::testing::Combine(::testing::ValuesIn(all_backends()), kCacheDtypes,
                                            ::testing::ValuesIn(kOptionCases)),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Tiles, AttentionTest,
                         ::testing::Combine(::testing::ValuesIn(all_backends()), kCacheDtypes,
                                            ::testing::ValuesIn(kTileCases)),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Shapes, AttentionTest,
                         ::testing::Combine(::testing::ValuesIn(all_backends()), kCacheDtypes,
                                            ::testing::ValuesIn(shape_cases())),
                         case_name);

/// One of the CPU, which proves the cases, and CUDA's in 16 bits: the reference takes seconds for each.
std::vector<Backend> long_backends() {
  std::vector<Backend> all = {cpu_isa_available(CpuIsa::kAvx512) ? Backend::kAvx512 : Backend::kPortable};
  if (cuda_toolkit_version() > 0) all.insert(all.end(), {Backend::kCudaF16, Backend::kCudaBF16});
  return all;
}

class LongAttentionTest : public ::testing::TestWithParam<std::tuple<Backend, DType>> {};

// One row and a short prompt after 131072 keys, of the last of which each sees all.
TEST_P(LongAttentionTest, MatchesReference) {
  const auto& [backend, dtype] = GetParam();
  LMD_REQUIRE_BACKEND(backend);
  LMD_REQUIRE_CACHE(backend, dtype);
  constexpr int64_t kKeys = 131072, kRows = 40;
  AttentionCase c = {
      .name = "long", .sequences = {{kKeys, kRows}}, .num_heads = 2, .head_dim = 128, .block_len = 64};
  const Problem problem(c, dtype, dtype_of(backend));
  const TestTensor want = problem.run_all(ref_kernels(), DType::kF64);
  for (const int64_t rows : {int64_t{1}, kRows}) {
    SCOPED_TRACE(cat(rows, " rows"));
    c.sequences = {{kKeys, rows}};
    const TestTensor got = problem.run(kernels_of(backend), dtype_of(backend), {0}, c.sequences);
    expect_close(got, want.view().slice_rows(kRows - rows, rows), [&](int64_t, int64_t, double v) {
      return attention_bound(c, dtype, backend) + store_error(backend, v);
    });
  }
}

std::vector<std::tuple<Backend, DType>> long_cases() {
  std::vector<std::tuple<Backend, DType>> cases;
  for (const Backend backend : long_backends()) {
    cases.emplace_back(backend, is_cuda(backend) ? dtype_of(backend) : DType::kBF16);
    if (is_cuda(backend)) cases.insert(cases.end(), {{backend, DType::kU8}, {backend, DType::kU4}});
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Kinds, LongAttentionTest, ::testing::ValuesIn(long_cases()), [](const auto& test) {
  return cat(std::get<0>(test.param), "_", std::get<1>(test.param));
});

// A latent cache with heads of DeepSeek's size: several spans, and rows that begin in one and end in another.
const AttentionCase kLatentCases[] = {{.name = "latent_of_deepseek_prompt",
                                       .sequences = {{2050, 300}, {70, 1}},
                                       .num_heads = 4,
                                       .head_dim = 576,
                                       .block_len = 64,
                                       .latent_dim = 512}};
INSTANTIATE_TEST_SUITE_P(Latent, AttentionTest,
                         ::testing::Combine(::testing::ValuesIn(long_backends()),
                                            ::testing::Values(DType::kF16, DType::kBF16, DType::kU8),
                                            ::testing::ValuesIn(kLatentCases)),
                         case_name);

// Plain attention, windows below and above a span, and everything on a latent cache.
const AttentionCase kEqualCases[] = {
    {.name = "plain",
     .sequences = {{1060, 1060}, {517, 1}, {60, 60}},
     .num_heads = 6,
     .num_kv_heads = 2,
     .head_dim = 24,
     .block_len = 32},
    // Whole, it fills a GPU with tiles of many rows; in chunks it does not.
    {.name = "many_heads",
     .sequences = {{1060, 1060}, {517, 1}, {60, 60}},
     .num_heads = 16,
     .num_kv_heads = 4,
     .head_dim = 64,
     .block_len = 32},
    {.name = "many_heads_window_300",
     .sequences = {{1060, 1060}, {517, 3}, {60, 60}},
     .num_heads = 32,
     .num_kv_heads = 8,
     .head_dim = 128,
     .block_len = 64,
     .window = 300,
     .soft_cap = 10,
     .sinks = true},
    {.name = "window_30",
     .sequences = {{1060, 1060}, {517, 1}, {60, 60}},
     .num_heads = 3,
     .block_len = 16,
     .window = 30,
     .sinks = true},
    {.name = "window_530",
     .sequences = {{1060, 1060}, {1040, 20}, {531, 1}},
     .num_heads = 4,
     .num_kv_heads = 2,
     .block_len = 1,
     .window = 530,
     .soft_cap = 10,
     .alibi = Alibi::kF32},
    {.name = "latent",
     .sequences = {{1060, 1060}, {600, 5}, {3, 3}},
     .num_heads = 5,
     .head_dim = 24,
     .block_len = 64,
     .latent_dim = 17,
     .window = 600,
     .soft_cap = 10,
     .sinks = true,
     .alibi = Alibi::kBf16},
};

/// A GPU has other kernels where the cache is of the activations' 16 bits.
DType cache_dtype_for(Backend backend, DType dtype) {
  return dtype == DType::kF16 && dtype_of(backend) != DType::kF32 ? dtype_of(backend) : dtype;
}

class AttentionEqualTest : public ::testing::TestWithParam<std::tuple<Backend, DType, AttentionCase>> {};

// The seam's promise: a row's bits depend neither on how its prompt was cut into steps nor on the other
// sequences.
TEST_P(AttentionEqualTest, ChunksEqualOneStep) {
  const auto& [backend, dtype, c] = GetParam();
  LMD_REQUIRE_BACKEND(backend);
  LMD_REQUIRE_CACHE(backend, dtype);
  const Problem problem(c, cache_dtype_for(backend, dtype), dtype_of(backend));
  const Kernels& kernels = batch_invariant_kernels_of(backend);
  const TestTensor whole = problem.run(kernels, dtype_of(backend), {0}, {{1060, 1060}});
  for (const int64_t chunk : {1, 7, 64, 500, 777}) {
    SCOPED_TRACE(cat("chunks of ", chunk));
    const int64_t first = chunk == 1 ? 1000 : 0;  // single tokens: the last ones only, to save time
    for (int64_t t = first; t < 1060; t += chunk) {
      const int64_t n = std::min<int64_t>(chunk, 1060 - t);
      const TestTensor part = problem.run(kernels, dtype_of(backend), {0}, {{t + n, n}});
      expect_bit_equal(part.view(), whole.view().slice_rows(t, n));
    }
  }
}

TEST_P(AttentionEqualTest, AloneEqualsBesideOthers) {
  const auto& [backend, dtype, c] = GetParam();
  LMD_REQUIRE_BACKEND(backend);
  LMD_REQUIRE_CACHE(backend, dtype);
  const Problem problem(c, cache_dtype_for(backend, dtype), dtype_of(backend));
  const Kernels& kernels = batch_invariant_kernels_of(backend);
  const TestTensor all = problem.run_all(kernels, dtype_of(backend));
  int64_t row = 0;
  for (size_t s = 0; s < c.sequences.size(); ++s) {
    const TestTensor alone = problem.run(kernels, dtype_of(backend), {s}, {c.sequences[s]});
    expect_bit_equal(alone.view(), all.view().slice_rows(row, c.sequences[s].rows));
    row += c.sequences[s].rows;
  }
}

TEST_P(AttentionEqualTest, ThreadsDoNotChangeBits) {
  const auto& [backend, dtype, c] = GetParam();
  LMD_REQUIRE_BACKEND(backend);
  if (is_cuda(backend)) return;  // it uses none
  const Problem problem(c, dtype, dtype_of(backend));
  for (const int num_threads : {1, 16}) {
    const auto kernels = make_cpu_kernels(std::make_shared<ThreadPool>(num_threads), options_of(backend));
    expect_bit_equal(problem.run_all(*kernels, dtype_of(backend)).view(),
                     problem.run_all(kernels_of(backend), dtype_of(backend)).view());
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, AttentionEqualTest,
                         ::testing::Combine(::testing::ValuesIn(all_backends()),
                                            ::testing::Values(DType::kF16, DType::kU8, DType::kU4),
                                            ::testing::ValuesIn(kEqualCases)),
                         [](const auto& test) {
                           return cat(std::get<0>(test.param), "_", std::get<1>(test.param), "_",
                                      std::get<2>(test.param).name);
                         });

class AttentionBackendTest : public ::testing::TestWithParam<Backend> {
 protected:
  DType dtype() const { return dtype_of(GetParam()); }
  /// Of the cache: a GPU has other kernels where activations are of the same 16 bits.
  std::vector<DType> cache_dtypes() const {
    return dtype() == DType::kF32 ? std::vector{DType::kF32} : std::vector{DType::kF32, dtype()};
  }
};

// One key becomes NaN, one value infinite.
struct BrokenProblem {
  Problem clean, broken;
  BrokenProblem(const AttentionCase& c, DType cache_dtype, DType activation, int64_t nan_key,
                int64_t inf_value)
      : clean(c, cache_dtype, activation), broken(c, cache_dtype, activation) {
    Rng rng(1);
    const int64_t cols = c.num_kv_heads * c.head_dim;
    const TestTensor k = random_tensor(rng, DType::kF32, 2, cols),
                     v = random_tensor(rng, DType::kF32, 2, cols);
    for (int64_t d = 0; d < cols; ++d) k.view().set(0, d, std::nan("")), v.view().set(1, d, HUGE_VAL);
    const Tensor slots =
        index_tensor(DType::kI64, {broken.cache.slot(0, nan_key), broken.cache.slot(0, inf_value)});
    ref_kernels().kv_write(broken.cache.view(), 1, k, v, slots);
  }
};

// A broken model's keys: rows before them are clean, rows after them are NaN, nothing else is touched.
TEST_P(AttentionBackendTest, NaNAndInfinityDoNotReachEarlierRows) {
  LMD_REQUIRE_BACKEND(GetParam());
  const Kernels& kernels = kernels_of(GetParam());
  for (const DType cache_dtype : cache_dtypes()) {
    for (const int64_t num_heads : {2, 128}) {  // many heads: rows enough for larger tiles
      SCOPED_TRACE(cat(cache_dtype, ", ", num_heads, " heads"));
      const AttentionCase c = {.name = "nan", .sequences = {{80, 80}}, .num_heads = num_heads, .head_dim = 8};
      const BrokenProblem p(c, cache_dtype, dtype(), 50, 40);
      const TestTensor want = p.clean.run_all(kernels, dtype()), got = p.broken.run_all(kernels, dtype());
      expect_bit_equal(got.view().slice_rows(0, 40), want.view().slice_rows(0, 40));
      for (int64_t row = 40; row < 80; ++row) EXPECT_FALSE(std::isfinite(got.at(row, 0))) << row;
      EXPECT_TRUE(std::isnan(got.at(50, 0)));
    }
  }
}

// Nor do they reach rows whose window has left them behind.
TEST_P(AttentionBackendTest, NaNAndInfinityDoNotReachRowsThatDoNotSeeThem) {
  LMD_REQUIRE_BACKEND(GetParam());
  const Kernels& kernels = kernels_of(GetParam());
  for (const DType cache_dtype : cache_dtypes()) {
    for (const int64_t num_heads : {2, 128}) {
      SCOPED_TRACE(cat(cache_dtype, ", ", num_heads, " heads"));
      const AttentionCase c = {.name = "nan",
                               .sequences = {{80, 80}},
                               .num_heads = num_heads,
                               .head_dim = 8,
                               .window = 6,
                               .soft_cap = 10,
                               .sinks = true};
      const BrokenProblem p(c, cache_dtype, dtype(), 12, 10);
      const TestTensor want = p.clean.run_all(kernels, dtype()), got = p.broken.run_all(kernels, dtype());
      expect_bit_equal(got.view().slice_rows(0, 10), want.view().slice_rows(0, 10));
      expect_bit_equal(got.view().slice_rows(18, 62), want.view().slice_rows(18, 62));
      EXPECT_TRUE(std::isnan(got.at(17, 0)));
    }
  }
}

// A sink of any size: one far above the scores takes all weight, one far below none.
TEST_P(AttentionBackendTest, SinksOfAnySize) {
  LMD_REQUIRE_BACKEND(GetParam());
  const Kernels& kernels = kernels_of(GetParam());
  const AttentionCase c = {
      .name = "sinks", .sequences = {{70, 3}}, .num_heads = 6, .head_dim = 8, .sinks = true};
  AttentionCase without = c;
  without.sinks = false;
  for (const DType cache_dtype : cache_dtypes()) {
    SCOPED_TRACE(cat(cache_dtype));
    const Problem problem(c, cache_dtype, dtype()), plain(without, cache_dtype, dtype());
    const float sinks[] = {3e38f, 100, 88.8f, -100, -3e38f, -HUGE_VALF};
    std::copy(std::begin(sinks), std::end(sinks), problem.sinks.span<float>().begin());
    const TestTensor want = problem.run_all(ref_kernels(), DType::kF64);
    const TestTensor got = problem.run_all(kernels, dtype());
    expect_close(got, want, [&](int64_t, int64_t, double v) {
      return attention_bound(c, cache_dtype, GetParam()) + store_error(GetParam(), v);
    });
    const TestTensor none = plain.run_all(kernels, dtype());
    for (int64_t i = 0; i < 8; ++i) EXPECT_EQ(got.at(2, i), 0);
    expect_bit_equal(got.view().slice_cols(24, 24), none.view().slice_cols(24, 24));
  }
}

// The first `count` keys of the only sequence give scores of -inf to a query that begins with 1; their values
// are 5.
void set_minus_infinity(const Problem& problem, int64_t count) {
  const int64_t dim = problem.c.head_dim;
  const TestTensor k(DType::kF32, count, dim), v(DType::kF32, count, dim);
  std::vector<int64_t> slots;
  for (int64_t t = 0; t < count; ++t) {
    for (int64_t d = 0; d < dim; ++d) k.view().set(t, d, d == 0 ? -HUGE_VAL : 0), v.view().set(t, d, 5);
    slots.push_back(problem.cache.slot(0, t));
  }
  ref_kernels().kv_write(problem.cache.view(), 1, k, v, index_tensor(DType::kI64, slots));
}

// A score of -inf is a weight of 0, also when a whole tile of keys has it.
TEST_P(AttentionBackendTest, MinusInfinityScoresWeighNothing) {
  LMD_REQUIRE_BACKEND(GetParam());
  const AttentionCase c = {.name = "inf", .sequences = {{130, 1}}, .num_heads = 1, .head_dim = 8};
  for (const DType cache_dtype : cache_dtypes()) {
    SCOPED_TRACE(cat(cache_dtype));
    const Problem problem(c, cache_dtype, dtype());
    problem.q[0].view().set(129, 0, 1);
    set_minus_infinity(problem, 70);
    const TestTensor want = problem.run_all(ref_kernels(), DType::kF64);
    const TestTensor got = problem.run_all(kernels_of(GetParam()), dtype());
    ASSERT_TRUE(std::isfinite(want.at(0, 0)));
    expect_close(got, want, [&](int64_t, int64_t, double v) {
      return attention_bound(c, cache_dtype, GetParam()) + store_error(GetParam(), v);
    });
  }
}

// Then a sink, however low, has all the weight.
TEST_P(AttentionBackendTest, SinkBesideMinusInfinityScores) {
  LMD_REQUIRE_BACKEND(GetParam());
  const AttentionCase c = {
      .name = "inf", .sequences = {{3, 1}}, .num_heads = 1, .head_dim = 8, .sinks = true};
  for (const DType cache_dtype : cache_dtypes()) {
    SCOPED_TRACE(cat(cache_dtype));
    const Problem problem(c, cache_dtype, dtype());
    problem.q[0].view().set(2, 0, 1);
    problem.sinks.span<float>()[0] = -200;
    set_minus_infinity(problem, 3);
    EXPECT_EQ(problem.run_all(ref_kernels(), DType::kF64).at(0, 0), 0);
    EXPECT_EQ(problem.run_all(kernels_of(GetParam()), dtype()).at(0, 0), 0);
  }
}

// Scores far below the largest take no more time than others: nothing on the way is subnormal.
TEST_P(AttentionBackendTest, DistantScoresMakeNothingSubnormal) {
  LMD_REQUIRE_BACKEND(GetParam());
  if (is_cuda(GetParam())) return;  // its arithmetic has no such flag, and no such cost
  const AttentionCase c = {.name = "far", .sequences = {{300, 150}}, .num_heads = 2, .head_dim = 16};
  const auto kernels = make_cpu_kernels(std::make_shared<ThreadPool>(1), options_of(GetParam()));
  for (const DType cache_dtype : {DType::kF32, DType::kF16, DType::kU8, DType::kU4}) {
    SCOPED_TRACE(cat(cache_dtype));
    const Problem problem(c, cache_dtype, DType::kF32);
    for (int64_t t = 0; t < 300; ++t)
      for (int64_t d = 0; d < 32; ++d) problem.q[0].view().set(t, d, 200 * problem.q[0].at(t, d));
    const TestTensor want = problem.run_all(ref_kernels(), DType::kF64);
    std::feclearexcept(FE_ALL_EXCEPT);
    const TestTensor got = problem.run_all(*kernels, DType::kF32);
    EXPECT_EQ(std::fetestexcept(FE_UNDERFLOW), 0);
    expect_close(got, want, [&](int64_t, int64_t, double) { return 1e-3; });
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, AttentionBackendTest, ::testing::ValuesIn(all_backends()),
                         [](const auto& test) { return to_string(test.param); });

}  // namespace
}  // namespace lmdeploy
