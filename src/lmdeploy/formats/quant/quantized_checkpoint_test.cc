// Quantised checkpoints: what is detected, what the packed forms decode to, what is refused in which words.
#include "lmdeploy/formats/quant/quantized_checkpoint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lmdeploy/core/half.h"
#include "lmdeploy/core/random.h"
#include "lmdeploy/formats/safetensors.h"
#include "lmdeploy/formats/test_support.h"

namespace lmdeploy {
namespace {

constexpr const char* kFile = "model.safetensors";

Tensor fill(DType dtype, const Shape& shape, const std::function<double(int64_t, int64_t)>& value) {
  Tensor tensor(dtype, shape);
  const TensorView view = tensor.view();
  for (int64_t r = 0; r < view.rows(); ++r)
    for (int64_t c = 0; c < view.cols(); ++c) view.set(r, c, value(r, c));
  return tensor;
}
Tensor bytes_tensor(DType dtype, const Shape& shape, const std::function<int(size_t)>& value) {
  Tensor tensor(dtype, shape);
  for (size_t i = 0; i < tensor.bytes(); ++i) tensor.view().data()[i] = static_cast<std::byte>(value(i));
  return tensor;
}

/// The integers of one linear, and the ways to pack them. Written from the formats' descriptions.
struct Codes {
  int64_t out, in, group, bits;
  std::vector<int> q, zero;  // [out, in], [out, groups]
  std::vector<float> scale;  // [out, groups], f16 values
  int64_t groups() const { return in / group; }
  int q_at(int64_t o, int64_t k) const { return q[static_cast<size_t>(o * in + k)]; }
  int zero_at(int64_t o, int64_t g) const { return zero[static_cast<size_t>(o * groups() + g)]; }
  float scale_at(int64_t o, int64_t g) const { return scale[static_cast<size_t>(o * groups() + g)]; }
  float weight(int64_t o, int64_t k) const {
    return static_cast<float>(q_at(o, k) - zero_at(o, k / group)) * scale_at(o, k / group);
  }
};

Codes random_codes(int64_t out, int64_t in, int64_t group, int64_t bits = 4) {
  Codes codes{out, in, group, bits, {}, {}, {}};
  Rng rng(static_cast<uint64_t>(out * 1000 + in + group + bits));
  const auto levels = uint64_t{1} << bits;
  for (int64_t i = 0; i < out * in; ++i) codes.q.push_back(static_cast<int>(rng.below(levels)));
  for (int64_t i = 0; i < out * codes.groups(); ++i) {
    codes.zero.push_back(1 + static_cast<int>(rng.below(levels - 1)));
    codes.scale.push_back(to_float(to_f16(0.001f * static_cast<float>(1 + rng.below(100)))));
  }
  return codes;
}

/// Integers of `bits` bits as one number of any length, cut into words of 32 bits.
std::vector<int32_t> bit_stream(const std::vector<int>& values, int64_t bits) {
  std::vector<bool> stream;
  for (const int value : values)
    for (int64_t b = 0; b < bits; ++b) stream.push_back((value >> b & 1) != 0);
  std::vector<int32_t> words((stream.size() + 31) / 32);
  for (size_t i = 0; i < stream.size(); ++i)
    if (stream[i]) words[i / 32] |= static_cast<int32_t>(uint32_t{1} << (i % 32));
  return words;
}
Tensor words_tensor(const Shape& shape, const std::function<int32_t(int64_t, int64_t)>& word) {
  Tensor tensor(DType::kI32, shape);
  for (int64_t r = 0; r < shape[0]; ++r)
    for (int64_t c = 0; c < shape[1]; ++c) tensor.view().row<int32_t>(r)[c] = word(r, c);
  return tensor;
}

using Tensors = std::map<std::string, Tensor>;

Tensor scales_by_group(const Codes& c, DType dtype = DType::kF16) {
  return fill(dtype, {c.groups(), c.out}, [&](int64_t g, int64_t o) { return c.scale_at(o, g); });
}

// quantization.md calls it AWQ "GEMM": nibble n of a word is column P[n] of eight.
void add_awq(Tensors& tensors, const std::string& name, const Codes& c) {
  constexpr int kP[] = {0, 2, 4, 6, 1, 3, 5, 7};
  const auto pack = [&](const std::function<int(int64_t)>& column) {
    uint32_t word = 0;
    for (int n = 0; n < 8; ++n) word |= static_cast<uint32_t>(column(kP[n])) << (4 * n);
    return static_cast<int32_t>(word);
  };
  tensors[name + ".qweight"] = words_tensor({c.in, c.out / 8}, [&](int64_t k, int64_t j) {
    return pack([&](int64_t p) { return c.q_at(8 * j + p, k); });
  });
  tensors[name + ".qzeros"] = words_tensor({c.groups(), c.out / 8}, [&](int64_t g, int64_t j) {
    return pack([&](int64_t p) { return c.zero_at(8 * j + p, g); });
  });
  tensors[name + ".scales"] = scales_by_group(c);
}

void add_gptq(Tensors& tensors, const std::string& name, const Codes& c, int zero_offset) {
  std::vector<std::vector<int32_t>> columns, zero_rows;
  for (int64_t o = 0; o < c.out; ++o) {
    std::vector<int> values;
    for (int64_t k = 0; k < c.in; ++k) values.push_back(c.q_at(o, k));
    columns.push_back(bit_stream(values, c.bits));
  }
  for (int64_t g = 0; g < c.groups(); ++g) {
    std::vector<int> values;
    for (int64_t o = 0; o < c.out; ++o) values.push_back(c.zero_at(o, g) - zero_offset);
    zero_rows.push_back(bit_stream(values, c.bits));
  }
  const auto at = [](const std::vector<std::vector<int32_t>>& rows, int64_t r, int64_t c_) {
    return rows[static_cast<size_t>(r)][static_cast<size_t>(c_)];
  };
  tensors[name + ".qweight"] =
      words_tensor({c.in * c.bits / 32, c.out}, [&](int64_t r, int64_t o) { return at(columns, o, r); });
  tensors[name + ".qzeros"] = words_tensor({c.groups(), c.out * c.bits / 32},
                                           [&](int64_t g, int64_t j) { return at(zero_rows, g, j); });
  tensors[name + ".scales"] = scales_by_group(c);
}

// Packed along the inputs of a row, values and zeros both moved up by half the range.
void add_compressed(Tensors& tensors, const std::string& name, const Codes& c, bool symmetric) {
  std::vector<std::vector<int32_t>> rows, zero_columns;
  for (int64_t o = 0; o < c.out; ++o) {
    std::vector<int> values;
    for (int64_t k = 0; k < c.in; ++k) values.push_back(c.q_at(o, k));
    rows.push_back(bit_stream(values, c.bits));
  }
  tensors[name + ".weight_packed"] = words_tensor(
      {c.out, static_cast<int64_t>(rows[0].size())},
      [&](int64_t o, int64_t j) { return rows[static_cast<size_t>(o)][static_cast<size_t>(j)]; });
  tensors[name + ".weight_scale"] =
      fill(DType::kF16, {c.out, c.groups()}, [&](int64_t o, int64_t g) { return c.scale_at(o, g); });
  tensors[name + ".weight_shape"] =
      fill(DType::kI64, {2}, [&](int64_t, int64_t i) { return static_cast<double>(i == 0 ? c.out : c.in); });
  if (symmetric) return;
  for (int64_t g = 0; g < c.groups(); ++g) {
    std::vector<int> values;
    for (int64_t o = 0; o < c.out; ++o) values.push_back(c.zero_at(o, g));
    zero_columns.push_back(bit_stream(values, c.bits));
  }
  tensors[name + ".weight_zero_point"] = words_tensor(
      {static_cast<int64_t>(zero_columns[0].size()), c.groups()},
      [&](int64_t j, int64_t g) { return zero_columns[static_cast<size_t>(g)][static_cast<size_t>(j)]; });
}

std::string compressed_config(int64_t bits, const std::string& strategy, int64_t group) {
  return cat(R"({"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"],
      "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": )",
             bits, R"(, "type": "int", "strategy": ")", strategy, R"(", "group_size": )", group, "}}}}");
}

float e4m3(int code) {
  const int exponent = code >> 3 & 15;
  const double magnitude =
      exponent == 0 ? (code & 7) * std::ldexp(1, -9) : std::ldexp(8 + (code & 7), exponent - 10);
  return static_cast<float>(code & 0x80 ? -magnitude : magnitude);
}

// An element of a weight in f32 or in one of the kinds of integers or codes in groups (dtype.h).
float element(ConstTensorView view, int64_t o, int64_t k) {
  if (view.dtype() == DType::kF32) return view.row<float>(o)[k];
  const int64_t size = block_size(view.dtype()), within = k % size;
  const std::byte* block = view.row_data(o) + k / size * block_bytes(view.dtype());
  float scale = 0;
  int32_t zero = 0;
  std::memcpy(&scale, block, 4);
  if (view.dtype() == DType::kF8G64) return scale * e4m3(static_cast<uint8_t>(block[4 + within]));
  std::memcpy(&zero, block + 4, 4);
  const auto byte_at = [&](int64_t i) { return static_cast<uint8_t>(block[8 + i]); };
  int q = byte_at(view.dtype() == DType::kU5G32 ? within : 0);
  if (view.dtype() == DType::kI8G64) q = static_cast<int8_t>(byte_at(within));
  if (view.dtype() == DType::kU4G32 || view.dtype() == DType::kU4G128)
    q = byte_at(within / 2) >> (within % 2 * 4) & 15;
  return scale * static_cast<float>(q - zero);
}

class QuantizedTest : public testing::Test {
 protected:
  void write(const Tensors& tensors, std::string_view quantization = "") {
    std::vector<NamedTensor> named;
    for (const auto& [name, tensor] : tensors) named.push_back({name, tensor});
    write_safetensors(folder_.file(kFile), named);
    folder_.write("config.json",
                  cat(R"({"architectures": ["LlamaForCausalLM"])",
                      quantization.empty() ? "" : cat(R"(, "quantization_config": )", quantization), "}"));
  }
  std::unique_ptr<Checkpoint> open(const std::string& format = "") {
    return open_checkpoint(folder_.path(), {format});
  }
  std::string error(ErrorCode code, const std::string& format = "") {
    return error_of(code, [&] {
      const auto checkpoint = open(format);
      for (size_t i = 0; i < checkpoint->tensors().size(); ++i) checkpoint->tensor(i);
    });
  }
  /// The tensor is [out, in] and exactly this, also after drop(). Returns its dtype.
  DType expect_weight(const std::string& name, int64_t out, int64_t in,
                      const std::function<float(int64_t, int64_t)>& want) {
    const auto checkpoint = open();
    EXPECT_EQ(checkpoint->config().as_object().if_contains("quantization_config"), nullptr);
    for (size_t i = 0; i < checkpoint->tensors().size(); ++i) {
      if (checkpoint->tensors()[i].name != name) continue;
      EXPECT_EQ(checkpoint->tensors()[i].shape, Shape({out, in}));
      for (int round = 0; round < 2; ++round) {
        const ConstTensorView view = checkpoint->tensor(i);
        const ColumnOrder& order = checkpoint->tensors()[i].column_order;
        for (int64_t o = 0; o < out; ++o)
          for (int64_t k = 0; k < in; ++k)
            EXPECT_EQ(element(view, o, k), want(o, order ? order->at(static_cast<size_t>(k)) : k))
                << o << ", " << k;
        checkpoint->drop(i);
      }
      return checkpoint->tensors()[i].dtype;
    }
    ADD_FAILURE() << "no tensor " << name;
    return DType::kF32;
  }
  DType expect_codes(const std::string& name, const Codes& c) {
    return expect_weight(name, c.out, c.in, [&](int64_t o, int64_t k) { return c.weight(o, k); });
  }

  TempFolder folder_;
};

// ---- AWQ and GPTQ

TEST_F(QuantizedTest, F61GroupSizesOfAwqAndGptqAreExact) {
  for (const int64_t group : {32, 64, 128, 256}) {
    const Codes codes = random_codes(512, 256, group);
    const int64_t said = group == 256 ? -1 : group;
    Tensors awq, gptq;
    add_awq(awq, "m.q", codes);
    write(awq,
          cat(R"({"quant_method": "awq", "version": "gemm", "bits": 4, "zero_point": true, "group_size": )",
              said, "}"));
    const DType kept = group % 128 == 0 ? DType::kU4G128 : DType::kU4G32;
    EXPECT_EQ(expect_codes("m.q.weight", codes), kept);
    add_gptq(gptq, "m.q", codes, 1);
    write(gptq, cat(R"({"quant_method": "gptq", "bits": 4, "sym": false, "desc_act": false, "group_size": )",
                    said, "}"));
    EXPECT_EQ(expect_codes("m.q.weight", codes), kept);
  }
}

TEST_F(QuantizedTest, F61UnsupportedSizesAreRefusedWithTheList) {
  Tensors tensors;
  add_awq(tensors, "m.q", random_codes(16, 96, 48));
  for (const char* method : {"awq", "gptq"}) {
    write(tensors, cat(R"({"quant_method": ")", method, R"(", "bits": 4, "group_size": 48})"));
    const std::string message = error(ErrorCode::kUnsupported);
    EXPECT_CONTAINS(message, "group_size 48 is not supported; supported are -1, 16, 32, 64, 128");
    EXPECT_CONTAINS(message, "config.json");
  }
  write(tensors, R"({"quant_method": "awq", "bits": 8, "group_size": 32})");
  EXPECT_CONTAINS(error(ErrorCode::kUnsupported), "bits 8 is not supported; supported are 4");
  write(tensors, R"({"quant_method": "gptq", "bits": 5, "group_size": 32})");
  EXPECT_CONTAINS(error(ErrorCode::kUnsupported), "bits 5 is not supported; supported are 2, 3, 4, 8");
}

TEST_F(QuantizedTest, F61SizeThatDoesNotDivideOrIsAnother) {
  Tensors tensors;
  add_awq(tensors, "m.q", random_codes(16, 96, 32));
  write(tensors, R"({"quant_method": "awq", "bits": 4, "group_size": 128})");
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData), "tensor \"m.q.scales\" has 3 groups of 32 inputs, but");
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData), "group_size 128, which does not divide the 96 inputs");
  write(tensors, R"({"quant_method": "awq", "bits": 4, "group_size": -1})");
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData), "group_size -1");
}

TEST_F(QuantizedTest, F61FinerGroupsAreNotWorse) {
  // Round to nearest of one matrix in every size: the error of the finer groups is never larger.
  Rng rng(61);
  std::vector<double> w(512 * 256);
  for (double& value : w) value = static_cast<double>(rng.below(20001)) / 10000.0 - 1.0;
  double last = 0;
  for (const int64_t group : {32, 64, 128, 256}) {
    Codes c{512, 256, group, 4, std::vector<int>(w.size()), {}, {}};
    for (int64_t o = 0; o < c.out; ++o) {
      for (int64_t g = 0; g < c.groups(); ++g) {
        const auto begin = w.begin() + o * c.in + g * group;
        const auto [low, high] = std::minmax_element(begin, begin + group);
        const double scale = std::max(*high - *low, 1e-5) / 15;
        c.scale.push_back(to_float(to_f16(static_cast<float>(scale))));
        c.zero.push_back(std::clamp(static_cast<int>(-std::nearbyint(*low / c.scale.back())), 0, 15));
        for (int64_t k = g * group; k < (g + 1) * group; ++k)
          c.q[static_cast<size_t>(o * c.in + k)] = std::clamp(
              static_cast<int>(std::nearbyint(w[static_cast<size_t>(o * c.in + k)] / c.scale.back())) +
                  c.zero.back(),
              0, 15);
      }
    }
    Tensors tensors;
    add_awq(tensors, "m", c);
    write(tensors);
    const auto checkpoint = open();
    double error = 0;
    for (int64_t o = 0; o < c.out; ++o)
      for (int64_t k = 0; k < c.in; ++k)
        error += std::pow(element(checkpoint->tensor(0), o, k) - w[static_cast<size_t>(o * c.in + k)], 2);
    EXPECT_GE(error, last) << group;
    last = error;
  }
}

TEST_F(QuantizedTest, AwqAndGptqPackingOfOneMatrixAgree) {
  const Codes codes = random_codes(24, 64, 16);
  Tensors awq, gptq;
  add_awq(awq, "m.q", codes);
  add_gptq(gptq, "m.q", codes, 1);
  write(awq);  // without a config: the shapes tell
  expect_codes("m.q.weight", codes);
  write(gptq);
  expect_codes("m.q.weight", codes);
  add_gptq(gptq, "m.q", codes, 0);
  write(gptq, R"({"quant_method": "gptq", "bits": 4, "group_size": 16, "checkpoint_format": "gptq_v2"})");
  expect_codes("m.q.weight", codes);
}

TEST_F(QuantizedTest, GptqOfEveryWidth) {
  for (const int64_t bits : {2, 3, 4, 8}) {
    const Codes codes = random_codes(32, 96, 32, bits);
    Tensors tensors;
    add_gptq(tensors, "m.q", codes, 1);
    write(tensors, cat(R"({"quant_method": "gptq", "group_size": 32, "bits": )", bits, "}"));
    expect_codes("m.q.weight", codes);
    write(tensors);  // the zeros tell the width
    expect_codes("m.q.weight", codes);
  }
}

TEST_F(QuantizedTest, WeightsOfIntegersStayAsNarrowAsTheyAre) {
  const auto kind_of = [&](const Codes& codes, const std::string& config) {
    Tensors tensors;
    add_gptq(tensors, "m.q", codes, 1);
    write(tensors, cat(R"({"quant_method": "gptq", )", config, "}"));
    return expect_codes("m.q.weight", codes);
  };
  EXPECT_EQ(kind_of(random_codes(8, 128, 64, 8), R"("bits": 8, "group_size": 64)"), DType::kI8G64);
  EXPECT_EQ(kind_of(random_codes(8, 128, 32, 8), R"("bits": 8, "group_size": 32)"), DType::kF32);
  EXPECT_EQ(kind_of(random_codes(32, 128, 128, 3), R"("bits": 3, "group_size": 128)"), DType::kU4G128);
  EXPECT_EQ(kind_of(random_codes(16, 96, 96, 2), R"("bits": 2, "group_size": -1)"), DType::kU4G32);
  EXPECT_EQ(kind_of(random_codes(8, 96, 16, 4), R"("bits": 4, "group_size": 16)"), DType::kF32);
  EXPECT_TRUE(open()->left_out() ==
              std::vector<std::string>{"1 of 1 weights are gptq in the files and f32 in memory"});

  Codes codes = random_codes(8, 128, 64, 8);
  Tensors packed;
  add_gptq(packed, "m.q", codes, 1);
  Tensor g_idx(DType::kI32, {128});
  for (size_t k = 0; k < 128; ++k) g_idx.span<int32_t>()[k] = static_cast<int32_t>(k / 64);
  packed["m.q.g_idx"] = std::move(g_idx);
  write(packed, R"({"quant_method": "gptq", "bits": 8, "group_size": 64})");
  EXPECT_EQ(expect_codes("m.q.weight", codes), DType::kI8G64) << "groups in order";
  EXPECT_TRUE(open()->left_out().empty());

  Tensors compressed;
  add_compressed(compressed, "m.q", codes, false);
  write(compressed, compressed_config(8, "group", 64));
  EXPECT_EQ(expect_codes("m.q.weight", codes), DType::kI8G64);
  codes = random_codes(8, 128, 128, 4);
  add_compressed(compressed, "m.q", codes, false);
  write(compressed, compressed_config(4, "channel", 0));
  EXPECT_EQ(expect_codes("m.q.weight", codes), DType::kU4G128);
}

// Integers stay integers, sorted by group.
TEST_F(QuantizedTest, GptqInActivationOrder) {
  const Codes codes = random_codes(16, 64, 32);
  Tensors tensors;
  add_gptq(tensors, "m.q", codes, 1);
  const auto group_of = [](int64_t k) { return (k * 7 % 64) / 32; };
  Tensor g_idx(DType::kI32, {64});
  for (int64_t k = 0; k < 64; ++k)
    g_idx.span<int32_t>()[static_cast<size_t>(k)] = static_cast<int32_t>(group_of(k));
  tensors["m.q.g_idx"] = std::move(g_idx);
  write(tensors, R"({"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": true})");
  const auto weight = [&](int64_t o, int64_t group, int64_t k) {
    return static_cast<float>(codes.q_at(o, k) - codes.zero_at(o, group)) * codes.scale_at(o, group);
  };
  const DType kept =
      expect_weight("m.q.weight", 16, 64, [&](int64_t o, int64_t k) { return weight(o, group_of(k), k); });
  EXPECT_EQ(kept, DType::kU4G32);
  EXPECT_TRUE(open()->left_out().empty());
  const std::vector<int32_t> order = *open()->tensors()[0].column_order;
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end(),
                             [&](int32_t a, int32_t b) { return group_of(a) < group_of(b); }));

  auto* groups = tensors["m.q.g_idx"].span<int32_t>().data();  // one of 31 inputs, one of 33
  const int32_t first = std::exchange(groups[0], 1);
  write(tensors);
  const DType wide = expect_weight(
      "m.q.weight", 16, 64, [&](int64_t o, int64_t k) { return weight(o, k == 0 ? 1 : group_of(k), k); });
  EXPECT_EQ(wide, DType::kF32);
  groups[0] = first;
  tensors["m.q.g_idx"].span<int32_t>()[5] = 2;
  write(tensors);
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData),
                  "tensor \"m.q.g_idx\" has 2 at 5, expected a group from 0 to 1");
  tensors["m.q.g_idx"].span<int32_t>()[5] = -1;
  write(tensors);
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData), "has -1 at 5");
}

TEST_F(QuantizedTest, ConfigFilesOfOldCheckpoints) {
  const Codes codes = random_codes(16, 64, 32);
  Tensors awq, gptq;
  add_awq(awq, "m.q", codes);
  add_gptq(gptq, "m.q", codes, 0);
  write(awq);
  folder_.write("quant_config.json",
                R"({"zero_point": true, "q_group_size": 32, "w_bit": 4, "version": "GEMM"})");
  expect_codes("m.q.weight", codes);
  folder_.write("quant_config.json",
                R"({"zero_point": true, "q_group_size": 32, "w_bit": 4, "version": "GEMV"})");
  EXPECT_CONTAINS(error(ErrorCode::kUnsupported),
                  "quant_config.json: version \"gemv\" is not supported; supported are gemm");
  std::filesystem::remove(folder_.file("quant_config.json"));
  write(gptq);
  folder_.write("quantize_config.json", R"({"bits": 4, "group_size": 32, "checkpoint_format": "gptq_v2"})");
  expect_codes("m.q.weight", codes);
}

TEST_F(QuantizedTest, ModulesThatWereLeftOutAndOtherTensorsStay) {
  Tensors tensors;
  add_awq(tensors, "m.q", random_codes(16, 32, 16));
  tensors["m.gate.weight"] = golden_tensor(DType::kF16, {4, 32}, 1);
  tensors["m.q.bias"] = golden_tensor(DType::kF16, {16}, 2);
  write(tensors,
        R"({"quant_method": "awq", "bits": 4, "group_size": 16, "modules_to_not_convert": ["gate"]})");
  const auto checkpoint = open("awq");
  std::map<std::string, size_t> names;
  for (size_t i = 0; i < checkpoint->tensors().size(); ++i) names[checkpoint->tensors()[i].name] = i;
  EXPECT_EQ(names.size(), 3u);
  EXPECT_EQ(bytes_of(checkpoint->tensor(names.at("m.gate.weight"))),
            bytes_of(golden_tensor(DType::kF16, {4, 32}, 1)));
  EXPECT_EQ(bytes_of(checkpoint->tensor(names.at("m.q.bias"))),
            bytes_of(golden_tensor(DType::kF16, {16}, 2)));
  tensors["m.q.weight"] = golden_tensor(DType::kF16, {16, 32}, 3);
  write(tensors);
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData), "tensor \"m.q.weight\" is in");  // packed and plain
}

TEST_F(QuantizedTest, MissingAndMisshapenTensorsOfAModule) {
  Tensors tensors;
  add_awq(tensors, "m.q", random_codes(16, 32, 16));
  const auto without = [&](const std::string& name) {
    Tensors rest;
    for (const auto& [known, tensor] : tensors) {
      if (known == name) continue;
      Tensor copy(tensor.dtype(), tensor.shape());
      std::memcpy(copy.view().data(), tensor.view().data(), copy.bytes());
      rest[known] = std::move(copy);
    }
    return rest;
  };
  const char* config = R"({"quant_method": "awq", "bits": 4, "group_size": 16})";
  write(without("m.q.scales"), config);
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData),
                  "tensor \"m.q.scales\" is missing, expected beside \"m.q.qweight\"");
  write(without("m.q.qzeros"), config);
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData), "tensor \"m.q.qzeros\" is missing");
  Tensors other = without("");
  other["m.q.qzeros"] = Tensor(golden_tensor(DType::kI32, {2, 3}, 0));
  write(other, config);
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData), "tensor \"m.q.qzeros\" is i32 [2, 3], expected i32 [2, 2]");
  other["m.q.qweight"] = Tensor(golden_tensor(DType::kI64, {32, 2}, 0));
  write(other, config);
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData),
                  "tensor \"m.q.qweight\" is i64 [32, 2], expected i32 [32, 2]");
  other["m.q.qweight"] = Tensor(golden_tensor(DType::kI32, {16, 4}, 0));  // gemv
  write(other, config);
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData), "expected i32 [16, 2]");
  other["m.q.qweight"] = Tensor(DType::kI32, {32, 0});
  write(other, config);
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData), "is empty: [32, 0]");
}

// ---- compressed-tensors

TEST_F(QuantizedTest, CompressedTensorsPacked) {
  for (const int64_t bits : {4, 8}) {
    for (const bool symmetric : {true, false}) {
      Codes codes = random_codes(13, 48, 16, bits);  // 13 zeros do not fill whole words
      if (symmetric) codes.zero.assign(codes.zero.size(), 1 << (bits - 1));
      Tensors tensors;
      add_compressed(tensors, "m.q", codes, symmetric);
      write(tensors, compressed_config(bits, "group", 16));
      expect_codes("m.q.weight", codes);
      write(tensors);
      expect_codes("m.q.weight", codes);
    }
  }
  Codes codes = random_codes(8, 20, 20, 4);  // rows of 2.5 words, a scale for each
  codes.zero.assign(codes.zero.size(), 8);
  Tensors tensors;
  add_compressed(tensors, "m.q", codes, true);
  write(tensors, compressed_config(4, "channel", 0));
  expect_codes("m.q.weight", codes);
  write(tensors, compressed_config(8, "channel", 0));
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData),
                  "has 3 words a row, which do not hold 20 integers of 8 bits");
  write(tensors, compressed_config(4, "group", 24));
  EXPECT_CONTAINS(error(ErrorCode::kUnsupported), "group_size 24 is not supported");
  write(tensors, compressed_config(6, "channel", 0));
  EXPECT_CONTAINS(error(ErrorCode::kUnsupported), "num_bits 6 is not supported; supported are 4, 8");
}

TEST_F(QuantizedTest, WhatTheConfigPromisesMustBeThere) {
  Tensors tensors;
  add_compressed(tensors, "m.q", random_codes(8, 64, 32, 4), true);
  std::string config = compressed_config(4, "group", 32);
  write(tensors, config);
  EXPECT_NO_THROW(open());
  config.insert(config.find("\"num_bits\""), R"("symmetric": false, )");
  write(tensors, config);
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData),
                  "tensor \"m.q.weight_zero_point\" is missing, expected beside");

  Tensors bytes;
  bytes["m.q.weight"] = bytes_tensor(DType::kI8, {3, 8}, [](size_t i) { return static_cast<int>(i); });
  bytes["m.q.weight_scale"] = golden_tensor(DType::kF32, {3, 1}, 0);
  write(bytes,
        R"({"quant_method": "compressed-tensors", "format": "int-quantized", "config_groups": {"group_0":
      {"weights": {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": false}}}})");
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData), "tensor \"m.q.weight_zero_point\" is missing");

  Tensors gptq;
  add_gptq(gptq, "m.q", random_codes(16, 64, 32), 1);
  write(gptq, R"({"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": true})");
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData), "tensor \"m.q.g_idx\" is missing, expected beside");
  add_gptq(gptq, "m.q", random_codes(16, 64, 64), 1);  // one group: any order is the same
  write(gptq, R"({"quant_method": "gptq", "bits": 4, "group_size": -1, "desc_act": true})");
  EXPECT_NO_THROW(open());
}

TEST_F(QuantizedTest, CompressedTensorsUnpacked) {
  Tensors tensors;
  const auto code = [](size_t i) { return static_cast<int>(37 * i % 251); };
  tensors["m.q.weight"] = bytes_tensor(DType::kI8, {3, 8}, code);
  tensors["m.q.weight_scale"] =
      fill(DType::kBF16, {3, 1}, [](int64_t o, int64_t) { return 0.5 * (1.0 + static_cast<double>(o)); });
  tensors["m.q.input_scale"] = golden_tensor(DType::kF32, {1}, 0);
  const char* config = R"({"quant_method": "compressed-tensors", "format": "int-quantized",
      "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "int", "strategy": "channel"}}}})";
  write(tensors, config);
  expect_weight("m.q.weight", 3, 8, [&](int64_t o, int64_t k) {
    return static_cast<float>(static_cast<int8_t>(code(static_cast<size_t>(8 * o + k)))) * 0.5f *
           static_cast<float>(1 + o);
  });
  EXPECT_EQ(open()->tensors().size(), 1u);  // the scale of activations is not a weight
  write(tensors,
        R"({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized", "config_groups": {}})");
  EXPECT_CONTAINS(error(ErrorCode::kUnsupported),
                  "format \"nvfp4-pack-quantized\" is not supported; supported are pack-quantized");
}

TEST_F(QuantizedTest, CompressedTensorsInActivationOrder) {
  const Codes codes = random_codes(8, 256, 128);
  Tensors tensors;
  add_compressed(tensors, "m.q", codes, false);
  Tensor g_idx(DType::kI32, {256});
  for (size_t k = 0; k < 256; ++k) g_idx.span<int32_t>()[k] = static_cast<int32_t>(k % 2);
  tensors["m.q.weight_g_idx"] = std::move(g_idx);
  write(tensors, compressed_config(4, "group", 128));
  const DType kept = expect_weight("m.q.weight", 8, 256, [&](int64_t o, int64_t k) {
    return static_cast<float>(codes.q_at(o, k) - codes.zero_at(o, k % 2)) * codes.scale_at(o, k % 2);
  });
  EXPECT_EQ(kept, DType::kU4G128);
}

// ---- 8-bit floats

int finite_code(size_t i) { return static_cast<int>(i * 89 % 127 + (i % 3 == 0 ? 128 : 0)); }

TEST_F(QuantizedTest, Fp8InBlocksWithARaggedEdge) {
  constexpr int64_t kOut = 129, kIn = 200;
  Tensors tensors;
  tensors["m.q.weight"] = bytes_tensor(DType::kF8E4M3, {kOut, kIn}, finite_code);
  tensors["m.q.weight_scale_inv"] =
      fill(DType::kF32, {2, 2}, [](int64_t r, int64_t c) { return 0.37 + static_cast<double>(2 * r + c); });
  const auto want = [](int64_t o, int64_t k) {
    return e4m3(finite_code(static_cast<size_t>(o * kIn + k))) *
           static_cast<float>(0.37 + static_cast<double>(2 * (o / 128) + k / 128));
  };
  write(
      tensors,
      R"({"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]})");
  expect_weight("m.q.weight", kOut, kIn, want);
  write(tensors);
  expect_weight("m.q.weight", kOut, kIn, want);
  write(tensors, R"({"quant_method": "fp8", "weight_block_size": [64, 128]})");
  EXPECT_CONTAINS(
      error(ErrorCode::kInvalidData),
      "tensor \"m.q.weight_scale_inv\" is [2, 2], expected [1], [129, 1] or one for each block of 64 x 128");
  write(tensors, R"({"quant_method": "fp8", "weight_block_size": [0, 128]})");
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData), "expected [rows, columns]");
}

TEST_F(QuantizedTest, Fp8WithOneScaleOrOnePerRow) {
  for (const char* suffix : {".weight_scale", ".weight_scale_inv"}) {
    for (const Shape& shape : {Shape{}, Shape{1}, Shape{1, 1}, Shape{5}, Shape{5, 1}}) {
      Tensors tensors;
      tensors["m.q.weight"] = bytes_tensor(DType::kF8E4M3, {5, 6}, finite_code);
      Tensor scale(DType::kF32, shape);
      for (size_t i = 0; i < scale.span<float>().size(); ++i)
        scale.span<float>()[i] = 0.3f + static_cast<float>(i);
      const bool one = shape.numel() == 1;
      tensors[cat("m.q", suffix)] = std::move(scale);
      tensors["m.q.input_scale"] = golden_tensor(DType::kF32, {1}, 0);
      write(tensors, R"({"quant_method": "fp8", "activation_scheme": "static"})");
      expect_weight("m.q.weight", 5, 6, [&](int64_t o, int64_t k) {
        return e4m3(finite_code(static_cast<size_t>(6 * o + k))) * (0.3f + static_cast<float>(one ? 0 : o));
      });
    }
  }
  Tensors tensors;
  tensors["m.q.weight"] = bytes_tensor(DType::kF8E4M3, {5, 6}, finite_code);
  write(tensors);
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData),
                  "tensor \"m.q.weight\" is f8_e4m3 without a scale; looked for m.q.weight_scale");
}

// Every way of sharing scales, where rows are whole groups of 64: no number changes.
TEST_F(QuantizedTest, Fp8StaysInCodes) {
  constexpr int64_t kOut = 130, kIn = 192;
  struct Sharing {
    Shape scale;
    int64_t rows, cols;  // that share one
    std::string config;
  };
  const std::string grouped = R"({"quant_method": "compressed-tensors", "format": "float-quantized",
      "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float", "strategy": "group",
      "group_size": 64}}}})";
  const Sharing all[] = {
      {{1}, kOut, kIn, R"({"quant_method": "fp8", "activation_scheme": "static"})"},
      {{kOut, 1}, 1, kIn, R"({"quant_method": "fbgemm_fp8"})"},
      {{2, 2}, 128, 128, R"({"quant_method": "fp8", "weight_block_size": [128, 128]})"},
      {{5, 3}, 32, 64, R"({"quant_method": "fp8", "weight_block_size": [32, 64]})"},
      {{kOut, 3}, 1, 64, grouped},
  };
  for (const Sharing& sharing : all) {
    Tensors tensors;
    tensors["m.q.weight"] = bytes_tensor(DType::kF8E4M3, {kOut, kIn}, finite_code);
    const int64_t blocks = (kIn + sharing.cols - 1) / sharing.cols;
    const auto scale_of = [&](int64_t block) { return 0.37f + 0.01f * static_cast<float>(block); };
    Tensor scales(DType::kF32, sharing.scale);
    for (size_t i = 0; i < scales.span<float>().size(); ++i)
      scales.span<float>()[i] = scale_of(static_cast<int64_t>(i));
    tensors["m.q.weight_scale"] = std::move(scales);
    write(tensors, sharing.config);
    SCOPED_TRACE(sharing.config);
    const DType kept = expect_weight("m.q.weight", kOut, kIn, [&](int64_t o, int64_t k) {
      return scale_of(o / sharing.rows * blocks + k / sharing.cols) *
             e4m3(finite_code(static_cast<size_t>(o * kIn + k)));
    });
    EXPECT_EQ(kept, DType::kF8G64);
    EXPECT_TRUE(open()->left_out().empty());
  }
}

TEST_F(QuantizedTest, Fp8ThatDoesNotFitItsKindIsWidened) {
  const auto kind_of = [&](DType dtype, int64_t in, int64_t block) {
    Tensors tensors;
    tensors["m.q.weight"] = bytes_tensor(dtype, {32, in}, [](size_t i) { return static_cast<int>(i % 64); });
    tensors["m.q.weight_scale"] =
        fill(DType::kF32, {32 / block, in / block}, [](int64_t, int64_t) { return 0.5; });
    write(tensors, cat(R"({"quant_method": "fp8", "weight_block_size": [)", block, ", ", block, "]}"));
    return open()->tensors()[0].dtype;
  };
  EXPECT_EQ(kind_of(DType::kF8E4M3, 128, 32), DType::kF32) << "two scales in a group";
  EXPECT_EQ(kind_of(DType::kF8E4M3, 96, 32), DType::kF32) << "half a group";
  EXPECT_EQ(kind_of(DType::kF8E5M2, 128, 32), DType::kF32);
  EXPECT_CONTAINS(open()->left_out().at(0), "1 of 1 weights are fp8 in the files and f32 in memory");
}

// ---- MXFP4

TEST_F(QuantizedTest, Mxfp4OfEveryCodeAndScale) {
  constexpr float kValues[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  Tensors tensors;  // [1, 254 rows, 1 block, 16], row r with scale r
  tensors["m.experts.down_proj_blocks"] = bytes_tensor(DType::kU8, {1, 254, 1, 16}, [](size_t i) {
    return static_cast<int>((2 * i) % 16 | ((2 * i + 1) % 16) << 4);
  });
  tensors["m.experts.down_proj_scales"] =
      bytes_tensor(DType::kU8, {1, 254, 1}, [](size_t i) { return static_cast<int>(i); });
  write(tensors, R"({"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]})");
  const auto checkpoint = open("mxfp4");
  ASSERT_EQ(checkpoint->tensors().size(), 1u);
  EXPECT_EQ(checkpoint->tensors()[0].name, "m.experts.down_proj.weight");
  ASSERT_EQ(checkpoint->tensors()[0].shape, Shape({1, 254, 32}));
  const ConstTensorView view = ConstTensorView(checkpoint->tensor(0).data(), DType::kU5G32, {254, 32});
  for (int r = 0; r < 254; ++r)
    for (int c = 0; c < 32; ++c) {
      const double value = (c % 16 < 8 ? 1 : -1) * std::ldexp(kValues[c % 8], r - 127);
      ASSERT_EQ(element(view, r, c), static_cast<float>(value)) << r << ", " << c;
    }
  tensors["m.experts.down_proj_scales"] = golden_tensor(DType::kU8, {1, 253, 1}, 0);
  write(tensors);
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData), "_scales\" is u8 [1, 253, 1], expected u8 [1, 254, 1]");
  tensors["m.experts.down_proj_blocks"] = golden_tensor(DType::kU8, {1, 253, 1, 8}, 0);
  write(tensors);
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData), "expected u8 [1, 253, 1, 16]");
}

// ---- SmoothQuant

Tensors w8a8() {
  Tensors tensors;
  tensors["m.q.weight"] =
      bytes_tensor(DType::kI8, {3, 4}, [](size_t i) { return static_cast<int>(i * 23 % 256); });
  tensors["m.q.scale"] =
      fill(DType::kF32, {3, 1}, [](int64_t o, int64_t) { return 0.1 + static_cast<double>(o); });
  tensors["m.norm.weight"] = golden_tensor(DType::kF16, {4}, 0);
  return tensors;
}

TEST_F(QuantizedTest, SmoothQuantStaysInBytes) {
  Tensors tensors;
  tensors["m.q.weight"] =
      bytes_tensor(DType::kI8, {3, 192}, [](size_t i) { return static_cast<int>(i * 23 % 256); });
  tensors["m.q.scale"] =
      fill(DType::kF32, {3, 1}, [](int64_t o, int64_t) { return 0.1 + static_cast<double>(o); });
  write(tensors, R"({"quant_method": "smooth_quant", "quant_dtype": "int8"})");
  const DType kept = expect_weight("m.q.weight", 3, 192, [](int64_t o, int64_t k) {
    return static_cast<float>(static_cast<int8_t>((192 * o + k) * 23 % 256)) *
           static_cast<float>(0.1 + static_cast<double>(o));
  });
  EXPECT_EQ(kept, DType::kI8G64);
}

TEST_F(QuantizedTest, SmoothQuantWithAndWithoutAConfig) {
  for (const char* config : {R"({"quant_method": "smooth_quant", "quant_dtype": "int8"})", ""}) {
    write(w8a8(), config);
    expect_weight("m.q.weight", 3, 4, [](int64_t o, int64_t k) {
      return static_cast<float>(static_cast<int8_t>((4 * o + k) * 23 % 256)) *
             static_cast<float>(0.1 + static_cast<double>(o));
    });
  }
  Tensors tensors = w8a8();
  tensors["m.q.weight"] = bytes_tensor(DType::kF8E5M2, {3, 4}, [](size_t) { return 0x3e; });  // 1.5
  write(tensors);
  expect_weight("m.q.weight", 3, 4,
                [](int64_t o, int64_t) { return 1.5f * static_cast<float>(0.1 + static_cast<double>(o)); });
}

// ---- which format

TEST_F(QuantizedTest, F63FormatIsDetectedAndMismatchesAreNamed) {
  write(w8a8(), R"({"quant_method": "smooth_quant"})");
  EXPECT_CONTAINS(error(ErrorCode::kInvalidArgument, "awq"), "folder says w8a8, option says awq");
  write(w8a8());  // by its tensors
  EXPECT_CONTAINS(error(ErrorCode::kInvalidArgument, "awq"), "folder says w8a8, option says awq");
  const Codes codes = random_codes(16, 32, 16);
  Tensors awq;
  add_awq(awq, "m.q", codes);
  for (const char* config : {R"({"quant_method": "awq", "bits": 4, "group_size": 16})", ""}) {
    write(awq, config);
    expect_codes("m.q.weight", codes);  // no format given
    EXPECT_EQ(open("awq")->tensors().size(), 1u);
    EXPECT_CONTAINS(error(ErrorCode::kInvalidArgument, "hf"), "folder says awq, option says hf");
    EXPECT_CONTAINS(error(ErrorCode::kInvalidArgument, "gptq"), "folder says awq, option says gptq");
  }
}

TEST_F(QuantizedTest, MethodsThatAreNotSupported) {
  Tensors tensors;
  tensors["m.weight"] = golden_tensor(DType::kF16, {2, 2}, 0);
  write(tensors, R"({"quant_method": "bitsandbytes", "load_in_4bit": true})");
  EXPECT_CONTAINS(error(ErrorCode::kUnsupported),
                  "quant_method \"bitsandbytes\" is not supported; supported are awq, gptq");
  write(tensors, R"({"bits": 4})");
  EXPECT_CONTAINS(error(ErrorCode::kUnsupported), "quant_method \"unnamed\"");
  write(tensors, R"({"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"})");
  EXPECT_CONTAINS(error(ErrorCode::kUnsupported), "checkpoint_format \"marlin\"");
  write(tensors, R"({"quant_method": "gptq", "bits": 4, "dynamic": {"-:lm_head": {}}})");
  EXPECT_CONTAINS(error(ErrorCode::kUnsupported), "\"dynamic\"");
  write(tensors, R"({"quant_method": "awq", "bits": 4})");
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData), "says awq, but no tensor is stored so");
}

}  // namespace
}  // namespace lmdeploy
