// Checkpoints whose weights stay codes or integers in memory say what their dequantised weights say.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "backends.h"
#include "half_judge.h"
#include "lmdeploy/core/error.h"
#include "lmdeploy/core/float8.h"
#include "lmdeploy/core/half.h"
#include "lmdeploy/core/random.h"
#include "random_family.h"
#include "random_llama.h"
#include "ranks.h"

namespace lmdeploy::testing {
namespace {

constexpr int64_t kHidden = 256, kInner = 384;  // whole groups of 128
constexpr LlamaShape kShape = {
    .hidden = kHidden, .inner = kInner, .layers = 2, .heads = 4, .kv_heads = 2, .head_dim = 64, .vocab = 67};

/// One model twice: as a folder with its linear layers packed, and with the numbers that those stand for.
struct Pair {
  MemoryCheckpoint packed, dense;
};
using Packer = std::function<void(Pair&, const std::string& name, ConstTensorView weight)>;

bool is_linear(const std::string& name) {
  return name.ends_with("_proj.weight") || name.find(".experts.") != std::string::npos;
}

Pair pack_linears(const MemoryCheckpoint& source, const Packer& packer, const JsonObject& quantization) {
  Pair pair;
  pair.packed.mutable_config() = pair.dense.mutable_config() = source.config().as_object();
  pair.packed.mutable_config()["quantization_config"] = quantization;
  for (size_t i = 0; i < source.tensors().size(); ++i) {
    const std::string& name = source.tensors()[i].name;
    const ConstTensorView view = source.tensor(i);
    if (is_linear(name)) {
      packer(pair, name.substr(0, name.size() - std::string(".weight").size()), view);
      continue;
    }
    for (MemoryCheckpoint* to : {&pair.packed, &pair.dense}) {
      Tensor copy(DType::kF32, view.shape());
      std::copy_n(view.row<float>(0), view.shape().numel(), copy.span<float>().data());
      to->add(name, std::move(copy));
    }
  }
  return pair;
}

// ---- fp8 in blocks of 128 x 128

uint8_t nearest_code(float value) {
  static const auto magnitudes = [] {
    std::array<float, 127> all{};  // rising
    for (size_t code = 0; code < all.size(); ++code) all[code] = to_float(F8E4M3{static_cast<uint8_t>(code)});
    return all;
  }();
  const auto above = std::lower_bound(magnitudes.begin() + 1, magnitudes.end() - 1, std::abs(value));
  const auto nearest = *above - std::abs(value) < std::abs(value) - *(above - 1) ? above : above - 1;
  return static_cast<uint8_t>((nearest - magnitudes.begin()) | (value < 0 ? 128 : 0));
}

void pack_fp8(Pair& pair, const std::string& name, ConstTensorView weight) {
  const int64_t out = weight.dim(0), in = weight.dim(1), blocks = (in + 127) / 128;
  Tensor codes(DType::kF8E4M3, weight.shape()), dense(DType::kF32, weight.shape());
  Tensor scales(DType::kF32, {(out + 127) / 128, blocks});
  for (int64_t o = 0; o < out; ++o) {
    for (int64_t k = 0; k < in; ++k) {
      const float scale = 0.001f * static_cast<float>(1 + (o / 128 + k / 128) % 3);
      scales.view().set(o / 128, k / 128, static_cast<double>(scale));
      const uint8_t code = nearest_code(weight.row<float>(o)[k] / scale);
      codes.view().row<uint8_t>(o)[k] = code;
      dense.view().row<float>(o)[k] = scale * to_float(F8E4M3{code});
    }
  }
  pair.packed.add(name + ".weight", std::move(codes));
  pair.packed.add(name + ".weight_scale_inv", std::move(scales));
  pair.dense.add(name + ".weight", std::move(dense));
}

const JsonObject kFp8 = {{"quant_method", "fp8"}, {"weight_block_size", JsonArray{128, 128}}};

// ---- GPTQ of 4 bits in groups of 128, inputs in an order of their own

using OrderOf = std::function<uint64_t(const std::string& name)>;  // layers with equal numbers share one

constexpr uint64_t kInOrder = 0;  // of inputs as they are

std::vector<int32_t> random_groups(uint64_t seed, int64_t in) {
  std::vector<int32_t> groups(static_cast<size_t>(in));
  for (size_t k = 0; k < groups.size(); ++k) groups[k] = static_cast<int32_t>(k / 128);
  if (seed == kInOrder) return groups;
  Rng rng(seed);
  for (size_t i = groups.size(); i > 1; --i) std::swap(groups[i - 1], groups[rng.below(i)]);
  return groups;
}

Packer gptq_packer(const OrderOf& order_of) {
  return [order_of](Pair& pair, const std::string& name, ConstTensorView weight) {
    const int64_t out = weight.dim(0), in = weight.dim(1), num_groups = in / 128;
    const std::vector<int32_t> groups = random_groups(order_of(name), in);
    Tensor words(DType::kI32, {in / 8, out}), zeros(DType::kI32, {num_groups, out / 8});
    Tensor scales(DType::kF16, {num_groups, out}), g_idx(DType::kI32, {in}), dense(DType::kF32, {out, in});
    std::fill_n(words.span<int32_t>().data(), in / 8 * out, 0);
    std::fill_n(zeros.span<int32_t>().data(), num_groups * out / 8, 0x77777777);  // 8, stored less one
    std::copy(groups.begin(), groups.end(), g_idx.span<int32_t>().begin());
    for (int64_t o = 0; o < out; ++o) {
      for (int64_t g = 0; g < num_groups; ++g)
        scales.view().set(g, o, 0.02 * (1 + 0.25 * static_cast<double>((g + o) % 3)));
      for (int64_t k = 0; k < in; ++k) {
        const auto scale = static_cast<float>(scales.view().at(groups[static_cast<size_t>(k)], o));
        const float ideal = std::round(weight.row<float>(o)[k] / scale) + 8;
        const auto q = static_cast<int>(std::clamp(ideal, 0.0f, 15.0f));
        words.view().row<uint32_t>(k / 8)[o] |= static_cast<uint32_t>(q) << 4 * (k % 8);
        dense.view().row<float>(o)[k] = scale * static_cast<float>(q - 8);
      }
    }
    pair.packed.add(name + ".qweight", std::move(words));
    pair.packed.add(name + ".qzeros", std::move(zeros));
    pair.packed.add(name + ".scales", std::move(scales));
    pair.packed.add(name + ".g_idx", std::move(g_idx));
    pair.dense.add(name + ".weight", std::move(dense));
  };
}

const JsonObject kGptq = {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 128}, {"desc_act", true}};

uint64_t hash_of(const std::string& name) { return std::hash<std::string>()(name); }
// Layers with the same inputs have the same order, as quantisers give it.
uint64_t order_of_inputs(const std::string& name) {
  const size_t last = name.rfind('.');
  const std::string layer = name.substr(last + 1);
  const bool is_down = layer == "down_proj" || layer == "o_proj" || layer == "w2";
  return hash_of(name.substr(0, last) + (is_down ? " out" : " in"));
}

// ---- other formats of 4 bits in groups of 128

/// The integers of one weight, [out, in], with scales of f16; `spread`: zeros are not all 8.
struct Nibbles {
  int64_t out, in;
  Tensor scales;  // [out, groups] f16
  std::vector<int> zeros, q;

  Nibbles(ConstTensorView weight, bool spread)
      : out(weight.dim(0)), in(weight.dim(1)), scales(DType::kF16, {out, in / 128}) {
    for (int64_t o = 0; o < out; ++o) {
      for (int64_t g = 0; g < in / 128; ++g) {
        scales.view().set(o, g, 0.02 * (1 + 0.25 * static_cast<double>((g + o) % 3)));
        zeros.push_back(spread ? static_cast<int>(7 + (g + 2 * o) % 4) : 8);
      }
      for (int64_t k = 0; k < in; ++k) {
        const float ideal = std::round(weight.row<float>(o)[k] / scale_at(o, k / 128));
        q.push_back(std::clamp(static_cast<int>(ideal) + zero_at(o, k / 128), 0, 15));
      }
    }
  }
  float scale_at(int64_t o, int64_t g) const { return static_cast<float>(scales.view().at(o, g)); }
  int zero_at(int64_t o, int64_t g) const { return zeros[static_cast<size_t>(o * (in / 128) + g)]; }
  int q_at(int64_t o, int64_t k) const { return q[static_cast<size_t>(o * in + k)]; }
  Tensor dense() const {
    Tensor all(DType::kF32, {out, in});
    for (int64_t o = 0; o < out; ++o)
      for (int64_t k = 0; k < in; ++k)
        all.view().row<float>(o)[k] =
            scale_at(o, k / 128) * static_cast<float>(q_at(o, k) - zero_at(o, k / 128));
    return all;
  }
};

// AWQ's "gemm": nibble n of a word is output kAwqOrder[n] of eight.
void pack_awq(Pair& pair, const std::string& name, ConstTensorView weight) {
  constexpr std::array<int64_t, 8> kAwqOrder = {0, 2, 4, 6, 1, 3, 5, 7};
  const Nibbles n(weight, /*spread=*/true);
  const int64_t groups = n.in / 128;
  Tensor words(DType::kI32, {n.in, n.out / 8}), zeros(DType::kI32, {groups, n.out / 8}),
      scales(DType::kF16, {groups, n.out});
  const auto word = [&](int64_t j, const auto& integer) {
    uint32_t all = 0;
    for (size_t i = 0; i < 8; ++i) all |= static_cast<uint32_t>(integer(8 * j + kAwqOrder[i])) << (4 * i);
    return all;
  };
  for (int64_t j = 0; j < n.out / 8; ++j) {
    for (int64_t k = 0; k < n.in; ++k)
      words.view().row<uint32_t>(k)[j] = word(j, [&](int64_t o) { return n.q_at(o, k); });
    for (int64_t g = 0; g < groups; ++g)
      zeros.view().row<uint32_t>(g)[j] = word(j, [&](int64_t o) { return n.zero_at(o, g); });
  }
  for (int64_t o = 0; o < n.out; ++o)
    for (int64_t g = 0; g < groups; ++g) scales.view().set(g, o, n.scales.view().at(o, g));
  pair.packed.add(name + ".qweight", std::move(words));
  pair.packed.add(name + ".qzeros", std::move(zeros));
  pair.packed.add(name + ".scales", std::move(scales));
  pair.dense.add(name + ".weight", n.dense());
}

const JsonObject kAwq = {
    {"quant_method", "awq"}, {"version", "gemm"}, {"bits", 4}, {"zero_point", true}, {"group_size", 128}};

void pack_compressed(Pair& pair, const std::string& name, ConstTensorView weight) {
  Nibbles n(weight, /*spread=*/false);
  Tensor words(DType::kI32, {n.out, n.in / 8}), shape(DType::kI64, {2});
  std::fill_n(words.span<int32_t>().data(), n.out * n.in / 8, 0);
  for (int64_t o = 0; o < n.out; ++o)
    for (int64_t k = 0; k < n.in; ++k)
      words.view().row<uint32_t>(o)[k / 8] |= static_cast<uint32_t>(n.q_at(o, k)) << 4 * (k % 8);
  shape.span<int64_t>()[0] = n.out;
  shape.span<int64_t>()[1] = n.in;
  pair.dense.add(name + ".weight", n.dense());
  pair.packed.add(name + ".weight_packed", std::move(words));
  pair.packed.add(name + ".weight_scale", std::move(n.scales));
  pair.packed.add(name + ".weight_shape", std::move(shape));
}

const JsonObject kCompressed =
    parse_json(R"({"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"],
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int",
        "strategy": "group", "group_size": 128}}}})",
               "compressed")
        .as_object();

// ---- bytes

void pack_fp8_tensor(Pair& pair, const std::string& name, ConstTensorView weight) {
  constexpr float kScale = 0.002f;
  Tensor codes(DType::kF8E4M3, weight.shape()), dense(DType::kF32, weight.shape()), scale(DType::kF32, {1});
  scale.span<float>()[0] = kScale;
  for (int64_t o = 0; o < weight.dim(0); ++o) {
    for (int64_t k = 0; k < weight.dim(1); ++k) {
      const uint8_t code = nearest_code(weight.row<float>(o)[k] / kScale);
      codes.view().row<uint8_t>(o)[k] = code;
      dense.view().row<float>(o)[k] = kScale * to_float(F8E4M3{code});
    }
  }
  pair.packed.add(name + ".weight", std::move(codes));
  pair.packed.add(name + ".weight_scale", std::move(scale));
  pair.dense.add(name + ".weight", std::move(dense));
}

const JsonObject kFp8Tensor = {{"quant_method", "fp8"}, {"activation_scheme", "static"}};

void pack_w8a8(Pair& pair, const std::string& name, ConstTensorView weight) {
  Tensor codes(DType::kI8, weight.shape()), dense(DType::kF32, weight.shape()),
      scales(DType::kF32, {weight.dim(0), 1});
  for (int64_t o = 0; o < weight.dim(0); ++o) {
    const float scale = scales.view().row<float>(o)[0] = 0.002f * static_cast<float>(1 + o % 3);
    for (int64_t k = 0; k < weight.dim(1); ++k) {
      const float q = std::clamp(std::round(weight.row<float>(o)[k] / scale), -127.0f, 127.0f);
      codes.view().row<int8_t>(o)[k] = static_cast<int8_t>(q);
      dense.view().row<float>(o)[k] = scale * q;
    }
  }
  pair.packed.add(name + ".weight", std::move(codes));
  pair.packed.add(name + ".scale", std::move(scales));
  pair.dense.add(name + ".weight", std::move(dense));
}

const JsonObject kW8a8 = {{"quant_method", "smooth_quant"}, {"quant_dtype", "int8"}};

// ---- mxfp4: experts of gpt-oss

bool is_mxfp4(const std::string& name) {
  return name.find(".experts.gate_up_proj") != std::string::npos ||
         name.find(".experts.down_proj") != std::string::npos;
}

constexpr std::array<float, 8> kMagnitudes = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};  // of the low three bits

uint8_t nearest_mxfp4(float value) {
  size_t best = 0;
  for (size_t i = 1; i < kMagnitudes.size(); ++i)
    if (std::abs(kMagnitudes[i] - std::abs(value)) < std::abs(kMagnitudes[best] - std::abs(value))) best = i;
  return static_cast<uint8_t>(best | (value < 0 && best > 0 ? 8 : 0));
}

float mxfp4_value(uint8_t code) { return code < 8 ? kMagnitudes[code] : -kMagnitudes[code - 8]; }

constexpr int64_t kExperts = 3;

// [experts * out, in]
void pack_mxfp4(Pair& pair, const std::string& name, ConstTensorView weight) {
  const int64_t rows = weight.rows(), in = weight.cols(), blocks = in / 32;
  Tensor codes(DType::kU8, {kExperts, rows / kExperts, blocks, 16}),
      scales(DType::kU8, {kExperts, rows / kExperts, blocks});
  Tensor dense(DType::kF32, weight.shape());
  std::ranges::fill(codes.span<uint8_t>(), uint8_t{0});
  for (int64_t o = 0; o < rows; ++o) {
    for (int64_t k = 0; k < in; ++k) {
      const int exponent = -5 + static_cast<int>((o + k / 32) % 3);
      const auto block = static_cast<size_t>(o * blocks + k / 32), within = static_cast<size_t>(k % 32);
      scales.span<uint8_t>()[block] = static_cast<uint8_t>(127 + exponent);
      const uint8_t code = nearest_mxfp4(std::ldexp(static_cast<float>(weight.at(o, k)), -exponent));
      codes.span<uint8_t>()[block * 16 + within / 2] |= static_cast<uint8_t>(code << (within % 2 * 4));
      dense.view().set(o, k, static_cast<double>(std::ldexp(mxfp4_value(code), exponent)));
    }
  }
  const std::string prefix = name.substr(0, name.size() - std::string(".weight").size());
  pair.packed.add(prefix + "_blocks", std::move(codes));
  pair.packed.add(prefix + "_scales", std::move(scales));
  pair.dense.add(name, std::move(dense));
}

/// All experts are chosen, so that no near tie can turn over.
Pair make_gpt_oss_pair(uint64_t seed) {
  const JsonObject config = {{"architectures", JsonArray{"GptOssForCausalLM"}},
                             {"hidden_size", 128},
                             {"intermediate_size", 96},
                             {"num_attention_heads", 4},
                             {"num_key_value_heads", 2},
                             {"head_dim", 32},
                             {"num_hidden_layers", 2},
                             {"vocab_size", kShape.vocab},
                             {"sliding_window", 8},
                             {"num_local_experts", kExperts},
                             {"num_experts_per_tok", kExperts}};
  const MemoryCheckpoint source = make_random_family(config, seed);
  Pair pair;
  pair.packed.mutable_config() = pair.dense.mutable_config() = source.config().as_object();
  pair.packed.mutable_config()["quantization_config"] = JsonObject{{"quant_method", "mxfp4"}};
  for (size_t i = 0; i < source.tensors().size(); ++i) {
    const std::string& name = source.tensors()[i].name;
    const ConstTensorView view = source.tensor(i);
    if (is_mxfp4(name) && !name.ends_with("_bias")) {
      pack_mxfp4(pair, name, view);
      continue;
    }
    for (MemoryCheckpoint* to : {&pair.packed, &pair.dense}) {
      Tensor copy(view.dtype(), view.shape());
      std::copy_n(view.data(), copy.bytes(), copy.view().data());
      to->add(name, std::move(copy));
    }
  }
  return pair;
}

// ---- the models

/// As a Mixtral: two experts of which each token has both.
MemoryCheckpoint make_random_mixtral(uint64_t seed) {
  const MemoryCheckpoint llama = make_random_llama(kShape, seed), other = make_random_llama(kShape, seed + 1);
  MemoryCheckpoint out;
  out.mutable_config() = llama.config().as_object();
  out.mutable_config()["architectures"] = JsonArray{"MixtralForCausalLM"};
  out.mutable_config()["num_local_experts"] = 2;
  out.mutable_config()["num_experts_per_tok"] = 2;
  constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kNames = {
      std::pair{"mlp.gate_proj", "w1"}, {"mlp.up_proj", "w3"}, {"mlp.down_proj", "w2"}};
  const auto copy_of = [](ConstTensorView view) {
    Tensor copy(DType::kF32, view.shape());
    std::copy_n(view.row<float>(0), view.shape().numel(), copy.span<float>().data());
    return copy;
  };
  for (size_t i = 0; i < llama.tensors().size(); ++i) {
    const std::string& name = llama.tensors()[i].name;
    const auto mlp = std::find_if(kNames.begin(), kNames.end(), [&](const auto& pair) {
      return name.find(pair.first) != std::string::npos;
    });
    if (mlp == kNames.end()) {
      out.add(name, copy_of(llama.tensor(i)));
      continue;
    }
    const std::string moe = name.substr(0, name.find("mlp.")) + "block_sparse_moe.";
    out.add(cat(moe, "experts.0.", mlp->second, ".weight"), copy_of(llama.tensor(i)));
    out.add(cat(moe, "experts.1.", mlp->second, ".weight"), copy_of(other.tensor(i)));
    if (mlp->second != "w1") continue;
    Tensor gate(DType::kF32, {2, kHidden});
    for (int64_t k = 0; k < kHidden; ++k) gate.view().set(k % 2, k, 0.1), gate.view().set(1 - k % 2, k, 0);
    out.add(moe + "gate.weight", std::move(gate));
  }
  return out;
}

Tensor logits_of(const Kernels& kernels, const Checkpoint& checkpoint) {
  const std::vector<int> ids = random_ids(3, 21, kShape.vocab);
  const auto model = load_model(checkpoint, kernels, {.max_step_tokens = 64, .max_logit_rows = 64});
  return all_logits(*model, kernels, ids, {13, 1});
}

const std::vector<size_t> kPieces = {13, 1};

/// In 16 bits each logit is off by what roundings explain; else f32 sums differ in their order, as those of
/// random_llama_test.cc. The reference computes the same to the bit.
void expect_logits(Model& model, const Kernels& kernels, const std::string& name, const Checkpoint& packed,
                   const Checkpoint& dense) {
  const std::vector<int> ids = random_ids(3, 21, kShape.vocab);
  if (const auto dtype = half_dtype_of(name)) {
    HalfJudge judge(packed, *dtype, {.max_step_tokens = 64, .max_logit_rows = 64});
    std::vector<HalfLogits> judged;
    judged.push_back(judge.judge(ids));
    const HalfComparison seen = expect_half_logits(judged, model, kernels, kPieces);
    EXPECT_EQ(seen.compared, static_cast<int64_t>(ids.size()));
    ::testing::Test::RecordProperty("error_over_bound", cat(seen.worst));
    return;
  }
  const Tensor got = all_logits(model, kernels, ids, kPieces), want = logits_of(backend("ref"), dense);
  double largest = 0;
  for (int64_t r = 0; r < want.dim(0); ++r)
    for (int64_t c = 0; c < want.dim(1); ++c) largest = std::max(largest, std::abs(want.view().at(r, c)));
  EXPECT_GT(largest, 1e-2);
  const double bound = name == "ref" ? 0 : 2e-4 * largest;
  for (int64_t r = 0; r < want.dim(0); ++r)
    for (int64_t c = 0; c < want.dim(1); ++c)
      ASSERT_NEAR(got.view().at(r, c), want.view().at(r, c), bound) << "token " << r << ", id " << c;
}

class QuantisedLlamaTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { LMD_REQUIRE_GPU(GetParam()); }

  /// Opens the packed one from files; its packed layers are of `kind` when they come out.
  void expect_same(const Pair& pair, DType kind, bool (*is_packed)(const std::string&) = is_linear) const {
    const TempFolder folder;
    pair.packed.save(folder.path());
    const auto opened = open_checkpoint(folder.path());
    int64_t num_packed = 0;
    for (const TensorInfo& info : opened->tensors()) {
      if (!is_packed(info.name) || info.name.ends_with("_bias")) continue;
      ++num_packed;
      EXPECT_EQ(info.dtype, kind) << info.name;
    }
    EXPECT_GT(num_packed, 0);
    const Kernels& kernels = backend_or_nearest(GetParam());
    const auto model = load_model(*opened, kernels, {.max_step_tokens = 64, .max_logit_rows = 64});
    expect_logits(*model, kernels, GetParam(), *opened, pair.dense);
  }
};

TEST_P(QuantisedLlamaTest, Awq) {
  expect_same(pack_linears(make_random_llama(kShape, 16), pack_awq, kAwq), DType::kU4G128);
}

TEST_P(QuantisedLlamaTest, ExpertsInAwq) {
  expect_same(pack_linears(make_random_mixtral(17), pack_awq, kAwq), DType::kU4G128);
}

TEST_P(QuantisedLlamaTest, CompressedTensors) {
  expect_same(pack_linears(make_random_llama(kShape, 18), pack_compressed, kCompressed), DType::kU4G128);
}

TEST_P(QuantisedLlamaTest, Fp8WithOneScale) {
  expect_same(pack_linears(make_random_llama(kShape, 19), pack_fp8_tensor, kFp8Tensor), DType::kF8G64);
}

TEST_P(QuantisedLlamaTest, W8A8) {
  expect_same(pack_linears(make_random_llama(kShape, 20), pack_w8a8, kW8a8), DType::kI8G64);
}

TEST_P(QuantisedLlamaTest, ExpertsInMxfp4) { expect_same(make_gpt_oss_pair(21), DType::kU5G32, is_mxfp4); }

TEST_P(QuantisedLlamaTest, Fp8InBlocks) {
  expect_same(pack_linears(make_random_llama(kShape, 11), pack_fp8, kFp8), DType::kF8G64);
}

TEST_P(QuantisedLlamaTest, ExpertsInFp8) {
  expect_same(pack_linears(make_random_mixtral(12), pack_fp8, kFp8), DType::kF8G64);
}

TEST_P(QuantisedLlamaTest, GptqInActivationOrder) {
  expect_same(pack_linears(make_random_llama(kShape, 13), gptq_packer(order_of_inputs), kGptq),
              DType::kU4G128);
}

TEST_P(QuantisedLlamaTest, ExpertsInActivationOrdersOfTheirOwn) {
  expect_same(pack_linears(make_random_mixtral(14), gptq_packer(order_of_inputs), kGptq), DType::kU4G128);
}

// No quantiser writes q, k and v so; they are not mixed up all the same.
TEST_P(QuantisedLlamaTest, GptqOfNeighboursInDifferentOrders) {
  expect_same(pack_linears(make_random_llama(kShape, 15), gptq_packer(hash_of), kGptq), DType::kU4G128);
}

class QuantisedRanksTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { LMD_REQUIRE_GPU(GetParam()); }
};

/// Opens the packed one from files, for two ranks.
void expect_same_on_ranks(const Pair& pair, const std::string& name) {
  const TempFolder folder;
  pair.packed.save(folder.path());
  const auto opened = open_checkpoint(folder.path());
  RankedModel ranked(*opened, name, 2, {.max_step_tokens = 64, .max_logit_rows = 64});
  // Ranks' sums are added up in another order than the whole's, in f64 too.
  const std::string bound_name = name == "ref" ? "ref_ranks" : name;
  expect_logits(ranked.model(), ranked.kernels(), bound_name, *opened, pair.dense);
}

TEST_P(QuantisedRanksTest, Fp8OnTwoRanks) {
  expect_same_on_ranks(pack_linears(make_random_llama(kShape, 11), pack_fp8, kFp8), GetParam());
}

TEST_P(QuantisedRanksTest, ExpertsInFp8OnTwoRanks) {
  expect_same_on_ranks(pack_linears(make_random_mixtral(12), pack_fp8, kFp8), GetParam());
}

// Groups of 128 in the order of the inputs: half of the inner size is a group and a half.
TEST_P(QuantisedRanksTest, GptqOnTwoRanks) {
  const Packer in_order = gptq_packer([](const std::string&) { return kInOrder; });
  expect_same_on_ranks(pack_linears(make_random_llama(kShape, 13), in_order, kGptq), GetParam());
}

TEST(QuantisedLlama, RanksThatWouldCutActivationOrderAreRefused) {
  const Pair pair = pack_linears(make_random_llama(kShape, 13), gptq_packer(order_of_inputs), kGptq);
  const TempFolder folder;
  pair.packed.save(folder.path());
  const std::string refusal = refusal_of_ranks(*open_checkpoint(folder.path()), 2);
  for (const char* word : {"o_proj", "desc_act", "use tp 1"})
    EXPECT_NE(refusal.find(word), std::string::npos) << word << " in " << refusal;
}

std::vector<std::string> with_cuda(std::vector<std::string> names) {
  for (const std::string& name : backend_names()) names.push_back(name);
  for (const std::string& name : cuda_names()) names.push_back(name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Backends, QuantisedLlamaTest, ::testing::ValuesIn(with_cuda({"nearest_bf16"})),
                         [](const auto& test) { return test.param; });
INSTANTIATE_TEST_SUITE_P(Backends, QuantisedRanksTest, ::testing::ValuesIn(with_cuda({})),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace lmdeploy::testing
