// Each way to go beyond the trained length, through the whole engine on the CPU: chunks, decode steps and
// guesses give the logits that the f64 reference gives for all tokens at once.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core_driver.h"
#include "lmdeploy/models/step_runner.h"
#include "random_llama.h"

namespace lmdeploy::testing {
namespace {

constexpr int64_t kTrained = 64, kPrompt = 150, kNewTokens = 10;

struct ScalingCase {
  const char* name;
  JsonObject config;                  // merged over that of a random model trained on kTrained tokens
  JsonObject same_without_kind = {};  // plain rope that must give the same, where there is one
};
void PrintTo(const ScalingCase& c, std::ostream* out) { *out << c.name; }

JsonObject scaling(JsonObject values) {
  return {{"max_position_embeddings", kTrained}, {"rope_scaling", std::move(values)}};
}

// As the documentation of dynamic NTK has it, for heads of 16 and a first prompt of kPrompt tokens.
double dynamic_theta(double factor) {
  const double stretched =
      factor * static_cast<double>(kPrompt) / static_cast<double>(kTrained) - (factor - 1);
  return 10000 * std::pow(stretched, 16.0 / 14.0);
}

std::vector<ScalingCase> scaling_cases() {
  JsonArray short_factor, long_factor;
  for (int i = 0; i < 8; ++i) short_factor.push_back(1 + 0.1 * i), long_factor.push_back(1 + 0.7 * i);
  JsonObject longrope =
      scaling({{"rope_type", "longrope"}, {"short_factor", short_factor}, {"long_factor", long_factor}});
  longrope["original_max_position_embeddings"] = kTrained;
  longrope["max_position_embeddings"] = 4 * kTrained;
  JsonObject crossing = longrope;
  crossing["original_max_position_embeddings"] = kPrompt + 5;
  return {{"plain_beyond_training", {{"max_position_embeddings", kTrained}}},
          {"dynamic",
           scaling({{"rope_type", "dynamic"}, {"factor", 2.5}}),
           {{"max_position_embeddings", kTrained}, {"rope_theta", dynamic_theta(2.5)}}},
          {"dynamic_factor_1",
           scaling({{"rope_type", "dynamic"}, {"factor", 1.0}}),
           {{"max_position_embeddings", kTrained}, {"rope_theta", dynamic_theta(1)}}},
          {"linear", scaling({{"rope_type", "linear"}, {"factor", 4.0}})},
          {"yarn",
           scaling({{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", kTrained}})},
          {"llama3", scaling({{"rope_type", "llama3"},
                              {"factor", 8.0},
                              {"low_freq_factor", 1.0},
                              {"high_freq_factor", 4.0},
                              {"original_max_position_embeddings", kTrained}})},
          {"longrope", longrope},
          {"longrope_crossing", crossing},
          {"logn", {{"max_position_embeddings", kTrained}, {"use_logn_attn", true}}},
          {"logn_dynamic",
           {{"max_position_embeddings", kTrained},
            {"use_logn_attn", true},
            {"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2.0}}}}}};
}

class LongContext : public ::testing::TestWithParam<ScalingCase> {
 protected:
  static std::unique_ptr<Model> load(const Kernels& kernels, const JsonObject& overrides) {
    return load_model(make_random_llama({}, /*seed=*/1), kernels,
                      {.max_step_tokens = 512, .max_logit_rows = 64, .config_overrides = overrides});
  }
  /// Row i: the logits after the prompt and i tokens of the answer, each from a pass over all tokens so far.
  static std::vector<float> reference(Model& model, const Kernels& kernels, std::vector<int> tokens,
                                      const std::vector<int>& answer) {
    std::vector<float> rows;
    for (const int next : answer) {
      StepRunner runner(model, kernels, {.max_tokens = kPrompt + kNewTokens});
      const bool by_length = model.spec().rope.kind == RopeSpec::Kind::kLongRope;
      runner.start(0, by_length ? static_cast<int64_t>(tokens.size()) : kPrompt);
      const StepRunner::Chunk chunk = {.ids = tokens};
      const ConstTensorView row = runner.step({&chunk, 1});
      for (int64_t id = 0; id < row.cols(); ++id) rows.push_back(static_cast<float>(row.at(0, id)));
      tokens.push_back(next);
    }
    return rows;
  }
  // An f32 pass of two layers: a few hundred roundings of values of a few units.
  static void expect_near(const std::vector<float>& got, const std::vector<float>& want,
                          const std::string& which) {
    ASSERT_EQ(got.size(), want.size()) << which;
    float worst = 0;
    for (size_t i = 0; i < got.size(); ++i) worst = std::max(worst, std::abs(got[i] - want[i]));
    EXPECT_LT(worst, 2e-4f) << which;
  }
};

TEST_P(LongContext, TheEngineGivesTheReferencesLogits) {
  const auto cpu = make_cpu_kernels(std::make_shared<ThreadPool>(2));
  const auto ref = make_ref_kernels(std::make_shared<ThreadPool>(2));
  const auto model = load(*cpu, GetParam().config);
  EngineConfig config = small_config();
  config.max_prefill_token_num = 40;
  Request request = request_of(random_ids(1, kPrompt), kNewTokens);
  request.logits = OutputRows::kGeneration;
  CoreDriver plain(*model, config),
      guessed(*model, guessing(config, 3, SpeculativeMethod::kDraft), model.get());
  const RequestOutput got = plain.complete(request);
  ASSERT_EQ(got.token_ids.size(), static_cast<size_t>(kNewTokens)) << got.error_message;
  EXPECT_EQ(guessed.complete(request).logits, got.logits);
  const auto judge = load(*ref, GetParam().config);
  expect_near(got.logits, reference(*judge, *ref, request.input_ids, got.token_ids), "reference");
  if (GetParam().same_without_kind.empty()) return;
  const auto same = load(*ref, GetParam().same_without_kind);
  expect_near(got.logits, reference(*same, *ref, request.input_ids, got.token_ids), "plain rope");
}

INSTANTIATE_TEST_SUITE_P(Kinds, LongContext, ::testing::ValuesIn(scaling_cases()),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace lmdeploy::testing
