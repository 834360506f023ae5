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
#include "lmdeploy/core/error.h"
#include "lmdeploy/core/float8.h"
#include "lmdeploy/core/half.h"
#include "lmdeploy/core/random.h"
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

class QuantisedLlamaTest : public ::testing::TestWithParam<std::string> {
 protected:
  /// Opens the packed one from files; all its linear layers are of `kind` when they come out. The reference
  /// computes the same to the bit; f32 sums differ in their order, as those of random_llama_test.cc.
  void expect_same(const Pair& pair, DType kind) const {
    const TempFolder folder;
    pair.packed.save(folder.path());
    const auto opened = open_checkpoint(folder.path());
    for (const TensorInfo& info : opened->tensors()) {
      if (is_linear(info.name)) {
        EXPECT_EQ(info.dtype, kind) << info.name;
      }
    }
    const Kernels& kernels = backend(GetParam());
    const Tensor got = logits_of(kernels, *opened), want = logits_of(backend("ref"), pair.dense);
    double largest = 0;
    for (int64_t r = 0; r < want.dim(0); ++r)
      for (int64_t c = 0; c < want.dim(1); ++c) largest = std::max(largest, std::abs(want.view().at(r, c)));
    EXPECT_GT(largest, 1e-2);
    const double bound = GetParam() == "ref" ? 0 : 2e-4 * largest;
    for (int64_t r = 0; r < want.dim(0); ++r)
      for (int64_t c = 0; c < want.dim(1); ++c)
        ASSERT_NEAR(got.view().at(r, c), want.view().at(r, c), bound) << "token " << r << ", id " << c;
  }
};

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

/// Opens the packed one from files, for two ranks; bounds as those of sharded_family_test.cc.
void expect_same_on_ranks(const Pair& pair, const std::string& name) {
  const TempFolder folder;
  pair.packed.save(folder.path());
  RankedModel ranked(*open_checkpoint(folder.path()), name, 2, {.max_step_tokens = 64, .max_logit_rows = 64});
  const Tensor got = all_logits(ranked.model(), ranked.kernels(), random_ids(3, 21, kShape.vocab), {13, 1});
  const Tensor want = logits_of(backend("ref"), pair.dense);
  double largest = 0;
  for (int64_t r = 0; r < want.dim(0); ++r)
    for (int64_t c = 0; c < want.dim(1); ++c) largest = std::max(largest, std::abs(want.view().at(r, c)));
  const double share = 2e-4 * epsilon(ranked.kernels().activation_dtype()) / epsilon(DType::kF32);
  for (int64_t r = 0; r < want.dim(0); ++r)
    for (int64_t c = 0; c < want.dim(1); ++c)
      ASSERT_NEAR(got.view().at(r, c), want.view().at(r, c), share * largest)
          << "token " << r << ", id " << c;
}

TEST_P(QuantisedLlamaTest, Fp8OnTwoRanks) {
  expect_same_on_ranks(pack_linears(make_random_llama(kShape, 11), pack_fp8, kFp8), GetParam());
}

TEST_P(QuantisedLlamaTest, ExpertsInFp8OnTwoRanks) {
  expect_same_on_ranks(pack_linears(make_random_mixtral(12), pack_fp8, kFp8), GetParam());
}

// Groups of 128 in the order of the inputs: half of the inner size is a group and a half.
TEST_P(QuantisedLlamaTest, GptqOnTwoRanks) {
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

INSTANTIATE_TEST_SUITE_P(Backends, QuantisedLlamaTest, ::testing::ValuesIn(backend_names()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace lmdeploy::testing
