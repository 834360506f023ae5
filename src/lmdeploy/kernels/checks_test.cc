// Bad arguments end in one Error(kInvalidArgument) that names op and tensor, on every back end, before any
// memory is touched; empty calls do nothing.
#include "lmdeploy/kernels/testing.h"

namespace lmdeploy {
namespace {

/// nullopt: the reference.
class ChecksTest : public ::testing::TestWithParam<std::optional<Backend>> {
 protected:
  void SetUp() override {
    if (GetParam()) LMD_REQUIRE_BACKEND(*GetParam());
  }
  const Kernels& kernels() const { return GetParam() ? kernels_of(*GetParam()) : ref_kernels(); }
  Tensor activation(int64_t rows, int64_t cols) const {
    Tensor t(kernels().activation_dtype(), {rows, cols});
    std::memset(t.view().data(), 0, t.bytes());
    return t;
  }
  std::unique_ptr<PackedWeight> weight(int64_t rows, int64_t cols) const {
    const Tensor w(DType::kF32, {rows, cols});
    std::memset(w.view().data(), 0, w.bytes());
    return pack(kernels(), w);
  }
};

Tensor ids(const std::vector<int64_t>& values) { return index_tensor(DType::kI32, values); }

TEST_P(ChecksTest, EmbeddingNamesTheBadId) {
  const auto table = weight(5, 8);
  const Tensor out = activation(2, 8);
  expect_invalid(
      [&] {
        kernels().embedding(out, ids({0, 5}), *table);
      },
      "embedding: ids[1] is 5, expected [0, 5)");
  expect_invalid([&] { kernels().embedding(out, ids({-1, 0}), *table); }, "embedding: ids[0] is -1");
  expect_invalid([&] { kernels().embedding(out, ids({0}), *table); },
                 "embedding: out has shape [2, 8], expected [1, 8]");
  expect_invalid(
      [&] {
        kernels().embedding(out, index_tensor(DType::kI64, {0, 1}), *table);
      },
      "embedding: ids is i64");
}

TEST_P(ChecksTest, Linear) {
  const auto w = weight(5, 8);
  const Tensor x = activation(2, 8), out = activation(2, 5), both = activation(2, 16), bias(DType::kF32, {4});
  expect_invalid([&] { kernels().linear(out, activation(2, 7), *w); },
                 "linear: x has shape [2, 7], the weight is [5, 8]");
  expect_invalid([&] { kernels().linear(activation(1, 5), x, *w); },
                 "linear: out has shape [1, 5], expected [2, 5]");
  expect_invalid([&] { kernels().linear(out, x, *w, ConstTensorView(bias)); },
                 "linear: bias is f32 [4], expected f32 [5]");
  expect_invalid([&] { kernels().linear(out, Tensor(DType::kI32, {2, 8}), *w); }, "linear: x is i32");
  expect_invalid([&] { kernels().linear(both.view().slice_cols(4, 5), both.view().slice_cols(0, 8), *w); },
                 "linear: out and x overlap");
}

TEST_P(ChecksTest, WeightOfAnotherBackEnd) {
  const Tensor raw(DType::kF32, {5, 8});
  const auto other = pack(GetParam() ? ref_kernels() : kernels_of(Backend::kPortable), raw);
  const Tensor x = activation(1, 8), out = activation(1, 5);
  expect_invalid([&] { kernels().linear(out, x, *other); },
                 "linear: the weight was packed by another back end");
  expect_invalid([&] { kernels().embedding(x, ids({0}), *other); },
                 "embedding: the weight was packed by another");
}

TEST_P(ChecksTest, PackWeight) {
  const Tensor a(DType::kF32, {2, 64}), b(DType::kF32, {2, 32}), c(DType::kI8, {2, 64}),
      d(DType::kQ4_0, {2, 64});
  const auto pack_all = [&](std::vector<ConstTensorView> parts) { return kernels().pack_weight(parts); };
  expect_invalid([&] { pack_all({}); }, "pack_weight: no parts");
  const auto order = [&](std::vector<int32_t> values) { pack(kernels(), a, values); };
  std::vector<int32_t> columns(64);
  std::iota(columns.begin(), columns.end(), 0);
  expect_invalid([&] { order({1, 0}); }, "pack_weight: column_order has 2 entries, expected 64");
  columns[5] = 64;
  expect_invalid([&] { order(columns); }, "column_order has 64, which is not in [0, 64)");
  columns[5] = 6;
  expect_invalid([&] { order(columns); }, "column_order has 6 twice");
  columns[5] = 5;
  const auto table = pack(kernels(), a, columns);
  expect_invalid([&] { kernels().embedding(activation(1, 64), ids({0}), *table); },
                 "embedding: the table has a column order");
  expect_invalid([&] { pack_all({a, b}); }, "pack_weight: part 1 has 32 columns, part 0 has 64");
  expect_invalid([&] { pack_all({c}); }, "pack_weight: part 0 is i8");
  expect_invalid([&] { pack_all({a.view().slice_rows(0, 0)}); }, "pack_weight: part 0 has shape [0, 64]");
  const ConstTensorView broken(d.view().data(), DType::kQ4_0, {2, 40}, row_bytes(DType::kQ4_0, 64));
  expect_invalid([&] { pack_all({broken}); }, "40 columns, not whole q4_0 blocks of 32");
}

TEST_P(ChecksTest, Norms) {
  const Tensor x = activation(2, 8), weight(DType::kF32, {7}), right(DType::kF32, {8});
  expect_invalid([&] { kernels().norm(x, x, weight, {}); }, "norm: weight is f32 [7], expected f32 [8]");
  expect_invalid([&] { kernels().norm(activation(2, 9), x, right, {}); }, "norm: out has shape [2, 9]");
  expect_invalid([&] { kernels().add_norm(x, activation(1, 8), x, right, {}); },
                 "add_norm: residual has shape");
  const ConstTensorView cube(x.view().data(), x.dtype(), {2, 2, 4});
  expect_invalid([&] { kernels().norm(x, cube, right, {}); }, "norm: x has shape [2, 2, 4]");
  expect_invalid([&] { kernels().norm(x, x, right, {.group = 3}); },
                 "norm: x has shape [2, 8], not whole groups of 3");
  expect_invalid([&] { kernels().norm(x, x, right, {.group = -1}); }, "groups of -1");
  expect_invalid([&] { kernels().norm(x, x, weight, {.group = 4}); },
                 "norm: weight is f32 [7], expected f32 [8]");
  expect_invalid([&] { kernels().norm(x, x, right, {.bias = weight}); },
                 "norm: bias is f32 [7], expected f32 [8]");
  expect_invalid([&] { kernels().norm(x, x, Tensor(DType::kF32, {4}), {.group = 4, .bias = right}); },
                 "norm: bias is f32 [8], expected f32 [4]");
  expect_invalid([&] { kernels().add_norm(activation(2, 8), activation(2, 8), x, right, {.group = 4}); },
                 "add_norm: group is 4, expected 0");
}

TEST_P(ChecksTest, RopeTable) {
  Tensor inv_freq(DType::kF64, {2, 4}), scale(DType::kF64, {2});
  for (double& f : inv_freq.span<double>()) f = 1;
  scale.span<double>()[0] = scale.span<double>()[1] = 1;
  const Tensor table = activation(2, 8);
  const auto call = [&](const Tensor& positions, const Tensor& idx) {
    kernels().rope_table(table, positions, inv_freq, scale, idx);
  };
  expect_invalid([&] { call(ids({0, 1}), ids({0, 2})); }, "rope_table: table_idx[1] is 2, expected [0, 2)");
  expect_invalid([&] { call(ids({0, 1}), ids({0})); }, "rope_table: table_idx is i32 [1], expected i32 [2]");
  expect_invalid([&] { call(ids({0}), ids({0})); }, "rope_table: table has shape [2, 8], expected [1, 8]");
  expect_invalid(
      [&] {
        kernels().rope_table(table, ids({0, 1}), inv_freq, Tensor(DType::kF64, {1}), ids({0, 0}));
      },
      "rope_table: scale is f64 [1]");
}

TEST_P(ChecksTest, Rope) {
  const Tensor x = activation(2, 12);
  expect_invalid([&] { kernels().rope(x, activation(2, 4), {.head_dim = 5}); },
                 "rope: x has shape [2, 12], not whole heads of 5");
  expect_invalid([&] { kernels().rope(x, activation(2, 6), {.head_dim = 4}); },
                 "rope: table has shape [2, 6]");
  expect_invalid([&] { kernels().rope(x, activation(2, 3), {.head_dim = 4}); },
                 "rope: table has shape [2, 3]");
  expect_invalid([&] { kernels().rope(x, activation(1, 4), {.head_dim = 4}); },
                 "rope: table has shape [1, 4]");
  expect_invalid([&] { kernels().rope(x, activation(2, 4), {}); }, "heads of 0");
  expect_invalid([&] { kernels().rope(x, activation(2, 4), {.head_dim = 6, .first = 3}); },
                 "at most head_dim 6 less the first 3");
  expect_invalid([&] { kernels().rope(x, activation(2, 4), {.head_dim = 6, .first = -1}); }, "the first -1");
}

// A pool of two blocks of four tokens, its content 0.
struct Pool {
  explicit Pool(DType dtype) {
    view.layout = {.dtype = dtype, .num_layers = 1, .num_kv_heads = 2, .head_dim = 4, .block_len = 4};
    view.num_blocks = 2;
    memory = Tensor(DType::kU8, {2 * view.layout.block_bytes()});
    std::memset(memory.view().data(), 0, memory.bytes());
    view.data = memory.view().data();
  }
  KvCacheView view;
  Tensor memory;
};

TEST_P(ChecksTest, KvWrite) {
  Pool pool(DType::kF32);
  const Tensor k = activation(2, 8), narrow = activation(2, 4);
  const auto slots = [](int64_t a, int64_t b) { return index_tensor(DType::kI64, {a, b}); };
  expect_invalid([&] { kernels().kv_write(pool.view, 0, k, k, slots(0, 8)); },
                 "kv_write: slots[1] is 8, expected [0, 8)");
  expect_invalid([&] { kernels().kv_write(pool.view, 0, k, k, slots(-1, 0)); }, "kv_write: slots[0] is -1");
  expect_invalid([&] { kernels().kv_write(pool.view, 1, k, k, slots(0, 1)); },
                 "kv_write: layer 1 is not in [0, 1)");
  expect_invalid([&] { kernels().kv_write(pool.view, 0, narrow, k, slots(0, 1)); },
                 "kv_write: k has shape [2, 4]");
  expect_invalid([&] { kernels().kv_write(pool.view, 0, k, narrow, slots(0, 1)); },
                 "kv_write: v has shape [2, 4]");
  expect_invalid([&] { kernels().kv_write(pool.view, 0, k, k, ids({0, 1})); }, "kv_write: slots is i32");
  pool.view.layout.latent_dim = 5;
  expect_invalid([&] { kernels().kv_write(pool.view, 0, k, k, slots(0, 1)); },
                 "2 heads of 4, 5 of them latent");
  pool.view.layout.dtype = DType::kI8;
  expect_invalid([&] { kernels().kv_write(pool.view, 0, k, k, slots(0, 1)); },
                 "kv_write: the KV cache is i8");
}

TEST_P(ChecksTest, Attention) {
  Pool pool(DType::kF16);
  const Tensor q = activation(3, 16), out = activation(3, 16);
  Tensor table(DType::kI32, {2, 2});
  const auto call = [&](std::vector<int64_t> start, std::vector<int64_t> lens, std::vector<int32_t> blocks,
                        AttentionOptions options = {.num_heads = 4}) {
    std::copy(blocks.begin(), blocks.end(), table.span<int32_t>().begin());
    kernels().attention(out, q, pool.view, {ids(start), ids(lens), table}, options);
  };
  const std::vector<int32_t> good = {0, 1, 1, 0};
  EXPECT_NO_THROW(call({0, 1, 3}, {5, 2}, good));
  EXPECT_NO_THROW(call({0, 1, 3}, {4, 2}, {0, -7, 1, 99}));  // entries past kv_len are not used
  expect_invalid(
      [&] {
        call({0, 1, 3}, {5, 2}, {0, 2, 1, 0});
      },
      "attention: block_table[1] is 2, expected [0, 2)");
  expect_invalid([&] { call({0, 1, 3}, {5, 2}, {-1, 0, 1, 0}); }, "attention: block_table[0] is -1");
  expect_invalid(
      [&] {
        call({0, 1, 3}, {9, 2}, good);
      },
      "attention: kv_len[0] is 9, more than 2 blocks of 4");
  expect_invalid(
      [&] {
        call({0, 1, 3}, {5, 1}, good);
      },
      "attention: kv_len[1] is 1, less than the sequence's 2 rows");
  expect_invalid([&] { call({0, 2, 1}, {5, 2}, good); }, "attention: query_start[2] is 1");
  expect_invalid([&] { call({1, 1, 3}, {5, 2}, good); }, "attention: query_start[0] is 1");
  expect_invalid([&] { call({0, 1, 2}, {5, 2}, good); }, "attention: query_start ends at 2, q has 3 rows");
  expect_invalid([&] { call({0, 3}, {5, 2}, good); }, "attention: query_start is i32 [2], expected i32 [3]");
  expect_invalid(
      [&] {
        call({0, 1, 3}, {5, 2}, good, {.num_heads = 3});
      },
      "attention: num_heads 3 is not a multiple");
  expect_invalid([&] { call({0, 1, 3}, {5, 2}, good, {.num_heads = 2}); }, "attention: q has shape [3, 16]");
  expect_invalid([&] { call({0, 1, 3}, {5, 2}, good, {.layer = 1, .num_heads = 4}); }, "attention: layer 1");
  const Tensor four(DType::kF32, {4}), two(DType::kF32, {2});
  std::memset(four.view().data(), 0, four.bytes());
  const auto with = [&](AttentionOptions options) {
    options.num_heads = 4;
    call({0, 1, 3}, {5, 2}, good, options);
  };
  EXPECT_NO_THROW(with({.window = 2, .soft_cap = 1, .sinks = four, .alibi_slopes = four}));
  expect_invalid([&] { with({.window = -1}); }, "attention: window is -1");
  expect_invalid([&] { with({.soft_cap = -1}); }, "attention: soft_cap is -1");
  expect_invalid([&] { with({.soft_cap = HUGE_VALF}); }, "attention: soft_cap is inf");
  expect_invalid([&] { with({.soft_cap = std::nanf("")}); }, "attention: soft_cap is");
  expect_invalid([&] { with({.sinks = two}); }, "attention: sinks is f32 [2], expected f32 [4]");
  expect_invalid([&] { with({.alibi_slopes = two}); },
                 "attention: alibi_slopes is f32 [2], expected f32 [4]");
  // Sequence 0 sees key 4 alone: its first block may be gone, its second may not.
  EXPECT_NO_THROW(call({0, 1, 3}, {5, 2}, {-7, 1, 1, 99}, {.num_heads = 4, .window = 1}));
  expect_invalid(
      [&] {
        call({0, 1, 3}, {5, 2}, {-7, 1, 1, 99}, {.num_heads = 4, .window = 2});
      },
      "attention: block_table[0] is -7");
  expect_invalid(
      [&] {
        call({0, 1, 3}, {5, 2}, {0, 9, 1, 99}, {.num_heads = 4, .window = 1});
      },
      "is 9, expected [0, 2)");
  const Tensor starts = ids({0, 1, 3}), lens = ids({5, 2});
  expect_invalid(
      [&] {
        kernels().attention(q, q, pool.view, {starts, lens, table}, {.num_heads = 4});
      },
      "attention: out and q overlap");
}

TEST_P(ChecksTest, RowOps) {
  const Tensor x = activation(2, 8), odd = activation(2, 3);
  expect_invalid([&] { kernels().glu(odd, x, Activation::kSilu); },
                 "glu: x has shape [2, 8], expected [2, 6]");
  expect_invalid([&] { kernels().add(x, x, odd); }, "add: b has shape [2, 3], expected [2, 8]");
  expect_invalid([&] { kernels().add(x, odd, x); }, "add: a has shape [2, 3]");
  const Tensor out = activation(2, 8);
  expect_invalid(
      [&] {
        kernels().gather_rows(out, x, ids({0, 2}));
      },
      "gather_rows: rows[1] is 2, expected [0, 2)");
  expect_invalid([&] { kernels().gather_rows(out, x, ids({0})); },
                 "gather_rows: out has shape [2, 8], expected [1, 8]");
  expect_invalid([&] { kernels().gather_rows(x, x, ids({0, 1})); }, "gather_rows: out and x overlap");
}

TEST_P(ChecksTest, Elementwise) {
  const Tensor x = activation(2, 8), odd = activation(2, 3), factors(DType::kF32, {3});
  expect_invalid([&] { kernels().activate(odd, x, Activation::kGelu); },
                 "activate: x has shape [2, 8], expected [2, 3]");
  expect_invalid([&] { kernels().clamped_glu(odd, x, 7); },
                 "clamped_glu: x has shape [2, 8], expected [2, 6]");
  expect_invalid([&] { kernels().clamped_glu(activation(2, 4), x, 0); }, "clamped_glu: limit is 0");
  expect_invalid([&] { kernels().clamp(x, -1); }, "clamp: limit is -1, expected a finite number above 0");
  expect_invalid([&] { kernels().clamp(x, std::nanf("")); }, "clamp: limit is");
  expect_invalid([&] { kernels().soft_cap(x, 0); }, "soft_cap: cap is 0");
  expect_invalid([&] { kernels().soft_cap(x, HUGE_VALF); }, "soft_cap: cap is inf");
  expect_invalid([&] { kernels().scale(Tensor(DType::kI32, {2, 8}), 2); }, "scale: x is i32");
  expect_invalid([&] { kernels().scale_rows(x, factors); },
                 "scale_rows: factors is f32 [3], expected f32 [2]");
  expect_invalid([&] { kernels().gate_rows(x, odd); }, "gate_rows: gate has shape [2, 3], expected [2, 1]");
}

TEST_P(ChecksTest, Route) {
  const Tensor logits = activation(2, 6), weights = activation(2, 3), correction(DType::kF32, {5}),
               chosen(DType::kI32, {2, 3});
  const auto call = [&](const RouteOptions& options) {
    kernels().route(chosen, weights, logits, std::nullopt, options);
  };
  EXPECT_NO_THROW(call({.num_groups = 2}));
  expect_invalid([&] { call({.num_groups = 4}); }, "route: 6 experts are not whole groups: num_groups is 4");
  expect_invalid([&] { call({.num_groups = 0}); }, "num_groups is 0");
  expect_invalid([&] { call({.num_groups = 2, .groups_kept = 3}); }, "groups_kept 3");
  expect_invalid([&] { call({.num_groups = 2, .group_best = 4}); }, "group_best 4: there are 2 groups of 3");
  expect_invalid([&] { call({.num_groups = 3, .groups_kept = 1}); }, "route: cannot choose 3 of 2 experts");
  expect_invalid([&] { call({.renormalize = true, .norm_p = 0}); }, "norm_p is 0");
  expect_invalid([&] { kernels().route(chosen, weights, logits, ConstTensorView(correction), {}); },
                 "route: correction is f32 [5], expected f32 [6]");
  expect_invalid(
      [&] {
        kernels().route(Tensor(DType::kI32, {2, 2}), weights, logits, std::nullopt, {});
      },
      "route: ids is i32 [2, 2], expected i32 [2, 3]");
  expect_invalid([&] { kernels().route(chosen, activation(1, 3), logits, std::nullopt, {}); },
                 "route: weights has shape [1, 3]");
}

TEST_P(ChecksTest, SortByExpert) {
  Tensor chosen(DType::kI32, {2, 2});
  const Tensor start(DType::kI32, {4}), rows(DType::kI32, {4}), pairs(DType::kI32, {2, 2});
  const auto call = [&](const std::vector<int32_t>& values) {
    std::copy(values.begin(), values.end(), chosen.span<int32_t>().begin());
    kernels().sort_by_expert(start, rows, pairs, chosen);
  };
  EXPECT_NO_THROW(call({0, 1, 2, 0}));
  expect_invalid([&] { call({0, 1, 3, 0}); }, "sort_by_expert: ids[1, 0] is 3, expected [0, 3)");
  expect_invalid([&] { call({0, -1, 2, 0}); }, "sort_by_expert: ids[0, 1] is -1");
  expect_invalid([&] { kernels().sort_by_expert(start, ids({0}), pairs, chosen); },
                 "sort_by_expert: row_tokens is i32 [1], expected i32 [4]");
  expect_invalid([&] { kernels().sort_by_expert(start, rows, rows, chosen); },
                 "sort_by_expert: pair_rows is");
  expect_invalid([&] { kernels().sort_by_expert(ids({0}), rows, pairs, chosen); },
                 "sort_by_expert: expert_start");
}

TEST_P(ChecksTest, ExpertLinear) {
  const auto a = weight(5, 8), b = weight(5, 8), odd = weight(4, 8);
  const std::vector<const PackedWeight*> experts = {a.get(), b.get()}, mixed = {a.get(), odd.get()};
  const Tensor x = activation(3, 8), out = activation(3, 5), bias(DType::kF32, {1, 5});
  const auto call = [&](const std::vector<int64_t>& start) {
    kernels().expert_linear(out, x, experts, ids(start));
  };
  EXPECT_NO_THROW(call({0, 0, 3}));
  expect_invalid([&] { call({0, 3}); }, "expert_linear: expert_start is i32 [2], expected i32 [3]");
  expect_invalid([&] { call({0, 2, 1}); }, "expert_linear: expert_start[2] is 1, expected [2, 3]");
  expect_invalid([&] { call({0, 4, 4}); }, "expert_linear: expert_start[1] is 4, expected [0, 3]");
  expect_invalid([&] { call({-1, 2, 3}); }, "expert_linear: expert_start[0] is -1");
  expect_invalid([&] { call({1, 2, 3}); }, "expert_linear: expert_start goes from 1 to 3, x has 3 rows");
  expect_invalid([&] { call({0, 1, 2}); }, "expert_linear: expert_start goes from 0 to 2, x has 3 rows");
  expect_invalid([&] { kernels().expert_linear(out, x, {}, ids({0})); }, "expert_linear: no experts");
  expect_invalid(
      [&] {
        kernels().expert_linear(out, x, mixed, ids({0, 1, 3}));
      },
      "expert_linear: the experts differ: [5, 8] and [4, 8]");
  expect_invalid(
      [&] {
        kernels().expert_linear(out, x, experts, ids({0, 1, 3}), ConstTensorView(bias));
      },
      "expert_linear: bias is f32 [1, 5], expected f32 [2, 5]");
  expect_invalid(
      [&] {
        kernels().expert_linear(x, x, experts, ids({0, 1, 3}));
      },
      "expert_linear: out has shape");
  const Tensor raw(DType::kF32, {5, 8});
  const auto other = pack(GetParam() ? ref_kernels() : kernels_of(Backend::kPortable), raw);
  const std::vector<const PackedWeight*> foreign = {a.get(), other.get()};
  expect_invalid(
      [&] {
        kernels().expert_linear(out, x, foreign, ids({0, 1, 3}));
      },
      "the weight was packed by another back end");
}

TEST_P(ChecksTest, CombineExperts) {
  const Tensor x = activation(4, 8), weights = activation(2, 2), out = activation(2, 8);
  Tensor rows(DType::kI32, {2, 2});
  const auto call = [&](const std::vector<int32_t>& values) {
    std::copy(values.begin(), values.end(), rows.span<int32_t>().begin());
    kernels().combine_experts(out, x, weights, rows);
  };
  EXPECT_NO_THROW(call({0, 1, 3, 0}));
  expect_invalid([&] { call({0, 1, 4, 0}); }, "combine_experts: pair_rows[1, 0] is 4, expected [0, 4)");
  expect_invalid([&] { call({0, -1, 2, 0}); }, "combine_experts: pair_rows[0, 1] is -1");
  expect_invalid([&] { kernels().combine_experts(out, x, activation(1, 2), rows); },
                 "combine_experts: weights has shape [1, 2], expected [2, 2]");
  expect_invalid([&] { kernels().combine_experts(out, activation(4, 7), weights, rows); },
                 "combine_experts: x has shape [4, 7], expected [4, 8]");
  expect_invalid([&] { kernels().combine_experts(x.view().slice_rows(0, 2), x, weights, rows); },
                 "combine_experts: out and x overlap");
}

TEST_P(ChecksTest, EmptyCallsDoNothing) {
  const Tensor none = activation(0, 8), weight_row(DType::kF32, {8}), empty_ids = ids({});
  Pool pool(DType::kF32);
  const Tensor table(DType::kI32, {0, 2}), none16 = activation(0, 16), inv_freq(DType::kF64, {1, 4}),
                                           scale(DType::kF64, {1});
  kernels().embedding(none, empty_ids, *weight(5, 8));
  kernels().linear(activation(0, 5), none, *weight(5, 8));
  kernels().norm(none, none, weight_row, {});
  kernels().add_norm(none, none, none, weight_row, {});
  kernels().rope_table(none, empty_ids, inv_freq, scale, empty_ids);
  kernels().rope(none, activation(0, 4), {.head_dim = 4});
  kernels().kv_write(pool.view, 0, none, none, index_tensor(DType::kI64, {}));
  kernels().attention(none16, none16, pool.view, {ids({0}), empty_ids, table}, {.num_heads = 4});
  kernels().glu(none, none16, Activation::kSilu);
  kernels().clamped_glu(none, none16, 7);
  kernels().activate(none, none, Activation::kGelu);
  kernels().add(none, none, none);
  kernels().scale(none, 2);
  kernels().scale_rows(none, Tensor(DType::kF32, {0}));
  kernels().gate_rows(none, activation(0, 1));
  kernels().clamp(none, 1);
  kernels().soft_cap(none, 1);
  const Tensor no_pairs(DType::kI32, {0, 2}), start = ids({7, 7, 7});
  kernels().route(no_pairs, activation(0, 2), none, std::nullopt, {});
  kernels().sort_by_expert(start, empty_ids, no_pairs, no_pairs);
  for (const int32_t value : start.span<int32_t>()) EXPECT_EQ(value, 0);
  const auto expert = weight(5, 8);
  const std::vector<const PackedWeight*> experts = {expert.get()};
  kernels().expert_linear(activation(0, 5), none, experts, ids({0, 0}));
  kernels().combine_experts(none, none, activation(0, 2), no_pairs);
  kernels().gather_rows(none, none, empty_ids);
}

INSTANTIATE_TEST_SUITE_P(BackEnds, ChecksTest,
                         ::testing::Values(std::nullopt, Backend::kPortable, Backend::kAvx2,
                                           Backend::kAvx512),
                         [](const auto& test) {
                           return test.param ? std::string(to_string(*test.param)) : std::string("ref");
                         });

TEST(CpuIsas, BestIsAvailableAndMissingOnesAreRefused) {
  EXPECT_TRUE(cpu_isa_available(CpuIsa::kPortable));
  EXPECT_TRUE(cpu_isa_available(best_cpu_isa()));
  for (const CpuIsa isa : {CpuIsa::kPortable, CpuIsa::kAvx2, CpuIsa::kAvx512}) {
    if (cpu_isa_available(isa)) {
      EXPECT_EQ(make_cpu_kernels(test_threads(), {.isa = isa})->name(), cat("cpu-", isa));
      continue;
    }
    try {
      make_cpu_kernels(test_threads(), {.isa = isa});
      ADD_FAILURE() << "no error for " << to_string(isa);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    }
  }
}

TEST(CpuKernels, TakesF32ActivationsOnly) {
  const Kernels& cpu = kernels_of(Backend::kPortable);
  const Tensor x(DType::kBF16, {1, 8}), weight(DType::kF32, {8});
  expect_invalid([&] { cpu.norm(x, x, weight, {}); }, "norm: x is bf16, back end cpu-portable takes f32");
  Pool pool(DType::kF64);
  const Tensor k(DType::kF32, {1, 8});
  expect_invalid([&] { cpu.kv_write(pool.view, 0, k, k, index_tensor(DType::kI64, {0})); },
                 "the KV cache is f64, which back end cpu-portable does not take");
}

}  // namespace
}  // namespace lmdeploy
