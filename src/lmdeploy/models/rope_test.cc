// Rope keys of configs and the frequencies that follow. Expected numbers were computed apart, in Python, from
// the formulas of docs/models.md section 1.1.
#include "lmdeploy/models/rope.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/models/step_arrays.h"

namespace lmdeploy {
namespace {

using Kind = RopeSpec::Kind;

RopeSpec read(const std::string& text, int64_t head_dim, int64_t max_positions = 4096) {
  const Json config = parse_json(text, "test");
  return read_rope(ConfigReader(config, "config.json"), head_dim, max_positions);
}

std::string error_of(const std::string& text, ErrorCode code, int64_t head_dim = 8) {
  try {
    read(text, head_dim);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error for " << text;
  return "";
}

void expect_frequencies(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t j = 0; j < got.size(); ++j) EXPECT_NEAR(got[j] / want[j], 1, 1e-11) << "pair " << j;
}

TEST(Rope, DefaultNeedsNoKeys) {
  const RopeSpec spec = read("{}", 8);
  EXPECT_EQ(spec.kind, Kind::kDefault);
  EXPECT_EQ(spec.theta, 10000);
  EXPECT_EQ(spec.rotary_dim, 8);
  EXPECT_FALSE(spec.interleaved);
  expect_frequencies(make_rope_table(spec, 100).inv_freq, {1, 0.1, 0.01, 0.001});
  EXPECT_EQ(make_rope_table(spec, 100).scale, 1);
}

TEST(Rope, ThetaInEachPlace) {
  EXPECT_EQ(read(R"({"rope_theta": 5e5})", 8).theta, 5e5);
  EXPECT_EQ(read(R"({"rotary_emb_base": 1e6})", 8).theta, 1e6);
  EXPECT_EQ(read(R"({"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}})", 8).theta, 1e6);
  EXPECT_EQ(read(R"({"rope_theta": 3, "rope_parameters": {"rope_theta": 4}})", 8).theta, 4);
  EXPECT_EQ(
      read(R"({"rope_scaling": {"type": "linear", "factor": 2}, "rope_parameters": {"rope_theta": 4}})", 8)
          .theta,
      4);
  EXPECT_EQ(read(R"({"text_config": {"rope_theta": 7}})", 8).theta, 7);
}

TEST(Rope, PartialRotaryFactor) {
  EXPECT_EQ(read(R"({"partial_rotary_factor": 0.25})", 32).rotary_dim, 8);
  EXPECT_EQ(read(R"({"rotary_pct": 0.5})", 32).rotary_dim, 16);
  EXPECT_EQ(read(R"({"rope_parameters": {"partial_rotary_factor": 0.75}})", 32).rotary_dim, 24);
  EXPECT_NE(
      error_of(R"({"partial_rotary_factor": 1.5})", ErrorCode::kInvalidData).find("partial_rotary_factor"),
      std::string::npos);
  error_of("{}", ErrorCode::kInvalidData, /*head_dim=*/7);
}

TEST(Rope, Linear) {
  const RopeSpec spec = read(R"({"rope_scaling": {"type": "linear", "factor": 4.0}})", 8);
  expect_frequencies(make_rope_table(spec, 1).inv_freq, {0.25, 0.025, 0.0025, 0.00025});
  EXPECT_EQ(scaled_max_positions(spec, 4096), 16384);
}

TEST(Rope, DynamicNtkGrowsTheBaseBeyondTheTrainedLength) {
  const RopeSpec spec =
      read(R"({"max_position_embeddings": 32, "rope_scaling": {"type": "dynamic", "factor": 2.0}})", 8);
  const std::vector<double> plain = {1, 0.1, 0.01, 0.001};
  expect_frequencies(make_rope_table(spec, 32).inv_freq, plain);
  // base 10000 * (2 * 45 / 32 - 1)^(8 / 6) = 22098.901542
  expect_frequencies(make_rope_table(spec, 45).inv_freq,
                     {1, 0.08201765126314, 0.006726895118722, 0.000551724137931});
  EXPECT_EQ(scaled_max_positions(spec, 32), 64);
  EXPECT_EQ(rope_table_key(spec, 3), rope_table_key(spec, 32));
  EXPECT_NE(rope_table_key(spec, 32), rope_table_key(spec, 33));
  EXPECT_EQ(rope_length_at(spec, 10, 100), 10) << "the first prompt's, for the session's life";
}

TEST(Rope, F43_YarnAttentionFactorAndFrequencies) {
  const RopeSpec spec = read(R"({"rope_theta": 1e6, "max_position_embeddings": 32768, "rope_scaling":
      {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}})",
                             128);
  EXPECT_NEAR(spec.attention_factor, 1.138629436111989, 1e-14);
  const RopeTable table = make_rope_table(spec, 10);
  EXPECT_EQ(table.scale, spec.attention_factor);
  // The ramp lies between pairs 23 and 40.
  const std::vector<size_t> pairs = {0, 23, 24, 30, 39, 63};
  const std::vector<double> want = {
      1, 0.006978305848599, 0.00537532149079, 0.001064360981247, 6.490394320837e-05, 3.102344401879e-07};
  for (size_t i = 0; i < pairs.size(); ++i)
    EXPECT_NEAR(table.inv_freq[pairs[i]] / want[i], 1, 1e-11) << pairs[i];
  EXPECT_EQ(scaled_max_positions(spec, 32768), 131072);  // the default session length follows
}

TEST(Rope, YarnSmallAndUntruncated) {
  const RopeSpec small = read(
      R"({"rope_scaling": {"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 32}})", 16);
  expect_frequencies(make_rope_table(small, 1).inv_freq,
                     {1, 0.1976423537605, 0.025, 0.007905694150421, 0.0025, 0.0007905694150421, 0.00025,
                      7.905694150421e-05});
  const RopeSpec smooth = read(R"({"rope_scaling": {"rope_type": "yarn", "factor": 32, "truncate": false,
      "original_max_position_embeddings": 4096}})",
                               16);
  expect_frequencies(make_rope_table(smooth, 1).inv_freq,
                     {1, 0.3162277660168, 0.1, 0.02773593487333, 0.005552754881459, 0.0007382770554729,
                      3.125e-05, 9.882117688026e-06});
}

TEST(Rope, YarnAttentionFactorFromItsKeys) {
  const std::string head =
      R"({"max_position_embeddings": 4096, "rope_scaling": {"type": "yarn", "factor": 40)";
  EXPECT_EQ(read(head + R"(, "attention_factor": 1.5}})", 8).attention_factor, 1.5);
  EXPECT_NEAR(read(head + R"(, "mscale": 0.707, "mscale_all_dim": 1.0}})", 8).attention_factor,
              0.9210423553163399, 1e-14);
  EXPECT_NEAR(read(head + R"(, "mscale": 1.0, "mscale_all_dim": 1.0}})", 8).attention_factor, 1, 1e-15);
  const RopeSpec spec = read(head + "}}", 8);  // no original length: max_position_embeddings
  EXPECT_EQ(spec.original_max_positions, 4096);
  EXPECT_EQ(scaled_max_positions(spec, 4096), 163840);
}

TEST(Rope, Llama3) {
  const RopeSpec spec = read(R"({"rope_theta": 500000.0, "max_position_embeddings": 131072, "rope_scaling":
      {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
       "original_max_position_embeddings": 8192, "rope_type": "llama3"}})",
                             128);
  const std::vector<double> inv_freq = make_rope_table(spec, 1).inv_freq;
  const std::vector<size_t> pairs = {28, 29, 30, 34, 35, 36, 63};  // kept, then between, then divided by 8
  const std::vector<double> want = {0.003211445994753, 0.002166570763503,  0.001371893567761,
                                    0.000178507812768, 9.556212353965e-05, 7.784655273932e-05,
                                    3.068925988915e-07};
  for (size_t i = 0; i < pairs.size(); ++i) EXPECT_NEAR(inv_freq[pairs[i]] / want[i], 1, 1e-11) << pairs[i];
  EXPECT_EQ(scaled_max_positions(spec, 131072), 131072);  // the config's length is the scaled one
}

TEST(Rope, LongRopeSwitchesAtTheOriginalLength) {
  const RopeSpec spec = read(R"({"max_position_embeddings": 131072, "original_max_position_embeddings": 4096,
      "rope_scaling": {"type": "su", "short_factor": [1, 1.5, 2, 3], "long_factor": [2, 4, 8, 16]}})",
                             8);
  EXPECT_EQ(spec.kind, Kind::kLongRope);
  const RopeTable at = make_rope_table(spec, 4096), beyond = make_rope_table(spec, 4097);
  expect_frequencies(at.inv_freq, {1, 0.06666666666667, 0.005, 0.0003333333333333});
  expect_frequencies(beyond.inv_freq, {0.5, 0.025, 0.00125, 6.25e-05});
  EXPECT_NEAR(at.scale, 1.1902380714238083, 1e-14);  // sqrt(1 + ln 32 / ln 4096)
  EXPECT_EQ(at.scale, beyond.scale);
  EXPECT_EQ(rope_table_key(spec, 1), rope_table_key(spec, 4096));
  EXPECT_EQ(rope_table_key(spec, 4097), rope_table_key(spec, 100000));
  EXPECT_NE(rope_table_key(spec, 1), rope_table_key(spec, 4097));
  EXPECT_EQ(rope_length_at(spec, 10, 5000), 5000);
  EXPECT_EQ(rope_length_at(spec, 5000, 10), 10);
  EXPECT_EQ(scaled_max_positions(spec, 131072), 131072);
}

TEST(Rope, LongRopeFactorsFromItsKeys) {
  const std::string head = R"({"max_position_embeddings": 4096, "rope_scaling":
      {"rope_type": "longrope", "short_factor": [1, 1, 1, 1], "long_factor": [2, 2, 2, 2])";
  const RopeSpec both = read(head + R"(, "attention_factor": 1.25}})", 8);
  EXPECT_EQ(both.attention_factor, 1.25);
  EXPECT_EQ(both.long_attention_factor, 1.25);
  const RopeSpec apart = read(head + R"(, "short_mscale": 1.1, "long_mscale": 1.225}})", 8);
  EXPECT_EQ(make_rope_table(apart, 10).scale, 1.1);
  EXPECT_EQ(make_rope_table(apart, 5000).scale, 1.225);
  EXPECT_NEAR(read(head + R"(, "factor": 32}})", 8).attention_factor, 1.1902380714238083, 1e-14);
  EXPECT_EQ(read(head + "}}", 8).attention_factor, 1);
}

TEST(Rope, GgufFactorsDivide) {
  RopeSpec spec = read("{}", 8);
  spec.freq_factors = {1, 2, 4, 8};
  expect_frequencies(make_rope_table(spec, 1).inv_freq, {1, 0.05, 0.0025, 0.000125});
}

TEST(Rope, F43_BothSpellingsAreEqual) {
  const std::vector<std::string> rests = {
      R"("default")",
      R"("none")",
      R"("mrope", "mrope_section": [1, 1, 2])",
      R"("linear", "factor": 3)",
      R"("dynamic", "factor": 2)",
      R"("yarn", "factor": 4.0, "original_max_position_embeddings": 1024)",
      R"("llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 512)",
      R"("longrope", "short_factor": [1, 2, 3, 4], "long_factor": [2, 3, 4, 5],
         "original_max_position_embeddings": 2048)",
      R"("su", "short_factor": [1, 2, 3, 4], "long_factor": [2, 3, 4, 5], "short_mscale": 1.1, "long_mscale": 1.2,
         "original_max_position_embeddings": 2048)"};
  for (const std::string& rest : rests) {
    const RopeSpec old = read(R"({"rope_theta": 5e4, "rope_scaling": {"type": )" + rest + "}}", 8);
    const RopeSpec mixed = read(R"({"rope_theta": 5e4, "rope_scaling": {"rope_type": )" + rest + "}}", 8);
    const RopeSpec now = read(R"({"rope_parameters": {"rope_theta": 5e4, "rope_type": )" + rest + "}}", 8);
    for (const int64_t length : {100, 3000, 5000}) {
      const RopeTable want = make_rope_table(old, length);
      EXPECT_EQ(make_rope_table(mixed, length).inv_freq, want.inv_freq) << rest;
      EXPECT_EQ(make_rope_table(now, length).inv_freq, want.inv_freq) << rest;
      EXPECT_EQ(make_rope_table(mixed, length).scale, want.scale) << rest;
      EXPECT_EQ(make_rope_table(now, length).scale, want.scale) << rest;
    }
  }
}

TEST(Rope, F43_UnknownKindIsRefusedByName) {
  for (const char* key : {"type", "rope_type"}) {
    const std::string message =
        error_of(cat(R"({"rope_scaling": {")", key, R"(": "foo", "factor": 2}})"), ErrorCode::kUnsupported);
    EXPECT_NE(message.find("\"foo\""), std::string::npos) << message;
    EXPECT_NE(message.find("yarn"), std::string::npos) << message;
  }
}

// The base of modeling_qwen.py for a training length of 16: 10000 * alpha^(8/6) with alpha =
// 2^ceil(log2(length / 16) + 1) - 1, which makes 1 up to 16, 3 up to 32, 7 up to 64, 15 up to 128.
TEST(Rope, QwenNtkAlphaDoublesWithTheLength) {
  RopeSpec spec;
  spec.kind = Kind::kQwenNtk;
  spec.rotary_dim = 8;
  spec.original_max_positions = 16;
  const std::vector<std::pair<std::vector<int64_t>, std::vector<double>>> cases = {
      {{1, 15, 16}, {1, 0.1, 0.01, 0.001}},                                        // base 10000
      {{17, 32}, {1, 0.06933612743506, 0.004807498567691, 0.0003333333333333}},    // base 43267.48710922
      {{33, 64}, {1, 0.05227579585747, 0.002732758832532, 0.0001428571428571}},    // base 133905.1827941
      {{65, 128}, {1, 0.04054801330382, 0.001644141382887, 6.666666666667e-05}},   // base 369931.8111496
      {{129, 256}, {1, 0.03183313678458, 0.001013348597546, 3.225806451613e-05}},  // base 973828.0022413
  };
  for (const auto& [lengths, want] : cases) {
    for (const int64_t length : lengths) {
      SCOPED_TRACE(length);
      expect_frequencies(make_rope_table(spec, length).inv_freq, want);
      EXPECT_EQ(rope_table_key(spec, length), rope_table_key(spec, lengths[0]));
    }
  }
}

// sqrt(1 + ln s / ln original), s = max_position_embeddings / original: 1.1902380714 for 32, 1.0408329997
// for 2; 1 for a model that is not longer than it was trained.
TEST(Rope, LongRopeScaleFollowsTheStretch) {
  const auto scale = [](int64_t length) {
    return read(cat(R"({"max_position_embeddings": )", length, R"(, "rope_scaling": {"rope_type": "longrope",
        "original_max_position_embeddings": 4096, "short_factor": [1], "long_factor": [2]}})"),
                2)
        .attention_factor;
  };
  EXPECT_NEAR(scale(131072), 1.190238071424, 1e-12);
  EXPECT_NEAR(scale(8192), 1.040832999733, 1e-12);
  EXPECT_EQ(scale(4096), 1);
  EXPECT_EQ(scale(2048), 1);
}

TEST(Rope, MissingKeysAreNamed) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"type": "linear"})", "\"factor\""},
      {R"({"type": "dynamic"})", "\"factor\""},
      {R"({"type": "yarn"})", "\"factor\""},
      {R"({"type": "llama3", "factor": 8})", "\"low_freq_factor\""},
      {R"({"type": "llama3", "factor": 8, "low_freq_factor": 1})", "\"high_freq_factor\""},
      {R"({"type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4})",
       "\"original_max_position_embeddings\""},
      {R"({"type": "longrope"})", "\"short_factor\""},
      {R"({"type": "longrope", "short_factor": [1, 1, 1, 1]})", "\"long_factor\""},
      {R"({"factor": 2.0})", "\"rope_type\""},
  };
  for (const auto& [scaling, key] : cases) {
    const std::string message = error_of(cat(R"({"rope_scaling": )", scaling, "}"), ErrorCode::kInvalidData);
    EXPECT_NE(message.find(key), std::string::npos) << message;
    EXPECT_NE(message.find("config.json: rope_scaling"), std::string::npos) << message;
  }
}

TEST(Rope, ValuesOutOfRangeAreNamed) {
  for (const char* scaling :
       {R"({"type": "linear", "factor": 0})", R"({"type": "linear", "factor": "2"})",
        R"({"type": "yarn", "factor": -4})",
        R"({"type": "yarn", "factor": 4, "beta_fast": 1, "beta_slow": 32})",
        R"({"type": "yarn", "factor": 4, "original_max_position_embeddings": 0})",
        R"({"type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4,
            "original_max_position_embeddings": 512})",
        R"({"type": "longrope", "short_factor": [1, 1], "long_factor": [1, 1, 1, 1]})",
        R"({"type": "longrope", "short_factor": [1, 0, 1, 1], "long_factor": [1, 1, 1, 1]})",
        R"({"type": "yarn", "rope_type": "linear", "factor": 4})", "7"})
    error_of(cat(R"({"rope_scaling": )", scaling, "}"), ErrorCode::kInvalidData);
  error_of(R"({"rope_theta": 0})", ErrorCode::kInvalidData);
  error_of(R"({"rope_parameters": {"full_attention": {"rope_type": "default"}}})", ErrorCode::kUnsupported);
}

TEST(Rope, HarmlessSpellings) {
  EXPECT_EQ(read(R"({"rope_scaling": null})", 8).kind, Kind::kDefault);
  EXPECT_EQ(read(R"({"rope_scaling": {}, "rope_parameters": {"rope_type": "linear", "factor": 2}})", 8).kind,
            Kind::kLinear);
  EXPECT_EQ(
      read(R"({"rope_scaling": {"type": "mrope", "rope_type": "default", "mrope_section": [1, 1, 2]}})", 8)
          .kind,
      Kind::kDefault);
  EXPECT_TRUE(read(R"({"rope_interleaved": true})", 8).interleaved);
}

TEST(RopeTableCache, KeepsWhatAStepUsesAndForgetsTheOldest) {
  const RopeSpec spec =
      read(R"({"max_position_embeddings": 32, "rope_scaling": {"type": "dynamic", "factor": 2.0}})", 8);
  RopeTableCache cache(spec);
  cache.begin_step();
  const int32_t shared = cache.find(10);
  EXPECT_EQ(cache.find(32), shared);
  const auto kept = static_cast<int64_t>(RopeTableCache::kMostKept);
  for (int64_t step = 0; step < 3 * kept; ++step) {
    cache.begin_step();
    cache.find(40 + step);
  }
  EXPECT_EQ(cache.inv_freq().dim(0), kept);
  cache.begin_step();
  for (int64_t i = 0; i < 2 * kept; ++i) cache.find(1000 + i);  // one step needs them all at once
  EXPECT_EQ(cache.inv_freq().dim(0), 2 * kept);
  EXPECT_EQ(cache.scale().dim(0), 2 * kept);
  for (int64_t i = 0; i < 2 * kept; ++i) {
    const RopeTable want = make_rope_table(spec, 1000 + i);
    const int32_t row = cache.find(1000 + i);
    for (int64_t j = 0; j < 4; ++j)
      EXPECT_EQ(cache.inv_freq().at(row, j), want.inv_freq[static_cast<size_t>(j)]);
  }
}

}  // namespace
}  // namespace lmdeploy
