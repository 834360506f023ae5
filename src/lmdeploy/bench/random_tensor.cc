#include "lmdeploy/bench/random_tensor.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "lmdeploy/core/random.h"
#include "lmdeploy/kernels/quant_block.h"

namespace lmdeploy {
namespace {

constexpr int64_t kFreshElements = 1000003;  // a prime, so that rows do not repeat soon

// Standard deviation of the numbers from 0 to n - 1.
double even_deviation(double n) { return std::sqrt((n * n - 1) / 12); }

// The standard deviation of all codes of e4m3 but the NaNs, which become 0.
void set_code_scale(double deviation, int64_t size, std::byte* block) {
  constexpr double kDeviation = 99.67;
  const auto scale = static_cast<float>(deviation / kDeviation);
  std::memcpy(block, &scale, sizeof(scale));
  for (int64_t i = 4; i < 4 + size; ++i)
    if ((block[i] & std::byte{0x7f}) == std::byte{0x7f}) block[i] = {};
}

// Scales for which random bytes become numbers around 0.
void set_scales(DType dtype, double deviation, std::byte* block) {
  const QuantKind& kind = quant_kind(dtype);
  if (kind.e4m3) return set_code_scale(deviation, kind.group, block);
  const double steps = std::exp2(kind.bits);
  if (kind.has_zero) {
    const auto scale = static_cast<float>(deviation / even_deviation(steps));
    if (kind.bits == 5)
      for (int i = 0; i < kind.group; ++i) block[8 + i] &= std::byte{31};
    return write_block_scales(scale, kind.bits == 8 ? 0 : 1 << (kind.bits - 1), block);
  }
  // Random scales and mins of 6 bits, or scales of 8 bits with a sign, spread the numbers of K kinds by as
  // much.
  const double scale_size = !kind.k_scales ? 1 : kind.has_min ? 56 : 74;
  const double d = deviation / (even_deviation(steps) * scale_size);
  const double middle = d * (steps - 1) / 2;
  write_block_scales(dtype, to_f16(static_cast<float>(d)),
                     to_f16(static_cast<float>(kind.k_scales ? middle : -middle)), block);
}

void fill_quantized(const Tensor& tensor, int64_t blocks, double deviation, Rng& rng) {
  const int64_t size = block_bytes(tensor.dtype());
  for (std::byte& byte : tensor.span<std::byte>().first(static_cast<size_t>(blocks * size)))
    byte = static_cast<std::byte>(rng.bits());
  for (int64_t b = 0; b < blocks; ++b) set_scales(tensor.dtype(), deviation, tensor.view().data() + b * size);
}

void fill_plain(const Tensor& tensor, int64_t count, double deviation, Rng& rng) {
  const TensorView flat(tensor.view().data(), tensor.dtype(), {count});
  for (int64_t i = 0; i < count; ++i) flat.set(i, deviation * std::sqrt(12.0) * (rng.uniform() - 0.5));
}

}  // namespace

Tensor random_tensor(DType dtype, const Shape& shape, double deviation, uint64_t seed) {
  Tensor tensor(dtype, shape);
  Rng rng(seed);
  const auto size = static_cast<size_t>(block_bytes(dtype));
  const size_t blocks = tensor.bytes() / size;
  const size_t fresh = std::min(blocks, static_cast<size_t>(kFreshElements / block_size(dtype)));
  const auto fill = is_quantized(dtype) ? fill_quantized : fill_plain;
  fill(tensor, static_cast<int64_t>(fresh), deviation, rng);
  std::byte* data = tensor.view().data();
  for (size_t done = fresh; done < blocks;) {
    const size_t count = std::min(done, blocks - done);
    std::memcpy(data + done * size, data, count * size);
    done += count;
  }
  return tensor;
}

}  // namespace lmdeploy
