#include "lmdeploy/models/f16_range.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <mutex>

#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

struct Beyond {
  int64_t count = 0;
  float largest = 0;
};

// The bits of a float without its sign are in the order of magnitudes, and NaN is past infinity. As signed
// integers: their maximum is one instruction of every processor.
template <typename Bits>
struct FloatBits {
  static constexpr int kBelow = 32 - 8 * static_cast<int>(sizeof(Bits));  // bits of an f32 that it has not
  static constexpr auto kMagnitude = std::numeric_limits<Bits>::max();
  static constexpr auto kInfinity = static_cast<Bits>(0x7f800000 >> kBelow);
  static constexpr auto kBound = static_cast<Bits>(std::bit_cast<int32_t>(kLargestF16) >> kBelow);

  static Bits magnitude(Bits bits) { return static_cast<Bits>(bits & kMagnitude); }
  static float to_float(Bits magnitude) { return std::bit_cast<float>(int32_t{magnitude} << kBelow); }
};

template <typename Bits>
Beyond beyond(const Bits* values, int64_t count) {
  using Float = FloatBits<Bits>;
  Bits largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, Float::magnitude(values[i]));
  Beyond found;
  if (largest <= Float::kBound) return found;
  for (int64_t i = 0; i < count; ++i) {
    const Bits magnitude = Float::magnitude(values[i]);
    if (magnitude <= Float::kBound || magnitude > Float::kInfinity) continue;
    ++found.count;
    found.largest = std::max(found.largest, Float::to_float(magnitude));
  }
  return found;
}

Beyond beyond(ConstTensorView weights, int64_t row) {
  const std::byte* values = weights.row_data(row);
  if (weights.dtype() == DType::kF32) return beyond(reinterpret_cast<const int32_t*>(values), weights.cols());
  return beyond(reinterpret_cast<const int16_t*>(values), weights.cols());
}

}  // namespace

void F16Range::add(ConstTensorView weights, const std::string& tensor, ThreadPool& threads) {
  if (weights.dtype() != DType::kF32 && weights.dtype() != DType::kBF16) return;
  constexpr int64_t kGrain = 65536;  // elements
  std::mutex mutex;
  const int64_t rows = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, weights.cols()));
  threads.parallel_for(weights.rows(), rows, [&](int64_t begin, int64_t end) {
    Beyond all;
    for (int64_t row = begin; row < end; ++row) {
      const Beyond own = beyond(weights, row);
      all = {all.count + own.count, std::max(all.largest, own.largest)};
    }
    const std::lock_guard lock(mutex);
    count_ += all.count;
    if (all.count == 0 || all.largest <= largest_) return;
    largest_ = all.largest;
    tensor_ = tensor;
  });
}

std::string F16Range::warning() const {
  if (count_ == 0) return "";
  return cat(
      count_, count_ == 1 ? " weight is" : " weights are", " beyond ", kLargestF16,
      ", the largest number of float16; the largest, ", largest_, ", is in ", tensor_,
      ". From 65520 on they become infinite, and answers may fail: use dtype float32, or bfloat16 on a "
      "card that has it");
}

}  // namespace lmdeploy
