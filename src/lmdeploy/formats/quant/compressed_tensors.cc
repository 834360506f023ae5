// compressed-tensors, "pack-quantized": weight_packed i32 [out, in / per word] along the inputs, stored with
// an offset of half the range; weight_scale [out, groups]; weight_zero_point i32 [out / per word, groups]
// with the same offset, so that the two cancel; weight_shape i64 [2]; weight_g_idx i32 [in].
#include <algorithm>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/quant/quant_module.h"

namespace lmdeploy {
namespace {

struct Packed {
  size_t packed, scale;
  std::optional<size_t> zero_point, g_idx;
  int64_t out, in, groups, group_size;
  int bits;
  int64_t words() const { return (in * bits + 31) / 32; }
};

void decode(const Packed& p, const IntegerColumns& columns, const Checkpoint& base, std::byte* weight) {
  const auto* q = base.tensor(p.packed).row<uint32_t>(0);
  const auto* zeros = p.zero_point ? base.tensor(*p.zero_point).row<uint32_t>(0) : nullptr;
  const std::vector<float> scales = floats_of(base.tensor(p.scale));
  const int half = 1 << (p.bits - 1), sign = p.bits == 8 ? half : 0;  // 8 bits are kept as signed ones
  IntegerRow row(p.in, p.groups);
  for (int64_t o = 0; o < p.out; ++o) {
    for (int64_t g = 0; g < p.groups; ++g) {
      const int zero = zeros == nullptr ? half : packed_integer(zeros + g, p.groups, o, p.bits);
      row.zeros[static_cast<size_t>(g)] = zero - sign;
      row.scales[static_cast<size_t>(g)] = scales[static_cast<size_t>(o * p.groups + g)];
    }
    for (size_t k = 0; k < row.q.size(); ++k)
      row.q[k] = static_cast<int16_t>(packed_integer(q + o * p.words(), 1, columns.input(k), p.bits) - sign);
    row.write(columns, p.group_size, weight + o * row_bytes(columns.dtype, p.in));
  }
}

// [out, in] as stored; without it the last word of a row is taken to be full.
std::optional<int64_t> stored_inputs(QuantModule& module) {
  const std::optional<size_t> shape = module.find(".weight_shape");
  if (!shape) return std::nullopt;
  module.expect(*shape, {DType::kI64, DType::kI32}, {2});
  const ConstTensorView view = module.view(*shape);
  const double in = view.at(1);
  if (!(in >= 1 && in <= 0x1p40)) module.fail(*shape, cat("says ", in, " inputs"));
  return static_cast<int64_t>(in);
}

// 4 or 8, whichever fills the words of a row.
int bits_of(const QuantModule& module, size_t packed, std::optional<int64_t> in, const QuantConfig& config) {
  const int64_t words = module.info(packed).shape[1];
  std::string said;
  for (const int64_t bits : config.bits.empty() ? std::vector<int64_t>{4, 8} : config.bits) {
    if (!in || (*in * bits + 31) / 32 == words) return static_cast<int>(bits);
    said += cat(said.empty() ? "" : " or ", bits);
  }
  module.fail(packed,
              cat("has ", words, " words a row, which do not hold ", *in, " integers of ", said, " bits"));
}

}  // namespace

Recipe compressed_recipe(QuantModule module, const QuantConfig& config) {
  Packed p{};
  p.packed = module.require(".weight_packed");
  p.scale = module.require(".weight_scale");
  if (config.needs_zeros) module.require(".weight_zero_point");
  p.zero_point = module.find(".weight_zero_point");
  p.g_idx = module.find(".weight_g_idx");
  module.expect_rank(p.packed, 2);
  module.expect_rank(p.scale, 2);
  p.out = module.info(p.packed).shape[0];
  p.groups = module.info(p.scale).shape[1];
  const std::optional<int64_t> in = stored_inputs(module);
  p.bits = bits_of(module, p.packed, in, config);
  p.in = in.value_or(module.info(p.packed).shape[1] * 32 / p.bits);
  module.expect(p.packed, {DType::kI32}, {p.out, p.words()});
  module.expect(p.scale, kScaleTypes, {p.out, p.groups});
  p.group_size = module.group_size(p.scale, p.in, p.groups, config);
  if (p.zero_point) module.expect(*p.zero_point, {DType::kI32}, {(p.out * p.bits + 31) / 32, p.groups});
  if (p.g_idx) module.expect(*p.g_idx, {DType::kI32}, {p.in});
  const IntegerColumns columns = integer_columns(module, p.g_idx, p.bits, p.groups, p.group_size);
  Recipe recipe = module.recipe(
      p.packed, cat(module.prefix(), ".weight"), columns.dtype, {p.out, p.in},
      [p, columns](const Checkpoint& base, std::byte* weight) { decode(p, columns, base, weight); });
  recipe.info.column_order = columns.order;
  return recipe;
}

}  // namespace lmdeploy
