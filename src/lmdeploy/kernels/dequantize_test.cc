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

std::vector<DType> gguf_kinds() {
  std::vector<DType> kinds(kWeightKinds.begin() + 1, kWeightKinds.end());
  std::erase_if(kinds, [](DType kind) { return kind >= DType::kU4G32; });
  return kinds;
}
INSTANTIATE_TEST_SUITE_P(Kinds, DequantizeTest, ::testing::ValuesIn(gguf_kinds()),
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

TEST(Dequantize, IntegersInGroups) {
  const auto values_of = [](DType dtype, float scale, int32_t zero, const std::vector<uint8_t>& integers) {
    std::vector<std::byte> block(static_cast<size_t>(block_bytes(dtype)));
    std::memcpy(block.data(), &scale, sizeof(scale));
    std::memcpy(block.data() + 4, &zero, sizeof(zero));
    std::memcpy(block.data() + 8, integers.data(), integers.size());
    std::vector<float> values(static_cast<size_t>(block_size(dtype)));
    dequantize(dtype, block.data(), values.data(), block_size(dtype));
    return values;
  };
  const float scale = 0.1f;
  for (const DType dtype : {DType::kU4G32, DType::kU4G128}) {
    const std::vector<float> values = values_of(dtype, scale, 16, {0xf0, 0x21});
    EXPECT_EQ(values[0], scale * -16) << to_string(dtype);
    EXPECT_EQ(values[1], scale * -1) << to_string(dtype);
    EXPECT_EQ(values[2], scale * -15) << to_string(dtype);
    EXPECT_EQ(values[3], scale * -14) << to_string(dtype);
  }
  const std::vector<float> five = values_of(DType::kU5G32, scale, 12, {24, 12, 0});
  EXPECT_EQ(five[0], scale * 12);
  EXPECT_EQ(five[1], 0);
  EXPECT_EQ(five[2], scale * -12);
  const std::vector<float> eight = values_of(DType::kI8G64, scale, -128, {0x80, 0x7f, 0xff});
  EXPECT_EQ(eight[0], 0);
  EXPECT_EQ(eight[1], scale * 255);
  EXPECT_EQ(eight[2], scale * 127);
}

TEST(Dequantize, CodesOf8BitFloats) {
  const float scale = 0.1f;
  for (int first = 0; first < 256; first += 64) {
    std::vector<std::byte> block(68);
    std::memcpy(block.data(), &scale, sizeof(scale));
    for (size_t i = 0; i < 64; ++i) block[4 + i] = static_cast<std::byte>(first + static_cast<int>(i));
    std::vector<float> values(64);
    dequantize(DType::kF8G64, block.data(), values.data(), 64);
    for (int i = 0; i < 64; ++i) {
      const int code = first + i, magnitude = code & 127;
      const double value =
          magnitude < 8 ? std::ldexp(magnitude, -9) : std::ldexp(8 + magnitude % 8, magnitude / 8 - 10);
      if (magnitude == 127)
        EXPECT_TRUE(std::isnan(values[static_cast<size_t>(i)])) << code;
      else
        EXPECT_EQ(values[static_cast<size_t>(i)], scale * static_cast<float>(code < 128 ? value : -value))
            << code;
    }
  }
}

TEST(Dequantize, RefusesPartBlocksAndIntegers) {
  std::vector<std::byte> bytes(1024);
  std::vector<float> got(256);
  expect_invalid([&] { dequantize(DType::kQ4_K, bytes.data(), got.data(), 128); }, "128 elements");
  expect_invalid([&] { dequantize(DType::kI32, bytes.data(), got.data(), 8); }, "i32");
}

}  // namespace
}  // namespace lmdeploy
