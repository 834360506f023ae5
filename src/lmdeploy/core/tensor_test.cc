// Shapes, views, element access in every dtype, and the buffers below.
#include "lmdeploy/core/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <utility>

#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

TEST(Tensor, StoresAndReadsEveryNumberType) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kI64, DType::kI32,
                            DType::kI16, DType::kI8, DType::kU8}) {
    const Tensor t(dtype, {3, 5});
    for (int64_t r = 0; r < 3; ++r)
      for (int64_t c = 0; c < 5; ++c) t.view().set(r, c, static_cast<double>(r * 5 + c));
    for (int64_t r = 0; r < 3; ++r)
      for (int64_t c = 0; c < 5; ++c) EXPECT_EQ(t.view().at(r, c), r * 5 + c) << to_string(dtype);
    EXPECT_EQ(t.bytes(), static_cast<size_t>(15 * block_bytes(dtype)));
  }
}

TEST(Tensor, RoundsF64ToBf16Once) {
  // 1 + 2^-8 is the middle of two bf16 values; a hair above it must round up although f32 cannot hold the
  // hair.
  const Tensor t(DType::kBF16, {1});
  t.view().set(0, 1 + 0x1p-8 + 0x1p-40);
  EXPECT_EQ(t.view().at(0), 1 + 0x1p-7);
  t.view().set(0, 1 + 0x1p-8);
  EXPECT_EQ(t.view().at(0), 1.0);  // tie to even
  t.view().set(0, -(1 + 0x1p-8 + 0x1p-40));
  EXPECT_EQ(t.view().at(0), -(1 + 0x1p-7));
}

TEST(Tensor, SlicesShareMemory) {
  const Tensor t(DType::kF32, {4, 6});
  for (int64_t r = 0; r < 4; ++r)
    for (int64_t c = 0; c < 6; ++c) t.view().set(r, c, static_cast<double>(10 * r + c));
  const TensorView columns = t.view().slice_cols(2, 3);
  EXPECT_FALSE(columns.contiguous());
  EXPECT_EQ(columns.rows(), 4);
  EXPECT_EQ(columns.at(3, 1), 33);
  const TensorView rows = columns.slice_rows(1, 2);
  EXPECT_EQ(rows.at(0, 0), 12);
  rows.set(0, 0, -1);
  EXPECT_EQ(t.view().at(1, 2), -1);
  EXPECT_DEATH(t.view().slice_rows(3, 2), "check failed");
}

TEST(Tensor, QuantisedRowsAreCountedInBlocks) {
  EXPECT_EQ(row_bytes(DType::kQ4_1, 64), 40);
  EXPECT_EQ(row_bytes(DType::kQ6_K, 512), 420);
  EXPECT_DEATH(row_bytes(DType::kQ4_0, 33), "check failed");
  const Tensor t(DType::kQ8_0, {3, 64});
  EXPECT_EQ(t.bytes(), 3u * 68u);
}

TEST(Tensor, NamesOfTypesGoBothWays) {
  EXPECT_EQ(dtype_from_string("q5_k"), DType::kQ5_K);
  EXPECT_EQ(to_string(DType::kBF16), "bf16");
  EXPECT_FALSE(dtype_from_string("f17").has_value());
  EXPECT_EQ(to_string(Shape{2, 576}), "[2, 576]");
}

TEST(Allocator, LargeBuffersAreHugePageAlignedAndMoveOnce) {
  Buffer big(size_t{5} << 20, host_allocator());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(big.data()) % (size_t{2} << 20), 0u);
  std::memset(big.data(), 1, big.size());
  std::byte* data = big.data();
  const Buffer moved = std::move(big);
  EXPECT_EQ(moved.data(), data);
  EXPECT_EQ(big.data(), nullptr);  // NOLINT: moved-from on purpose
  const Buffer small(100, host_allocator());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(small.data()) % 64, 0u);
}

TEST(Allocator, AnImpossibleSizeIsAnErrorNotACrash) {
  try {
    const Buffer buffer(size_t{1} << 62, host_allocator());
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kResourceExhausted);
    EXPECT_NE(std::string(e.what()).find("4611686018427387904"), std::string::npos);
  }
}

}  // namespace
}  // namespace lmdeploy
