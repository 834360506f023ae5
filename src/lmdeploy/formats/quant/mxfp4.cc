// MXFP4 (OCP microscaling formats 1.0): NAME_blocks u8 [..., rows, in / 32, 16], low nibble first, and
// NAME_scales u8 [..., rows, in / 32]; an element is e2m1 * 2^(scale - 127), a scale of 255 is NaN.
// Shown as NAME.weight [..., rows, in]: unquantised exports keep NAME [..., in, rows].
#include <array>
#include <cmath>
#include <limits>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/quant/quant_module.h"

namespace lmdeploy {
namespace {

constexpr int kZero = 12;
// 2 * e2m1 + kZero; -0 becomes 0.
constexpr std::array<int16_t, 16> kIntegers = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
constexpr int64_t kBlock = 32, kBlockBytes = 16;

float scale_of(uint8_t code) {
  return code == 255 ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(0.5f, code - 127);
}

void decode(const Checkpoint& base, size_t blocks, size_t scales, std::byte* out) {
  const ConstTensorView scale_view = base.tensor(scales);
  const auto* bytes = base.tensor(blocks).row<uint8_t>(0);
  const auto* codes = scale_view.row<uint8_t>(0);
  const int64_t count = scale_view.rows() * scale_view.cols();
  IntegerRow row(kBlock, 1);
  row.zeros[0] = kZero;
  for (int64_t b = 0; b < count; ++b) {
    row.scales[0] = scale_of(codes[b]);
    for (size_t i = 0; i < kBlockBytes; ++i) {
      const uint8_t pair = bytes[static_cast<size_t>(b * kBlockBytes) + i];
      row.q[2 * i] = kIntegers[pair & 15];
      row.q[2 * i + 1] = kIntegers[pair >> 4];
    }
    row.write(DType::kU5G32, kBlock, out + b * block_bytes(DType::kU5G32));
  }
}

}  // namespace

Recipe mxfp4_recipe(QuantModule module, const QuantConfig&) {
  const size_t blocks = module.require("_blocks"), scales = module.require("_scales");
  const Shape& shape = module.info(blocks).shape;
  const int rank = shape.rank();
  module.expect_rank(blocks, rank < 3 ? 4 : rank);
  std::vector<int64_t> dims;  // of the scales: all but the bytes of a block
  for (int i = 0; i + 1 < rank; ++i) dims.push_back(shape[i]);
  const Shape scale_shape(dims);
  dims.push_back(kBlockBytes);
  module.expect(blocks, {DType::kU8}, Shape(dims));
  module.expect(scales, {DType::kU8}, scale_shape);
  dims.pop_back();
  dims.back() *= kBlock;
  return module.recipe(
      blocks, module.prefix() + ".weight", DType::kU5G32, Shape(dims),
      [blocks, scales](const Checkpoint& base, std::byte* out) { decode(base, blocks, scales, out); });
}

}  // namespace lmdeploy
