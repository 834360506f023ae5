// GPTQ: qweight i32 [in * bits / 32, out], qzeros i32 [groups, out * bits / 32], scales [groups, out], g_idx
// i32 [in]; integers are packed along the inputs (zeros: the outputs), lowest bits first, over word borders
// (3 bits).
#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/quant/quant_module.h"

namespace lmdeploy {
namespace {

struct Gptq {
  size_t qweight, qzeros, scales;
  std::optional<size_t> g_idx;
  int64_t in, out, groups, group_size;
  int bits;
  int zero_offset;
};

void decode(const Gptq& gptq, const IntegerColumns& columns, const Checkpoint& base, std::byte* weight) {
  const auto* q = base.tensor(gptq.qweight).row<uint32_t>(0);
  const auto* zeros = base.tensor(gptq.qzeros).row<uint32_t>(0);
  const int64_t zero_words = gptq.out * gptq.bits / 32;
  const int sign = gptq.bits == 8 ? 128 : 0;  // 8 bits are kept as signed ones
  const std::vector<float> scales = floats_of(base.tensor(gptq.scales));
  IntegerRow row(gptq.in, gptq.groups);
  for (int64_t o = 0; o < gptq.out; ++o) {
    for (int64_t g = 0; g < gptq.groups; ++g) {
      const int zero = packed_integer(zeros + g * zero_words, 1, o, gptq.bits) + gptq.zero_offset;
      row.zeros[static_cast<size_t>(g)] = zero - sign;
      row.scales[static_cast<size_t>(g)] = scales[static_cast<size_t>(g * gptq.out + o)];
    }
    for (size_t k = 0; k < row.q.size(); ++k)
      row.q[k] = static_cast<int16_t>(packed_integer(q + o, gptq.out, columns.input(k), gptq.bits) - sign);
    row.write(columns, gptq.group_size, weight + o * row_bytes(columns.dtype, gptq.in));
  }
}

// What the config says, else what the zeros say: they have out * bits / 32 words.
int bits_of(const QuantModule& module, size_t qzeros, int64_t out, const QuantConfig& config) {
  if (!config.bits.empty()) return static_cast<int>(config.bits[0]);
  for (const int bits : {2, 3, 4, 8}) {
    if (out * bits % 32 == 0 && module.info(qzeros).shape[1] == out * bits / 32) return bits;
  }
  module.fail(qzeros, cat("is ", module.info(qzeros).shape, ", expected columns of 2, 3, 4 or 8 bits for ",
                          out, " outputs"));
}

}  // namespace

Recipe gptq_recipe(QuantModule module, const QuantConfig& config) {
  Gptq gptq{};
  gptq.qweight = module.require(".qweight");
  gptq.scales = module.require(".scales");
  gptq.qzeros = module.require(".qzeros");
  gptq.g_idx = module.find(".g_idx");
  for (const size_t tensor : {gptq.qweight, gptq.scales, gptq.qzeros}) module.expect_rank(tensor, 2);
  gptq.groups = module.info(gptq.scales).shape[0];
  gptq.out = module.info(gptq.scales).shape[1];
  gptq.bits = bits_of(module, gptq.qzeros, gptq.out, config);
  gptq.zero_offset = config.zero_is_less_one ? 1 : 0;
  const int64_t words = module.info(gptq.qweight).shape[0];
  if (words * 32 % gptq.bits != 0 || gptq.out * gptq.bits % 32 != 0)
    module.fail(gptq.qweight, cat("is ", module.info(gptq.qweight).shape, ", which ", gptq.bits,
                                  "-bit integers do not fill"));
  gptq.in = words * 32 / gptq.bits;
  module.expect(gptq.qweight, {DType::kI32}, {words, gptq.out});
  module.expect(gptq.scales, kScaleTypes, {gptq.groups, gptq.out});
  gptq.group_size = module.group_size(gptq.scales, gptq.in, gptq.groups, config);
  module.expect(gptq.qzeros, {DType::kI32}, {gptq.groups, gptq.out * gptq.bits / 32});
  if (config.needs_group_index && gptq.groups > 1) module.require(".g_idx");
  if (gptq.g_idx) module.expect(*gptq.g_idx, {DType::kI32}, {gptq.in});
  const IntegerColumns columns = integer_columns(module, gptq.g_idx, gptq.bits, gptq.groups, gptq.group_size);
  Recipe recipe = module.recipe(
      gptq.qweight, cat(module.prefix(), ".weight"), columns.dtype, {gptq.out, gptq.in},
      [gptq, columns](const Checkpoint& base, std::byte* weight) { decode(gptq, columns, base, weight); });
  recipe.info.column_order = columns.order;
  return recipe;
}

}  // namespace lmdeploy
