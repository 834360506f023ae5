// A KV cache in u8 and u4: its bytes read here as KvLayout describes them, and by attention().
#include <bit>

#include "lmdeploy/kernels/testing.h"

namespace lmdeploy {
namespace {

/// One layer, one head, one block of `tokens` tokens.
class SmallCache {
 public:
  SmallCache(DType dtype, int64_t tokens, int64_t head_dim) {
    view_.layout = {
        .dtype = dtype, .num_layers = 1, .num_kv_heads = 1, .head_dim = head_dim, .block_len = tokens};
    view_.num_blocks = 1;
    memory_ = Tensor(DType::kU8, {view_.layout.block_bytes()});
    std::memset(memory_.view().data(), 0xff, memory_.bytes());
    view_.data = memory_.view().data();
  }

  const KvCacheView& view() const { return view_; }
  void write(const Kernels& kernels, ConstTensorView x) const {
    std::vector<int64_t> slots(static_cast<size_t>(x.rows()));
    for (size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<int64_t>(i);
    kernels.kv_write(view_, 0, x, x, index_tensor(DType::kI64, slots));
  }
  // Of values; `kv` 0: of keys, which in u4 have two pairs a row.
  double scale(int64_t t, int64_t d = 0, int kv = 1) const { return param(t, d, kv, 0); }
  double min(int64_t t, int64_t d = 0, int kv = 1) const { return param(t, d, kv, 1); }
  int code(int64_t t, int64_t d, int kv = 1) const {
    const auto* row = reinterpret_cast<const uint8_t*>(plane(kv)) + t * view_.layout.row_bytes();
    if (!packed()) return row[d];
    return d < half() ? row[d] % 16 : row[d - half()] / 16;
  }
  double decoded(int64_t t, int64_t d, int kv = 1) const {
    return code(t, d, kv) * scale(t, d, kv) + min(t, d, kv);
  }

 private:
  bool packed() const { return view_.layout.dtype == DType::kU4; }
  int64_t half() const { return (view_.layout.head_dim + 1) / 2; }
  int64_t codes_bytes() const { return (view_.layout.block_len * view_.layout.row_bytes() + 3) / 4 * 4; }
  const std::byte* plane(int kv) const {
    return view_.data + kv * (codes_bytes() + view_.layout.block_len * (packed() ? 8 : 4));
  }
  double param(int64_t t, int64_t d, int kv, int64_t which) const {
    const int64_t parts = packed() && kv == 0 ? 2 : 1, part = parts == 2 && d >= half() ? 1 : 0;
    const ConstTensorView row(plane(kv) + codes_bytes() + t * parts * 4, DType::kF16, {2 * parts});
    return row.at(2 * part + which);
  }

  KvCacheView view_;
  Tensor memory_;
};

class KvQuantTest : public ::testing::TestWithParam<std::tuple<Backend, DType>> {
 protected:
  static Backend backend() { return std::get<0>(GetParam()); }
  static DType dtype() { return std::get<1>(GetParam()); }
  static double max_code() { return dtype() == DType::kU8 ? 255 : 15; }
  static TestTensor rows_of(int64_t tokens, int64_t head_dim) {
    return {dtype_of(backend()), tokens, head_dim};
  }

  // Half a step, and what rounding min and scale to f16 moves: the min by half a unit of its own, the top
  // code by half a unit of the scale each step, be that subnormal; f32 rounds far below.
  static double bound(double scale, double min) {
    const auto rounding = [](double value) { return std::max(std::abs(value) * 0x1p-11, 0x1p-25); };
    return scale / 2 + rounding(min) + max_code() * rounding(scale) +
           (std::abs(min) + max_code() * scale) * 4 * epsilon(DType::kF32);
  }
  // What the cache keeps of element d of a key.
  static double turned(ConstTensorView x, int64_t t, int64_t d) {
    if (dtype() == DType::kU8) return x.at(t, d);
    int64_t run = 1;
    while (x.cols() % (2 * run) == 0) run *= 2;
    double sum = 0;
    for (int64_t i = 0; i < run; ++i) {
      const double value = x.at(t, d / run * run + i);
      sum += std::popcount(static_cast<uint64_t>(i & d)) % 2 == 0 ? value : -value;
    }
    return sum / std::sqrt(static_cast<double>(run));
  }
  void expect_within_bound(ConstTensorView x) const {
    const SmallCache cache(dtype(), x.rows(), x.cols());
    cache.write(kernels_of(backend()), x);
    for (int64_t t = 0; t < x.rows(); ++t) {
      double largest = 0;
      for (int64_t d = 0; d < x.cols(); ++d) largest = std::max(largest, std::abs(x.at(t, d)));
      for (int64_t d = 0; d < x.cols(); ++d) {
        ASSERT_NEAR(cache.decoded(t, d), x.at(t, d), bound(cache.scale(t), cache.min(t)))
            << "row " << t << ", element " << d << ", scale " << cache.scale(t) << ", min " << cache.min(t);
        const double scale = cache.scale(t, d, 0), min = cache.min(t, d, 0);
        const double turning = 24 * static_cast<double>(x.cols()) * largest * epsilon(DType::kF32);
        ASSERT_NEAR(cache.decoded(t, d, 0), turned(x, t, d), bound(scale, min) + turning)
            << "key " << t << ", element " << d << ", scale " << scale << ", min " << min;
      }
    }
  }
};

#define LMD_REQUIRE_QUANT()       \
  LMD_REQUIRE_BACKEND(backend()); \
  LMD_REQUIRE_CACHE(backend(), dtype())

TEST_P(KvQuantTest, StaysWithinHalfAStep) {
  LMD_REQUIRE_QUANT();
  Rng rng(46);
  for (const int64_t head_dim : {1, 2, 7, 16, 33, 64, 80, 128, 576}) {
    SCOPED_TRACE(cat("head_dim ", head_dim));
    TestTensor x = random_tensor(rng, dtype_of(backend()), 40, head_dim);
    expect_within_bound(x);
    // An outlier channel, a row far from 0, ranges that are subnormal in f16 and rows that nearly leave
    // its range once they are turned.
    for (int64_t t = 0; t < 10; ++t) {
      x.view().set(t, head_dim / 2, 30 * x.at(t, head_dim / 2));
      for (int64_t d = 0; d < head_dim; ++d) {
        x.view().set(10 + t, d, 100 + x.at(10 + t, d));
        x.view().set(20 + t, d, 1e-6 * x.at(20 + t, d));
        x.view().set(30 + t, d, 2e3 * x.at(30 + t, d));
      }
    }
    expect_within_bound(x);
  }
}

TEST_P(KvQuantTest, EqualValuesAreExact) {
  LMD_REQUIRE_QUANT();
  const double most = dtype_of(backend()) == DType::kBF16 ? 65280 : 65504;  // in f16's range
  const double values[] = {0, -0.0, 1, -0.75, 30.5, -1000, most, -most, 0x1p-24, 6.103515625e-05};
  constexpr int64_t kRows = std::size(values);
  const TestTensor x = rows_of(kRows, 19);
  for (int64_t t = 0; t < kRows; ++t)
    for (int64_t d = 0; d < 19; ++d) x.view().set(t, d, values[t]);
  const SmallCache cache(dtype(), kRows, 19);
  cache.write(kernels_of(backend()), x);
  for (int64_t t = 0; t < kRows; ++t)
    for (int64_t d = 0; d < 19; ++d) EXPECT_EQ(cache.decoded(t, d), x.at(t, d)) << values[t];
}

TEST_P(KvQuantTest, EndsOfARowAreCodesZeroAndMost) {
  LMD_REQUIRE_QUANT();
  const TestTensor x = rows_of(1, 16);
  for (int64_t d = 0; d < 16; ++d) x.view().set(0, d, d == 3 ? -1 : d == 12 ? 2 : 0.5);
  const SmallCache cache(dtype(), 1, 16);
  cache.write(kernels_of(backend()), x);
  EXPECT_EQ(cache.min(0), -1);
  EXPECT_NEAR(cache.scale(0), 3 / max_code(), 3 / max_code() * 0x1p-11);
  EXPECT_EQ(cache.code(0, 3), 0);
  EXPECT_EQ(cache.code(0, 12), max_code());
}

// Values beyond the range of f16 are held by its end; a broken row is broken as a whole and no other is.
TEST_P(KvQuantTest, ExtremesNeitherWrapNorSpread) {
  LMD_REQUIRE_QUANT();
  const TestTensor x = rows_of(5, 8);
  for (int64_t d = 0; d < 8; ++d) {
    x.view().set(0, d, d == 0 ? -3e38 : 3e38);
    x.view().set(1, d, d == 5 ? std::nan("") : 1);
    x.view().set(2, d, d == 7 ? -HUGE_VAL : 1);
    x.view().set(3, d, d == 7 ? HUGE_VAL : 1);
    x.view().set(4, d, d);
  }
  const SmallCache cache(dtype(), 5, 8);
  cache.write(kernels_of(backend()), x);
  if (std::isinf(x.at(0, 1))) return;  // f16 activations
  EXPECT_EQ(cache.decoded(0, 0), -65504);
  EXPECT_EQ(cache.decoded(0, 1), -65504 + 65504 * max_code());
  for (int64_t t = 1; t < 4; ++t)
    for (int64_t d = 0; d < 8; ++d)
      EXPECT_TRUE(std::isnan(cache.decoded(t, d)) && std::isnan(cache.decoded(t, d, 0))) << t << ", " << d;
  for (int64_t d = 0; d < 8; ++d) EXPECT_NEAR(cache.decoded(4, d), d, bound(cache.scale(4), cache.min(4)));
}

// A row that sees one key has its value, decoded.
TEST_P(KvQuantTest, AttentionDecodesWhatWasWritten) {
  LMD_REQUIRE_QUANT();
  Rng rng(3);
  for (const int64_t head_dim : {1, 5, 16, 24, 31, 64, 128}) {
    SCOPED_TRACE(cat("head_dim ", head_dim));
    const TestTensor x = random_tensor(rng, dtype_of(backend()), 1, head_dim), out = rows_of(1, head_dim);
    const SmallCache cache(dtype(), 1, head_dim);
    const Kernels& kernels = kernels_of(backend());
    cache.write(kernels, x);
    const Tensor start = index_tensor(DType::kI32, {0, 1}), one = index_tensor(DType::kI32, {1}),
                 block = index_tensor(DType::kI32, {0});
    const ConstTensorView table(block.view().data(), DType::kI32, {1, 1});
    kernels.attention(out, x, cache.view(), {start, one, table}, {.num_heads = 1});
    for (int64_t d = 0; d < head_dim; ++d)
      EXPECT_NEAR(out.at(0, d), cache.decoded(0, d), 1e-6 + store_error(backend(), 3)) << d;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, KvQuantTest,
                         ::testing::Combine(::testing::ValuesIn(all_backends()),
                                            ::testing::Values(DType::kU8, DType::kU4)),
                         [](const auto& test) {
                           return cat(std::get<0>(test.param), "_", std::get<1>(test.param));
                         });

TEST(KvLayout, BytesOfATokenAreCodesAndParams) {
  const auto bytes_per_token = [](DType dtype, int64_t head_dim, int64_t latent_dim = 0) {
    const KvLayout layout = {.dtype = dtype,
                             .num_layers = 32,
                             .num_kv_heads = 8,
                             .head_dim = head_dim,
                             .block_len = 64,
                             .latent_dim = latent_dim};
    EXPECT_EQ(layout.block_bytes() % 64, 0);
    return layout.block_bytes() / 64;
  };
  EXPECT_EQ(bytes_per_token(DType::kF16, 128), 32 * 8 * 512);
  EXPECT_EQ(bytes_per_token(DType::kU8, 128), 32 * 8 * 264);
  EXPECT_EQ(bytes_per_token(DType::kU4, 128), 32 * 8 * (136 + 4));  // keys have two pairs
  EXPECT_EQ(bytes_per_token(DType::kU8, 64), 32 * 8 * 2 * (64 + 4));
  EXPECT_EQ(bytes_per_token(DType::kU4, 64), 32 * 8 * (2 * (32 + 4) + 4));
  EXPECT_EQ(bytes_per_token(DType::kU4, 576, 512), 32 * 8 * (288 + 4));
  const KvLayout odd = {
      .dtype = DType::kU4, .num_layers = 1, .num_kv_heads = 1, .head_dim = 13, .block_len = 3};
  EXPECT_EQ(odd.block_bytes(), 24 + 24 + 24 + 12);  // 21 bytes of codes each
}

}  // namespace
}  // namespace lmdeploy
