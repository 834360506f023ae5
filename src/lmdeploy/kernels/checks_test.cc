// Bad arguments end in one Error(kInvalidArgument) that names op and tensor, on every back end, before any
// memory is touched; empty calls do nothing.
#include "lmdeploy/kernels/testing.h"

namespace lmdeploy {
namespace {

/// nullopt: the reference.
class ChecksTest : public ::testing::TestWithParam<std::optional<CpuIsa>> {
 protected:
  void SetUp() override {
    if (GetParam()) LMD_REQUIRE_ISA(*GetParam());
  }
  const Kernels& kernels() const { return GetParam() ? cpu_kernels(*GetParam()) : ref_kernels(); }
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
  const auto other = pack(GetParam() ? ref_kernels() : cpu_kernels(CpuIsa::kPortable), raw);
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
  kernels().add(none, none, none);
  kernels().gather_rows(none, none, empty_ids);
}

INSTANTIATE_TEST_SUITE_P(BackEnds, ChecksTest,
                         ::testing::Values(std::nullopt, CpuIsa::kPortable, CpuIsa::kAvx2, CpuIsa::kAvx512),
                         [](const auto& test) {
                           return test.param ? std::string(to_string(*test.param)) : std::string("ref");
                         });

TEST(CpuIsas, BestIsAvailableAndMissingOnesAreRefused) {
  EXPECT_TRUE(cpu_isa_available(CpuIsa::kPortable));
  EXPECT_TRUE(cpu_isa_available(best_cpu_isa()));
  for (const CpuIsa isa : kAllIsas) {
    if (cpu_isa_available(isa)) {
      EXPECT_EQ(make_cpu_kernels(test_threads(), isa)->name(), cat("cpu-", isa));
      continue;
    }
    try {
      make_cpu_kernels(test_threads(), isa);
      ADD_FAILURE() << "no error for " << to_string(isa);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    }
  }
}

TEST(CpuKernels, TakesF32ActivationsOnly) {
  const Kernels& cpu = cpu_kernels(CpuIsa::kPortable);
  const Tensor x(DType::kBF16, {1, 8}), weight(DType::kF32, {8});
  expect_invalid([&] { cpu.norm(x, x, weight, {}); }, "norm: x is bf16, back end cpu-portable takes f32");
  Pool pool(DType::kF64);
  const Tensor k(DType::kF32, {1, 8});
  expect_invalid([&] { cpu.kv_write(pool.view, 0, k, k, index_tensor(DType::kI64, {0})); },
                 "the KV cache is f64, which back end cpu-portable does not take");
}

}  // namespace
}  // namespace lmdeploy
