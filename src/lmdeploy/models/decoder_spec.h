// What a decoder-only model is, as data. The forward pass reads this and never the architecture's name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lmdeploy/kernels/kernels.h"

namespace lmdeploy {

class ConfigReader;

/// How positions become angles (spec: docs/models.md; Su et al. 2021 and the scaling rules named below).
struct RopeSpec {
  enum class Kind { kNone, kDefault, kLinear, kDynamicNtk, kQwenNtk, kYarn, kLlama3, kLongRope };
  Kind kind = Kind::kDefault;
  double theta = 10000;
  int64_t rotary_dim = 0;    // head_dim * partial_rotary_factor
  bool interleaved = false;  // pairs (2j, 2j+1)
  double factor = 1;
  /// Trained length before scaling. The NTK kinds and longrope change their table for sequences longer than
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

/// Norms of q and k between their projection and rope.
enum class QkNorm : uint8_t {
  kNone,
  kPerHead,     // each head, all heads with one weight [head_dim]
  kPerHeadOwn,  // each head with a weight of its own: [heads * head_dim]
  kWholeRow,    // the whole projection
};

enum class Alibi : uint8_t { kNone, kPlain, kInBf16 };  // AttentionOptions::alibi_slopes, alibi_in_bf16

/// One layer's differences from the others.
struct LayerSpec {
  int64_t window = 0;  // tokens that attention sees, its own included; 0: all
  bool experts = false;
  bool rope = true;
  bool local_rope = false;  // turns by DecoderSpec::local_rope
};

/// Mixture of experts (docs/models.md).
struct ExpertSpec {
  int64_t num_experts = 0;
  int64_t top_k = 0;
  int64_t inner_size = 0;         // of an expert
  int64_t shared_inner_size = 0;  // of the expert that every token takes; 0: none
  bool shared_gate = false;       // its output is multiplied with sigmoid(gate . x)
  bool router_bias = false;
  bool correction = false;  // choice scores have a correction of their own (DeepSeek-V3)
  bool bias = false;        // experts have biases
  RouteOptions route;
};

/// Multi-head latent attention (DeepSeek-V2; DeepSeek-AI 2024, section 2.1). The cache holds kv_rank +
/// rope_dim elements of each token, whatever the number of heads.
struct LatentSpec {
  int64_t q_rank = 0;   // 0: q comes straight from the hidden state
  int64_t kv_rank = 0;  // 0: the model has ordinary attention
  int64_t nope_dim = 0;
  int64_t rope_dim = 0;
  int64_t value_dim = 0;
  float norm_eps = 1e-6f;
};

/// What a rank's share of a model (sharding.h) knows of the whole.
struct WholeSpec {
  int64_t num_heads = 0;   // 0: this is the whole
  int64_t first_head = 0;  // of the share's
  int64_t head_size = 0;   // DecoderSpec::head_size()
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
  int64_t max_positions = 0;      // session_len default, scaling applied (spec/engine.md 2)
  std::vector<LayerSpec> layers;  // [num_layers]

  // Norms. A block without a norm of its input reads the stream itself.
  NormKind norm = NormKind::kRms;
  float norm_eps = 1e-6f;
  float norm_offset = 0;
  bool norm_bias = false;
  bool input_norms = true;    // of what attention and MLP read
  bool output_norms = false;  // of what they add to the stream
  bool parallel = false;      // both read the stream as it was before the layer
  bool one_norm = false;      // parallel: the MLP reads what attention reads

  // Attention.
  bool qkv_bias = false;
  bool o_bias = false;
  QkNorm qk_norm = QkNorm::kNone;
  bool qk_norm_bias = false;
  float qkv_clip = 0;         // q, k and v are cut to [-clip, clip]; 0: not
  float attention_scale = 0;  // of q.k
  float attention_soft_cap = 0;
  bool sinks = false;
  Alibi alibi = Alibi::kNone;
  float alibi_factor = 1;  // of all slopes
  int64_t logn_length =
      0;  // Qwen: q at position p >= length is multiplied with log(p + 1) / log(length); 0: not
  RopeSpec rope;
  RopeSpec local_rope;  // of the layers that say so
  LatentSpec latent;

  // MLP.
  Activation activation = Activation::kSilu;
  bool gated = true;
  float clamped_glu = 0;  // the limit of Kernels::clamped_glu, which replaces the activation; 0: not
  bool mlp_bias = false;
  ExpertSpec experts;

  // Ends of the model.
  bool tied_embedding = false;
  bool learned_positions = false;  // an embedding of max_positions rows is added to the tokens'
  bool head_bias = false;
  bool gives_score = false;     // a reward model: the head gives one score of each token, not logits
  bool score_mlp = false;       // that head has a layer of its own, with ReLU
  bool unit_head_rows = false;  // each row of the output matrix is divided by its norm
  float embedding_scale = 1;
  float residual_scale = 1;  // of what a block adds to the stream
  float logit_scale = 1;
  float logit_soft_cap = 0;

  std::vector<int> eos_ids;  // of config.json
  WholeSpec whole;

  /// Columns of what forward() gives.
  int64_t head_size() const { return gives_score ? 1 : vocab_size; }
  int64_t q_size() const { return num_heads * head_dim; }
  int64_t kv_size() const { return num_kv_heads * head_dim; }
  bool has_latent() const { return latent.kv_rank > 0; }
  bool has_rope() const { return rope.kind != RopeSpec::Kind::kNone; }
  bool has_experts() const { return experts.num_experts > 0; }
};

}  // namespace lmdeploy
