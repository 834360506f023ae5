// What load_model() says about checkpoints that do not fit, and what it leaves out by design.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "backends.h"
#include "lmdeploy/core/error.h"
#include "lmdeploy/kernels/ref/ref_kernels.h"
#include "lmdeploy/models/step_runner.h"
#include "random_llama.h"

namespace lmdeploy::testing {
namespace {

constexpr LlamaShape kShape;

const Kernels& kernels() { return backend("ref"); }

std::unique_ptr<Model> load(const Checkpoint& checkpoint, const LoadOptions& options = {}) {
  return load_model(checkpoint, kernels(), options);
}

std::string error_of(const Checkpoint& checkpoint, ErrorCode code, const LoadOptions& options = {}) {
  try {
    load(checkpoint, options);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

void expect_in(const std::string& text, std::initializer_list<std::string_view> parts) {
  for (std::string_view part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << part << " in:\n" << text;
}

Tensor zeros(const Shape& shape, DType dtype = DType::kF32) {
  Tensor tensor(dtype, shape);
  std::ranges::fill(tensor.span<std::byte>(), std::byte{0});
  return tensor;
}

std::vector<double> logits_of(Model& model) {
  StepRunner runner(model, kernels(), {.kv_dtype = DType::kF64, .max_tokens = 16});
  const std::vector<int> ids = {1, 5, 2};
  const StepRunner::Chunk chunk = {.ids = ids};
  const ConstTensorView row = runner.step({&chunk, 1});
  std::vector<double> out;
  for (int64_t c = 0; c < row.cols(); ++c) out.push_back(row.at(0, c));
  return out;
}

TEST(Loader, AllMissingTensorsAreNamed) {
  MemoryCheckpoint checkpoint = make_random_llama(kShape, 1);
  checkpoint.remove("model.layers.1.self_attn.k_proj.weight");
  checkpoint.remove("model.norm.weight");
  const std::string message = error_of(checkpoint, ErrorCode::kInvalidData);
  expect_in(message, {"memory/config.json", "LlamaForCausalLM", "2 missing",
                      "model.layers.1.self_attn.k_proj.weight [48, 48]", "model.norm.weight [48]"});
  EXPECT_EQ(message.find("not used"), std::string::npos);
}

TEST(Loader, UnusedTensorsAreNamedExactly) {
  MemoryCheckpoint checkpoint = make_random_llama(kShape, 1);
  checkpoint.add("model.layers.0.mlp.gate_up_proj.weight", zeros({4, 4}));
  Tensor bias = zeros({48});
  bias.view().set(47, 1);
  checkpoint.add("model.layers.0.self_attn.q_proj.bias",
                 std::move(bias));  // attention_bias is off: it would be lost
  checkpoint.add("model.layers.01.mlp.up_proj.weight", zeros({80, 48}));
  const std::string message = error_of(checkpoint, ErrorCode::kInvalidData);
  expect_in(message, {"3 not used by this architecture", "\"model.layers.0.mlp.gate_up_proj.weight\" [4, 4]",
                      "\"model.layers.0.self_attn.q_proj.bias\"", "\"model.layers.01.mlp.up_proj.weight\""});
  EXPECT_EQ(message.find("missing"), std::string::npos);
}

TEST(Loader, ShapesAndKindsThatDoNotFit) {
  MemoryCheckpoint checkpoint = make_random_llama(kShape, 1);
  checkpoint.remove("model.layers.0.mlp.down_proj.weight");
  checkpoint.add("model.layers.0.mlp.down_proj.weight", zeros({80, 48}));  // transposed
  checkpoint.remove("model.norm.weight");
  checkpoint.add("model.norm.weight", zeros({1, 48}));
  checkpoint.remove("lm_head.weight");
  checkpoint.add("lm_head.weight", zeros({67, 48}, DType::kI8));
  expect_in(error_of(checkpoint, ErrorCode::kInvalidData),
            {"3 of another shape or kind", "model.layers.0.mlp.down_proj.weight is f32 [80, 48]", "[48, 80]",
             "model.norm.weight is f32 [1, 48]", "lm_head.weight is i8 [67, 48]"});
}

TEST(Loader, AllKindsOfTroubleInOneMessage) {
  MemoryCheckpoint checkpoint = make_random_llama(kShape, 1);
  checkpoint.remove("model.layers.0.input_layernorm.weight");
  checkpoint.add("stray", zeros({2}));
  checkpoint.remove("model.embed_tokens.weight");
  checkpoint.add("model.embed_tokens.weight", zeros({66, 48}));
  expect_in(error_of(checkpoint, ErrorCode::kInvalidData),
            {"1 missing", "input_layernorm", "1 not used", "stray", "1 of another shape", "f32 [66, 48]",
             "[67, 48]"});
}

TEST(Loader, LongListsAreCutAndCounted) {
  MemoryCheckpoint checkpoint = make_random_llama(kShape, 1);
  checkpoint.mutable_config()["num_hidden_layers"] = 1000;
  const std::string message = error_of(checkpoint, ErrorCode::kInvalidData);
  expect_in(message, {cat(998 * 9, " missing"), cat("and ", 998 * 9 - 20, " more"), "model.layers.2."});
  EXPECT_LT(message.size(), 4000u);
}

TEST(Loader, HostileNamesAreMadeFitForALog) {
  MemoryCheckpoint checkpoint = make_random_llama(kShape, 1);
  checkpoint.add("evil\n\x1b[2J", zeros({2}));
  const std::string message = error_of(checkpoint, ErrorCode::kInvalidData);
  EXPECT_EQ(message.find('\x1b'), std::string::npos);
  expect_in(message, {"evil\\x0a\\x1b[2J"});
}

TEST(Loader, UnknownArchitecture) {
  MemoryCheckpoint checkpoint = make_random_llama(kShape, 1);
  checkpoint.mutable_config()["architectures"] = JsonArray{"BloomForCausalLM"};
  expect_in(error_of(checkpoint, ErrorCode::kUnsupported),
            {"memory/config.json", "\"BloomForCausalLM\"", "LlamaForCausalLM", "YiForCausalLM"});
  checkpoint.mutable_config().erase("architectures");
  expect_in(error_of(checkpoint, ErrorCode::kUnsupported), {"architectures", "LlamaForCausalLM"});
  checkpoint.mutable_config()["auto_map"] =
      JsonObject{{"AutoModelForCausalLM", "modeling_llama.LlamaForCausalLM"}};
  EXPECT_EQ(load(checkpoint)->spec().architecture, "LlamaForCausalLM");
}

TEST(Loader, QuantizationCannotBeOverridden) {
  LoadOptions options;
  options.config_overrides["quantization_config"] = JsonObject{{"quant_method", "awq"}, {"bits", 4}};
  expect_in(error_of(make_random_llama(kShape, 1), ErrorCode::kUnsupported, options),
            {"quantization_config cannot be overridden"});
}

TEST(Loader, BiasesOfZerosThatTheModelDoesNotHaveAreIgnored) {
  MemoryCheckpoint checkpoint = make_random_llama(kShape, 1);
  const std::vector<double> want = logits_of(*load(checkpoint));
  checkpoint.add("model.layers.0.self_attn.q_proj.bias", zeros({48}));
  EXPECT_EQ(logits_of(*load(checkpoint)), want);
}

TEST(Loader, DerivedBuffersAreIgnored) {
  MemoryCheckpoint checkpoint = make_random_llama(kShape, 1);
  const std::vector<double> want = logits_of(*load(checkpoint));
  checkpoint.add("model.layers.0.self_attn.rotary_emb.inv_freq", zeros({8}));
  checkpoint.add("model.layers.0.self_attn.rotary_emb.cos_cached", zeros({8}));
  checkpoint.add("model.layers.0.self_attn.rotary_emb.sin_cached", zeros({8}));
  checkpoint.add("model.layers.0.attn.masked_bias", zeros({1}));
  checkpoint.add("model.layers.0.attn.bias", zeros({1}));
  checkpoint.add("model.layers.2.eh_proj.weight",
                 zeros({4, 4}));  // past the last layer: multi-token prediction
  EXPECT_EQ(logits_of(*load(checkpoint)), want);
}

TEST(Loader, EveryTensorIsDroppedOnce) {
  MemoryCheckpoint checkpoint = make_random_llama(kShape, 1);
  checkpoint.add("model.layers.0.self_attn.rotary_emb.inv_freq", zeros({8}));
  load(checkpoint);
  EXPECT_EQ(checkpoint.drops(), std::vector<int>(checkpoint.tensors().size(), 1));
}

TEST(Loader, ProgressGoesFromNothingToAll) {
  LlamaShape shape = kShape;
  shape.dtype = DType::kBF16;
  const MemoryCheckpoint checkpoint = make_random_llama(shape, 1);
  int64_t bytes = 0;
  for (size_t i = 0; i < checkpoint.tensors().size(); ++i) bytes += 2 * checkpoint.tensors()[i].shape.numel();
  std::vector<int64_t> seen;
  load(checkpoint, {.progress = [&](int64_t done, int64_t total) {
         EXPECT_EQ(total, bytes);
         seen.push_back(done);
       }});
  ASSERT_GT(seen.size(), checkpoint.tensors().size());
  EXPECT_EQ(seen.front(), 0);
  EXPECT_EQ(seen.back(), bytes);
  EXPECT_TRUE(std::ranges::is_sorted(seen));
}

TEST(Loader, TiedFlagWinsOverAHeadInTheFile) {
  MemoryCheckpoint checkpoint = make_random_llama(kShape, 1);
  const std::vector<double> own_head = logits_of(*load(checkpoint));
  checkpoint.mutable_config()["tie_word_embeddings"] = true;
  const auto tied = load(checkpoint);
  EXPECT_NE(logits_of(*tied), own_head);
  checkpoint.remove("lm_head.weight");
  const std::vector<double> without = logits_of(*load(checkpoint));
  EXPECT_EQ(logits_of(*tied), without);
  checkpoint.mutable_config()["tie_word_embeddings"] = false;  // no head in the file: the embedding is used
  const auto missing = load(checkpoint);
  EXPECT_TRUE(missing->spec().tied_embedding);
  EXPECT_EQ(logits_of(*missing), without);
}

TEST(Loader, NormsOfAnyFloatKind) {
  MemoryCheckpoint checkpoint = make_random_llama(kShape, 1);
  std::vector<std::vector<double>> all;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF64}) {
    checkpoint.remove("model.norm.weight");
    Tensor weight(dtype, {48});
    for (int64_t i = 0; i < 48; ++i)
      weight.view().set(i, 0.5 + 0.25 * static_cast<double>(i % 5));  // exact in each
    checkpoint.add("model.norm.weight", std::move(weight));
    all.push_back(logits_of(*load(checkpoint)));
    EXPECT_EQ(all.back(), all.front()) << lmdeploy::to_string(dtype);
  }
}

TEST(Loader, OverridesMergeKeyByKey) {
  MemoryCheckpoint checkpoint = make_random_llama(kShape, 1);
  checkpoint.mutable_config()["rope_scaling"] = JsonObject{{"rope_type", "linear"}, {"factor", 2.0}};
  LoadOptions options;
  options.config_overrides["rope_scaling"] = JsonObject{{"factor", 4.0}};
  options.config_overrides["rms_norm_eps"] = 0.25;
  const auto model = load(checkpoint, options);
  EXPECT_EQ(model->spec().rope.kind, RopeSpec::Kind::kLinear);
  EXPECT_EQ(model->spec().rope.factor, 4);
  EXPECT_EQ(model->spec().max_positions, 1024);
  EXPECT_EQ(model->spec().norm_eps, 0.25f);
  EXPECT_EQ(load(checkpoint)->spec().max_positions, 512);  // the checkpoint itself is untouched
}

TEST(Loader, OverriddenRopeKindWinsInAnySpelling) {
  for (const char* home : {"rope_scaling", "rope_parameters"}) {
    for (const char* spelling : {"type", "rope_type"}) {
      MemoryCheckpoint checkpoint = make_random_llama(kShape, 1);
      checkpoint.mutable_config()[home] =
          JsonObject{{spelling, "linear"}, {"factor", 2.0}, {"rope_theta", 500.0}};
      for (const char* new_home : {"rope_scaling", "rope_parameters"}) {
        SCOPED_TRACE(cat(home, ", ", spelling, " overridden by ", new_home));
        LoadOptions options;
        options.config_overrides[new_home] = JsonObject{{"rope_type", "dynamic"}, {"factor", 3.0}};
        const RopeSpec rope = load(checkpoint, options)->spec().rope;
        EXPECT_EQ(rope.kind, RopeSpec::Kind::kDynamicNtk);
        EXPECT_EQ(rope.factor, 3);
      }
    }
  }
}

TEST(Loader, RopeFactorsMustFit) {
  MemoryCheckpoint checkpoint = make_random_llama(kShape, 1);
  checkpoint.add("rope_freqs.weight", zeros({5}));
  expect_in(error_of(checkpoint, ErrorCode::kInvalidData), {"rope_freqs.weight", "[5]", "[8]"});
  checkpoint.remove("rope_freqs.weight");
  checkpoint.add("rope_freqs.weight", zeros({8}));
  expect_in(error_of(checkpoint, ErrorCode::kInvalidData), {"rope_freqs.weight", "above 0"});
}

TEST(Loader, KvLayoutFollowsTheSpec) {
  LlamaShape shape = kShape;
  shape.heads = 6;
  shape.kv_heads = 2;
  const auto model = load(make_random_llama(shape, 1));
  const KvLayout layout = model->kv_layout(DType::kF16, 32);
  EXPECT_EQ(layout.dtype, DType::kF16);
  EXPECT_EQ(layout.num_layers, 2);
  EXPECT_EQ(layout.num_kv_heads, 2);
  EXPECT_EQ(layout.head_dim, 16);
  EXPECT_EQ(layout.block_len, 32);
  // Layers, heads, K and V, tokens; a row of 16 elements, with a scale and a min where it is quantised.
  EXPECT_EQ(layout.block_bytes(), 2 * 2 * 2 * 32 * 32);
  EXPECT_EQ(model->kv_layout(DType::kU8, 32).block_bytes(), 2 * 2 * 2 * 32 * (16 + 4));
  EXPECT_EQ(model->kv_layout(DType::kU4, 32).block_bytes(), 2 * 2 * 32 * (8 + 8 + 8 + 4));  // keys: two
  EXPECT_GT(model->weight_bytes(), 0u);
}

// A device that keeps matrices of floats in f16.
class HalfKernels final : public RefKernels {
 public:
  HalfKernels() : RefKernels(std::make_shared<ThreadPool>(1)) {}
  DType activation_dtype() const override { return DType::kF16; }
};

// F80.
TEST(Loader, WeightsBeyondF16AreCounted) {
  LlamaShape shape;
  shape.dtype = DType::kBF16;
  MemoryCheckpoint checkpoint = make_random_llama(shape, 1);
  const auto logged = [&](const Kernels& by) {
    ::testing::internal::CaptureStderr();
    load_model(checkpoint, by, {});
    return ::testing::internal::GetCapturedStderr();
  };
  const HalfKernels half;
  EXPECT_EQ(logged(half), "");
  const auto change = [&](const std::string& name, const Shape& of, double value) {
    Tensor large = zeros(of, DType::kBF16);
    large.view().set(0, 0, value);
    checkpoint.remove(name);
    checkpoint.add(name, std::move(large));
  };
  change("model.layers.0.self_attn.q_proj.weight", {48, 48}, 65536);
  change("model.layers.1.mlp.down_proj.weight", {48, 80}, -1e6);
  change("model.norm.weight", {48}, 1e6);  // a vector stays in f32
  EXPECT_EQ(logged(kernels()), "");
  const std::string warning = logged(half);
  expect_in(warning, {"2 weights are beyond 65504", "model.layers.1.mlp.down_proj.weight", "dtype float32"});
  EXPECT_EQ(std::ranges::count(warning, '\n'), 1) << warning;
}

}  // namespace
}  // namespace lmdeploy::testing
