// dequantize() against stored results of the `gguf` package (tests/data/kernels/make_quant_golden.py).
#include <cstring>
#include <filesystem>
#include <string>

#include "lmdeploy/core/json.h"
#include "lmdeploy/core/mapped_file.h"
#include "lmdeploy/kernels/testing.h"

namespace lmdeploy {
namespace {

// The golden file: safetensors, read without the formats room.
class Golden {
 public:
  static std::string path() {
    const std::string name = "tests/data/kernels/quant_golden.safetensors";
    const std::string built = std::string(LMDEPLOY_SOURCE_DIR "/") + name;
    return std::filesystem::exists(built) ? built : name;  // a program carried elsewhere, run in a checkout
  }

  Golden() : file_(read_file(path())) {
    std::memcpy(&header_bytes_, file_.data(), sizeof(header_bytes_));
    header_ = parse_json(std::string_view(file_).substr(8, header_bytes_), path());
  }
  std::string_view tensor(const std::string& name) const {
    const auto& offsets = header_.at(name).at("data_offsets").as_array();
    const auto begin = offsets[0].to_number<size_t>();
    return std::string_view(file_).substr(8 + header_bytes_ + begin, offsets[1].to_number<size_t>() - begin);
  }

 private:
  std::string file_;
  uint64_t header_bytes_ = 0;
  Json header_;
};

class DequantizeTest : public ::testing::TestWithParam<DType> {};

TEST_P(DequantizeTest, IsBitEqualToGguf) {
  const DType dtype = GetParam();
  const Golden golden;
  const std::string_view blocks = golden.tensor(cat(dtype, ".blocks"));
  const std::string_view values = golden.tensor(cat(dtype, ".values"));
  const auto count = static_cast<int64_t>(values.size() / sizeof(float));
  ASSERT_EQ(row_bytes(dtype, count), static_cast<int64_t>(blocks.size()));
  ASSERT_GT(count, 0);
  std::vector<float> got(static_cast<size_t>(count));
  dequantize(dtype, reinterpret_cast<const std::byte*>(blocks.data()), got.data(), count);
  std::vector<float> want(static_cast<size_t>(count));
  std::memcpy(want.data(), values.data(), values.size());
  const Shape shape = {1, count};
  expect_bit_equal(ConstTensorView(reinterpret_cast<std::byte*>(got.data()), DType::kF32, shape),
                   ConstTensorView(reinterpret_cast<std::byte*>(want.data()), DType::kF32, shape));
}

INSTANTIATE_TEST_SUITE_P(Kinds, DequantizeTest,
                         ::testing::ValuesIn(kWeightKinds.begin() + 1, kWeightKinds.end()),
                         [](const auto& test) { return std::string(to_string(test.param)); });

TEST(Dequantize, CopiesF32AndNarrowsF64) {
  const float f32[] = {1.5f, -0.0f, 1e-45f};
  const double f64[] = {1.5, -0.0, 0.1};
  float got[3];
  dequantize(DType::kF32, reinterpret_cast<const std::byte*>(f32), got, 3);
  EXPECT_EQ(std::memcmp(got, f32, sizeof(got)), 0);
  dequantize(DType::kF64, reinterpret_cast<const std::byte*>(f64), got, 3);
  EXPECT_EQ(got[2], 0.1f);
}

TEST(Dequantize, RefusesPartBlocksAndIntegers) {
  std::vector<std::byte> bytes(1024);
  std::vector<float> got(256);
  expect_invalid([&] { dequantize(DType::kQ4_K, bytes.data(), got.data(), 128); }, "128 elements");
  expect_invalid([&] { dequantize(DType::kI32, bytes.data(), got.data(), 8); }, "i32");
}

}  // namespace
}  // namespace lmdeploy
