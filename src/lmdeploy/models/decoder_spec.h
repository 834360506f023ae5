// What a decoder-only model is, as data. The forward pass reads this and never the architecture's name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lmdeploy {

class ConfigReader;

/// How positions become angles (spec: docs/models.md; Su et al. 2021 and the scaling rules named below).
struct RopeSpec {
  enum class Kind { kNone, kDefault, kLinear, kDynamicNtk, kYarn, kLlama3, kLongRope };
  Kind kind = Kind::kDefault;
  double theta = 10000;
  int64_t rotary_dim = 0;    // head_dim * partial_rotary_factor
  bool interleaved = false;  // pairs (2j, 2j+1)
  double factor = 1;
  /// Trained length before scaling. Dynamic NTK and longrope change their table for sequences longer than
  /// this.
  int64_t original_max_positions = 0;
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  double beta_fast = 32, beta_slow = 1;              // yarn: rotations at the two ends of the ramp
  bool truncate = true;                              // yarn: round the ramp's ends
  double attention_factor = 1;                       // yarn, longrope: multiplies cos and sin
  double long_attention_factor = 1;                  // longrope beyond original_max_positions
  std::vector<double> short_factor, long_factor;     // longrope [rotary_dim / 2]
  std::vector<double> freq_factors;  // GGUF rope_freqs: inv_freq is divided by these [rotary_dim / 2]
};

struct DecoderSpec {
  std::string architecture;  // for messages only
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t vocab_size = 0;
  int64_t max_positions = 0;  // session_len default, scaling applied (spec/engine.md 2)
  float norm_eps = 1e-6f;
  float norm_offset = 0;
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  bool tied_embedding = false;
  RopeSpec rope;
  std::vector<int> eos_ids;  // of config.json

  int64_t q_size() const { return num_heads * head_dim; }
  int64_t kv_size() const { return num_kv_heads * head_dim; }
};

}  // namespace lmdeploy
