// One model written for the hub and as GGUF (other names, keys and forms of tensors) says the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <tuple>

#include "backends.h"
#include "gguf_families.h"
#include "lmdeploy/core/error.h"
#include "lmdeploy/models/step_runner.h"
#include "random_family.h"
#include "random_llama.h"

namespace lmdeploy::testing {
namespace {

constexpr int64_t kTokens = 37;

struct Twins {
  std::unique_ptr<Model> hub, gguf;
};

// The largest difference of the twins' logits, as a share of the largest logit.
double difference(const Kernels& kernels, Twins& twins, const std::vector<int>& ids) {
  Model* models[] = {twins.hub.get(), twins.gguf.get()};
  std::vector<double> logits[2];
  for (int i = 0; i < 2; ++i) {
    StepRunner runner(*models[i], kernels, {.kv_dtype = exact_kv_dtype(kernels), .max_tokens = 64});
    const StepRunner::Chunk chunk = {.ids = ids, .num_logits = kTokens};
    const ConstTensorView rows = runner.step({&chunk, 1});
    for (int64_t r = 0; r < rows.rows(); ++r)
      for (int64_t c = 0; c < rows.cols(); ++c) logits[i].push_back(rows.at(r, c));
  }
  double largest = 0, worst = 0;
  for (size_t i = 0; i < logits[0].size(); ++i) {
    largest = std::max(largest, std::abs(logits[0][i]));
    worst = std::max(worst, std::abs(logits[0][i] - logits[1][i]));
  }
  return worst / largest;
}

class GgufTwinTest : public ::testing::TestWithParam<std::string> {
 protected:
  Twins load(const MemoryCheckpoint& checkpoint) {
    const std::string path = folder_.path() + "/model.gguf";
    write_llama_gguf(path, checkpoint);
    const auto gguf = open_checkpoint(path);
    return {load_model(checkpoint, kernels_, options_), load_model(*gguf, kernels_, options_)};
  }

  TempFolder folder_;
  const Kernels& kernels_ = backend(GetParam());
  const LoadOptions options_ = {.max_step_tokens = 64, .max_logit_rows = 64};
};

TEST_P(GgufTwinTest, SameLogits) {
  for (const bool tied : {false, true}) {
    const LlamaShape shape = {.hidden = 60,
                              .inner = 88,
                              .heads = 6,
                              .kv_heads = 2,
                              .head_dim = 20,
                              .vocab = 71,
                              .attention_bias = true,
                              .mlp_bias = true,
                              .tied = tied,
                              .dtype = DType::kF16};
    Twins twins = load(make_random_llama(shape, 31));
    EXPECT_TRUE(twins.gguf->spec().rope.interleaved);
    EXPECT_EQ(twins.gguf->spec().tied_embedding, tied);
    EXPECT_LT(difference(kernels_, twins, random_ids(31, kTokens, shape.vocab)), 1e-5);
  }
}

// Llama 3.1 and later: the hub says rope_type llama3, the file has a tensor of divisors in f32.
TEST_P(GgufTwinTest, SameLogitsWithRopeFactors) {
  const LlamaShape shape = {.head_dim = 16};
  MemoryCheckpoint checkpoint = make_random_llama(shape, 32);
  checkpoint.mutable_config()["rope_scaling"] = JsonObject{{"rope_type", "llama3"},
                                                           {"factor", 8.0},
                                                           {"low_freq_factor", 1.0},
                                                           {"high_freq_factor", 4.0},
                                                           {"original_max_position_embeddings", 64}};
  Twins twins = load(checkpoint);
  EXPECT_EQ(twins.gguf->spec().rope.freq_factors.size(), 8u);
  EXPECT_TRUE(twins.hub->spec().rope.freq_factors.empty());
  const std::vector<int> ids = random_ids(32, kTokens, shape.vocab);
  EXPECT_LT(difference(kernels_, twins, ids), 1e-5);

  checkpoint.mutable_config().erase("rope_scaling");  // the factors matter: without them the twins differ
  twins.hub = load_model(checkpoint, kernels_, options_);
  EXPECT_GT(difference(kernels_, twins, ids), 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Backends, GgufTwinTest, ::testing::ValuesIn(backend_names()),
                         [](const auto& test) { return test.param; });

/// A tiny checkpoint of the hub and the file that llama.cpp's converter would make of it.
class GgufFamilyTest : public ::testing::TestWithParam<std::tuple<size_t, std::string>> {
 protected:
  void SetUp() override {
    if (!family_.random.empty()) {
      hub_ = std::make_unique<MemoryCheckpoint>(make_random_family(family_.random, family_.seed));
      return;
    }
    const std::string folder = find_fixture(family_.fixture);
    if (folder.empty())
      GTEST_SKIP() << "the checkpoint " << family_.fixture << " is not part of the repository";
    hub_ = open_checkpoint(folder);
  }

  std::unique_ptr<Model> load(Precision precision) {
    const std::string path = folder_.path() + "/model.gguf";
    write_gguf_twin(path, *hub_, family_, precision);
    return load_model(*open_checkpoint(path), kernels_, options_);
  }

  const GgufTwinFamily& family_ = gguf_twin_families()[std::get<0>(GetParam())];
  const Kernels& kernels_ = backend(std::get<1>(GetParam()));
  const LoadOptions options_ = {.max_step_tokens = 64, .max_logit_rows = 64};
  TempFolder folder_;
  std::unique_ptr<Checkpoint> hub_;
};

TEST_P(GgufFamilyTest, SameLogits) {
  LoadOptions options = options_;
  options.config_overrides = family_.overrides;
  Twins twins = {load_model(*hub_, kernels_, options), load(Precision::kF32)};
  EXPECT_EQ(twins.gguf->spec().max_positions, twins.hub->spec().max_positions);
  EXPECT_LT(difference(kernels_, twins, random_ids(33, kTokens, 262)), 1e-5);
}

TEST_P(GgufFamilyTest, SameLogitsOfQuantisedWeights) {
  Twins twins = {load(Precision::kQ8AsF32), load(Precision::kQ8)};
  EXPECT_LT(difference(kernels_, twins, random_ids(34, kTokens, 262)), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Families, GgufFamilyTest,
                         ::testing::Combine(::testing::Range(size_t{0}, gguf_twin_families().size()),
                                            ::testing::ValuesIn(backend_names())),
                         [](const auto& test) {
                           return gguf_twin_families()[std::get<0>(test.param)].name + "_" +
                                  std::get<1>(test.param);
                         });

}  // namespace
}  // namespace lmdeploy::testing
