// AWQ, "gemm" packing: qweight i32 [in, out / 8], qzeros i32 [groups, out / 8], scales [groups, out].
#include <array>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/quant/quant_module.h"

namespace lmdeploy {
namespace {

// Nibble n of a word holds column kColumn[n] of the word's eight.
constexpr std::array<int64_t, 8> kColumn = {0, 2, 4, 6, 1, 3, 5, 7};

struct Awq {
  size_t qweight, qzeros, scales;
  int64_t in, out, group_size;
};

void decode(const Awq& awq, DType dtype, const Checkpoint& base, std::byte* weight) {
  const int64_t words = awq.out / 8, groups = awq.in / awq.group_size;
  const auto* q = base.tensor(awq.qweight).row<uint32_t>(0);
  const auto* zeros = base.tensor(awq.qzeros).row<uint32_t>(0);
  const std::vector<float> scales = floats_of(base.tensor(awq.scales));
  std::vector<IntegerRow> rows(8, IntegerRow(awq.in, groups));
  for (int64_t j = 0; j < words; ++j) {
    for (size_t n = 0; n < 8; ++n) {
      const size_t shift = 4 * n;
      const int64_t o = 8 * j + kColumn[n];
      for (int64_t g = 0; g < groups; ++g) {
        rows[n].zeros[static_cast<size_t>(g)] = static_cast<int32_t>(zeros[g * words + j] >> shift & 15);
        rows[n].scales[static_cast<size_t>(g)] = scales[static_cast<size_t>(g * awq.out + o)];
      }
    }
    for (int64_t k = 0; k < awq.in; ++k)  // a word holds an input of all eight rows
      for (size_t n = 0; n < 8; ++n)
        rows[n].q[static_cast<size_t>(k)] = static_cast<int16_t>(q[k * words + j] >> 4 * n & 15);
    for (size_t n = 0; n < 8; ++n)
      rows[n].write(dtype, awq.group_size, weight + (8 * j + kColumn[n]) * row_bytes(dtype, awq.in));
  }
}

}  // namespace

Recipe awq_recipe(QuantModule module, const QuantConfig& config) {
  Awq awq{};
  awq.qweight = module.require(".qweight");
  awq.scales = module.require(".scales");
  awq.qzeros = module.require(".qzeros");
  module.expect_rank(awq.qweight, 2);
  module.expect_rank(awq.scales, 2);
  awq.in = module.info(awq.qweight).shape[0];
  awq.out = module.info(awq.scales).shape[1];
  const int64_t groups = module.info(awq.scales).shape[0];
  if (awq.out % 8 != 0) module.fail(awq.scales, cat("has ", awq.out, " columns, expected a multiple of 8"));
  module.expect(awq.qweight, {DType::kI32}, {awq.in, awq.out / 8});
  module.expect(awq.scales, kScaleTypes, {groups, awq.out});
  awq.group_size = module.group_size(awq.scales, awq.in, groups, config);
  module.expect(awq.qzeros, {DType::kI32}, {groups, awq.out / 8});
  const DType dtype = integer_kind(4, awq.group_size, awq.in);
  return module.recipe(
      awq.qweight, cat(module.prefix(), ".weight"), dtype, {awq.out, awq.in},
      [awq, dtype](const Checkpoint& base, std::byte* weight) { decode(awq, dtype, base, weight); });
}

}  // namespace lmdeploy
