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

void decode(const Awq& awq, const Checkpoint& base, float* weight) {
  const int64_t words = awq.out / 8;
  const auto* q = base.tensor(awq.qweight).row<uint32_t>(0);
  const auto* zeros = base.tensor(awq.qzeros).row<uint32_t>(0);
  const std::vector<float> scales = floats_of(base.tensor(awq.scales));
  for (int64_t j = 0; j < words; ++j) {
    for (int n = 0; n < 8; ++n) {
      const int64_t o = 8 * j + kColumn[static_cast<size_t>(n)];
      const int shift = 4 * n;
      for (int64_t k = 0, group = 0; k < awq.in; ++group) {
        const int zero = static_cast<int>(zeros[group * words + j] >> shift & 15);
        const float scale = scales[static_cast<size_t>(group * awq.out + o)];
        for (const int64_t end = k + awq.group_size; k < end; ++k)
          weight[o * awq.in + k] =
              static_cast<float>(static_cast<int>(q[k * words + j] >> shift & 15) - zero) * scale;
      }
    }
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
  return module.recipe(awq.qweight, cat(module.prefix(), ".weight"), {awq.out, awq.in},
                       [awq](const Checkpoint& base, float* weight) { decode(awq, base, weight); });
}

}  // namespace lmdeploy
