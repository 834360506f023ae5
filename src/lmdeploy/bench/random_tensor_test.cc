#include "lmdeploy/bench/random_tensor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "lmdeploy/kernels/kernels.h"

namespace lmdeploy {
namespace {

class RandomTensor : public ::testing::TestWithParam<DType> {
 public:
  static std::vector<float> values(const Tensor& tensor) {
    std::vector<float> out(static_cast<size_t>(tensor.shape().numel()));
    dequantize(tensor.dtype(), tensor.view().data(), out.data(), tensor.shape().numel());
    return out;
  }
};

// 65536 numbers: their mean is within 0.02 deviations of 0 (five of its own). Kinds whose integers go from -n
// to n - 1 lean by half a step, a ninth of the deviation for 4 bits.
TEST_P(RandomTensor, HasTheMeanAndTheDeviationAskedFor) {
  double sum = 0, squares = 0;
  const std::vector<float> numbers = values(random_tensor(GetParam(), {64, 1024}, 0.25, 3));
  for (const float number : numbers) sum += number, squares += number * number;
  const auto count = static_cast<double>(numbers.size());
  EXPECT_LT(std::abs(sum / count), 0.13 * 0.25);
  EXPECT_NEAR(std::sqrt(squares / count), 0.25, is_quantized(GetParam()) ? 0.02 : 0.005);
}

TEST_P(RandomTensor, DependsOnTheSeedAlone) {
  const auto one = values(random_tensor(GetParam(), {8, 512}, 1, 3));
  EXPECT_EQ(one, values(random_tensor(GetParam(), {8, 512}, 1, 3)));
  EXPECT_NE(one, values(random_tensor(GetParam(), {8, 512}, 1, 4)));
}

// Copies fill what is beyond the first million: all is written, and neighbouring rows differ.
TEST_P(RandomTensor, LargeOnesAreFilledToTheEnd) {
  const Tensor tensor = random_tensor(GetParam(), {5000, 512}, 1, 3);
  const std::vector<float> numbers = values(tensor);
  for (size_t row = 0; row < 4999; row += 7)
    ASSERT_FALSE(std::equal(numbers.data() + row * 512, numbers.data() + (row + 1) * 512,
                            numbers.data() + (row + 1) * 512))
        << row;
  for (size_t row = 0; row < 5000; ++row)
    ASSERT_TRUE(std::any_of(numbers.data() + row * 512, numbers.data() + (row + 1) * 512, [](float number) {
      return number != 0 && std::isfinite(number);
    })) << row;
}

INSTANTIATE_TEST_SUITE_P(Kinds, RandomTensor,
                         ::testing::Values(DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1,
                                           DType::kQ5_0, DType::kQ5_1, DType::kQ8_0, DType::kQ4_K,
                                           DType::kQ5_K, DType::kQ6_K, DType::kU4G32, DType::kU4G128,
                                           DType::kU5G32, DType::kI8G64, DType::kF8G64),
                         [](const auto& test) { return std::string(to_string(test.param)); });

}  // namespace
}  // namespace lmdeploy
