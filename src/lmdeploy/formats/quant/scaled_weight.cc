// 8-bit weights [out, in] with a scale for the whole tensor, a row, a group of a row or a block: fp8
// checkpoints, SmoothQuant, and compressed-tensors that are not packed.
#include <algorithm>
#include <array>
#include <cstring>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/float8.h"
#include "lmdeploy/formats/quant/quant_module.h"

namespace lmdeploy {
namespace {

int64_t up(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

struct Scaled {
  size_t weight, scale;
  std::optional<size_t> zero_point;
  int64_t out, in;
  int64_t block_rows, block_cols;  // elements that share a scale
  int64_t blocks_per_row() const { return up(in, block_cols); }
};

std::array<float, 256> values_of(DType dtype) {
  std::array<float, 256> values{};
  for (size_t code = 0; code < values.size(); ++code) {
    const auto bits = static_cast<uint8_t>(code);
    values[code] = dtype == DType::kF8E4M3 ? to_float(F8E4M3{bits}) : to_float(F8E5M2{bits});
  }
  return values;
}

void decode_floats(const Scaled& s, const Checkpoint& base, float* weight) {
  const ConstTensorView codes = base.tensor(s.weight);
  const std::array<float, 256> values = values_of(codes.dtype());
  const std::vector<float> scales = floats_of(base.tensor(s.scale));
  const int8_t* zeros = s.zero_point ? base.tensor(*s.zero_point).row<int8_t>(0) : nullptr;
  const auto* code = codes.row<uint8_t>(0);
  for (int64_t o = 0; o < s.out; ++o) {
    const int64_t first_block = o / s.block_rows * s.blocks_per_row();
    for (int64_t begin = 0, block = first_block; begin < s.in; begin += s.block_cols, ++block) {
      const float scale = scales[static_cast<size_t>(block)];
      const float zero = zeros == nullptr ? 0.0f : static_cast<float>(zeros[block]);
      for (int64_t k = begin; k < std::min(s.in, begin + s.block_cols); ++k)
        weight[o * s.in + k] = (values[code[o * s.in + k]] - zero) * scale;
    }
  }
}

// The codes as they are, with the scale of their block in front of each group.
void decode_codes(const Scaled& s, const Checkpoint& base, std::byte* weight) {
  const auto* code = base.tensor(s.weight).row<uint8_t>(0);
  const std::vector<float> scales = floats_of(base.tensor(s.scale));
  const int64_t size = block_size(DType::kF8G64);
  for (int64_t o = 0; o < s.out; ++o) {
    const int64_t first_block = o / s.block_rows * s.blocks_per_row();
    for (int64_t k = 0; k < s.in; k += size, code += size) {
      std::memcpy(weight, &scales[static_cast<size_t>(first_block + k / s.block_cols)], sizeof(float));
      std::memcpy(weight + sizeof(float), code, static_cast<size_t>(size));
      weight += block_bytes(DType::kF8G64);
    }
  }
}

void decode_integers(const Scaled& s, DType dtype, const Checkpoint& base, std::byte* weight) {
  const auto* q = base.tensor(s.weight).row<int8_t>(0);
  const std::vector<float> scales = floats_of(base.tensor(s.scale));
  const int8_t* zeros = s.zero_point ? base.tensor(*s.zero_point).row<int8_t>(0) : nullptr;
  const int64_t blocks = s.blocks_per_row();
  IntegerRow row(s.in, blocks);
  for (int64_t o = 0; o < s.out; ++o) {
    const int64_t first_block = o / s.block_rows * blocks;
    for (int64_t g = 0; g < blocks; ++g) {
      row.zeros[static_cast<size_t>(g)] = zeros == nullptr ? 0 : zeros[first_block + g];
      row.scales[static_cast<size_t>(g)] = scales[static_cast<size_t>(first_block + g)];
    }
    std::copy_n(q + o * s.in, s.in, row.q.begin());
    row.write(dtype, s.block_cols, weight + o * row_bytes(dtype, s.in));
  }
}

// From the shape of the scales; false when it fits nothing.
bool choose_block(const Shape& scale, const QuantConfig& config, Scaled& s) {
  const auto set = [&](int64_t rows, int64_t cols) {
    s.block_rows = rows;
    s.block_cols = cols;
    return true;
  };
  if (scale.numel() == 1) return set(std::max<int64_t>(1, s.out), std::max<int64_t>(1, s.in));
  const bool per_row = scale == Shape{s.out} || scale == Shape{s.out, 1};
  if (per_row) return set(1, std::max<int64_t>(1, s.in));
  if (scale.rank() != 2) return false;
  if (scale[0] == up(s.out, config.block_rows) && scale[1] == up(s.in, config.block_cols))
    return set(config.block_rows, config.block_cols);
  for (const int64_t size : config.group_sizes) {
    if (size > 0 && scale[0] == s.out && s.in % size == 0 && scale[1] == s.in / size) return set(1, size);
  }
  return false;
}

// The kind that holds the stored numbers as they are, or f32.
DType kind_of(const Scaled& s, DType stored) {
  if (stored == DType::kI8) return integer_kind(8, s.block_cols, s.in);
  const int64_t size = block_size(DType::kF8G64);
  const bool one_scale = s.block_cols % size == 0 || s.block_cols >= s.in;  // in each group of a row
  const bool as_it_is = stored == DType::kF8E4M3 && !s.zero_point && s.in % size == 0 && one_scale;
  return as_it_is ? DType::kF8G64 : DType::kF32;
}

std::optional<size_t> find_scale(QuantModule& module) {
  for (const std::string_view suffix : {".weight_scale", ".weight_scale_inv", ".scale"}) {
    if (const std::optional<size_t> found = module.find(suffix)) return found;
  }
  return std::nullopt;
}

}  // namespace

Recipe scaled_recipe(QuantModule module, const QuantConfig& config) {
  Scaled s{};
  s.weight = module.require(".weight");
  module.expect_rank(s.weight, 2);
  s.out = module.info(s.weight).shape[0];
  s.in = module.info(s.weight).shape[1];
  const std::optional<size_t> scale = find_scale(module);
  if (!scale)
    module.fail(s.weight, cat("is ", module.info(s.weight).dtype, " without a scale; looked for ",
                              module.prefix(), ".weight_scale, .weight_scale_inv and .scale"));
  s.scale = *scale;
  const Shape& shape = module.info(s.scale).shape;
  module.expect(s.scale, kScaleTypes, shape);
  if (!choose_block(shape, config, s))
    module.fail(s.scale,
                cat("is ", shape, ", expected [1], [", s.out, ", 1] or one for each block of ",
                    config.block_rows, " x ", config.block_cols, " of the weight ", Shape{s.out, s.in}));
  if (config.needs_zeros && module.info(s.weight).dtype == DType::kI8) module.require(".weight_zero_point");
  s.zero_point = module.find(".weight_zero_point");
  if (s.zero_point) module.expect(*s.zero_point, {DType::kI8}, shape);
  const bool integers = module.info(s.weight).dtype == DType::kI8;
  const DType dtype = kind_of(s, module.info(s.weight).dtype);
  return module.recipe(s.weight, cat(module.prefix(), ".weight"), dtype, {s.out, s.in},
                       [s, dtype, integers](const Checkpoint& base, std::byte* weight) {
                         if (integers) return decode_integers(s, dtype, base, weight);
                         if (dtype == DType::kF8G64) return decode_codes(s, base, weight);
                         decode_floats(s, base, reinterpret_cast<float*>(weight));
                       });
}

}  // namespace lmdeploy
