// Which checkpoint tensor goes where: rules as data, one table for each model family.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "lmdeploy/models/decoder_spec.h"
#include "lmdeploy/models/model.h"

namespace lmdeploy {

class DecoderWeights;

/// A place in the forward pass that wants a weight. Those of a layer exist once for each layer; a norm has a
/// bias only where the spec says so. q and kv are heads * head_dim.
enum class Slot : uint8_t {
  kEmbed,      // [vocab, hidden]
  kPositions,  // [max_positions, hidden]
  kFinalNorm,  // [hidden]
  kFinalNormBias,
  kLmHead,      // [head_size, hidden]
  kLmHeadBias,  // [head_size]
  kScoreUp,     // [hidden, hidden], of a score_mlp
  kScoreUpBias,
  // Attention.
  kAttentionNorm,  // [hidden], of its input
  kAttentionNormBias,
  kAttentionOutNorm,  // [hidden], of its output
  kQkv,               // [q + 2 kv, hidden]: q rows, then k, then v
  kQkvBias,           // [q + 2 kv]
  kQNorm,             // see QkNorm
  kQNormBias,
  kKNorm,
  kKNormBias,
  kSinks,  // [heads]
  kO,      // [hidden, q], or [hidden, heads * value_dim] of latent attention
  kOBias,  // [hidden]
  // Latent attention.
  kQDown,       // [q_rank, hidden]
  kQDownNorm,   // [q_rank]
  kQUp,         // [heads * (nope + rope), q_rank], or from hidden
  kKvDown,      // [kv_rank + rope, hidden]
  kKvDownNorm,  // [kv_rank]
  kKeyUp,       // for each head [kv_rank, nope]: takes a query to the latent space
  kValueUp,     // for each head [value, kv_rank]
  // MLP.
  kMlpNorm,  // [hidden], of its input
  kMlpNormBias,
  kMlpOutNorm,  // [hidden], of its output
  kUp,          // [inner, hidden], or gated [2 inner, hidden]: gate rows, then up
  kUpBias,
  kDown,      // [hidden, inner]
  kDownBias,  // [hidden]
  // Experts.
  kRouter,          // [experts, hidden]
  kRouterBias,      // [experts]
  kCorrection,      // [experts]
  kExpertUp,        // for each expert, as kUp
  kExpertUpBias,    // [experts * 2 inner]
  kExpertDown,      // for each expert
  kExpertDownBias,  // [experts * hidden]
  kSharedUp,
  kSharedDown,
  kSharedGate,  // [1, hidden]
};
inline constexpr int kNumSlots = static_cast<int>(Slot::kSharedGate) + 1;

/// A size of the spec. kNone as `cols`: the tensor is a vector.
enum class Dim : uint8_t {
  kNone,
  kOne,
  kVocab,
  kPositions,
  kHidden,
  kHeads,
  kHeadDim,
  kQ,
  kKv,
  kQkv,  // q + 2 kv
  kInner,
  kGateUp,  // 2 inner
  kQRank,
  kLatentQ,   // heads * (nope + rope)
  kLatentKv,  // kv_rank + rope
  kKvRank,
  kNope,
  kValue,
  kLatentKeysValues,  // heads * (nope + value)
  kLatentOut,         // heads * value
  kExperts,
  kExpertInner,
  kExpertGateUp,  // 2 inner of an expert
  kSharedInner,
};
int64_t size_of(Dim dim, const DecoderSpec& spec);

/// How a tensor is stored, where that is not [rows, cols] or [rows].
enum class Stored : uint8_t {
  kPlain,
  kTransposed,  // [cols, rows]
  kGroupedQkv,  // for each kv head the rows of its q heads, of k and of v
  kUnitRows,    // each row is to be divided by its L2 norm
  kFlat,        // a vector of that many elements in any shape
  // All experts in one tensor; vectors [experts, rows].
  kExperts,                  // [experts, rows, cols] or [experts * rows, cols]
  kExpertsTransposed,        // [experts, cols, rows] or [experts * cols, rows]
  kExpertsPaired,            // [experts, rows, cols], gate and up rows alternating
  kExpertsPairedTransposed,  // [experts, cols, rows], the same
  kHeads,                    // [heads, rows, cols]
  // Both of kv_b_proj: for each head nope rows of keys, then value rows.
  kHeadKeys,
  kHeadValues,
};

/// One checkpoint tensor, or several: names match exactly; "{l}" stands for the layer's number, "{e}" for an
/// expert's, "{h}" for a query head's, "{g}" for a kv head's.
struct WeightRule {
  Slot slot = Slot::kEmbed;
  std::string_view name = {};
  Dim rows = Dim::kNone;
  Dim cols = Dim::kNone;
  int part = 0;  // position in a slot that stacks several tensors by rows
  bool (*wanted)(const DecoderSpec&, const LayerSpec&) = nullptr;  // nullptr: always
  Stored stored = Stored::kPlain;
};

inline constexpr std::string_view kLayerMark = "{l}";
/// Whether the rule stands for tensors of each layer.
bool is_per_layer(const WeightRule& rule);
/// The tensor of this layer and expert or head.
std::string tensor_name(const WeightRule& rule, int64_t layer, int64_t index);

inline bool untied(const DecoderSpec& spec, const LayerSpec&) { return !spec.tied_embedding; }
inline bool with_qkv_bias(const DecoderSpec& spec, const LayerSpec&) { return spec.qkv_bias; }
inline bool with_o_bias(const DecoderSpec& spec, const LayerSpec&) { return spec.o_bias; }
inline bool with_qk_norm(const DecoderSpec& spec, const LayerSpec&) { return spec.qk_norm != QkNorm::kNone; }
inline bool with_qk_norm_bias(const DecoderSpec& spec, const LayerSpec&) { return spec.qk_norm_bias; }
inline bool dense(const DecoderSpec&, const LayerSpec& layer) { return !layer.experts; }
inline bool dense_with_bias(const DecoderSpec& spec, const LayerSpec& layer) {
  return !layer.experts && spec.mlp_bias;
}
inline bool with_experts(const DecoderSpec&, const LayerSpec& layer) { return layer.experts; }
inline bool with_correction(const DecoderSpec& spec, const LayerSpec& layer) {
  return layer.experts && spec.experts.correction;
}
inline bool with_shared_expert(const DecoderSpec& spec, const LayerSpec& layer) {
  return layer.experts && spec.experts.shared_inner_size > 0;
}

/// Tables one after the other.
template <size_t... Sizes>
constexpr auto join(const std::array<WeightRule, Sizes>&... tables) {
  std::array<WeightRule, (Sizes + ...)> all{};
  size_t next = 0;
  (
      [&] {
        for (const WeightRule& rule : tables) all[next++] = rule;
      }(),
      ...);
  return all;
}
/// A table whose names lose `prefix`.
template <size_t Size>
constexpr auto without_prefix(std::array<WeightRule, Size> table, std::string_view prefix) {
  for (WeightRule& rule : table)
    if (rule.name.starts_with(prefix)) rule.name.remove_prefix(prefix.size());
  return table;
}

/// The rules of one way to write a family's checkpoints: they hold if the checkpoint has a tensor whose name
/// ends so ("": always).
struct WeightTable {
  std::string_view marker;
  std::span<const WeightRule> rules;
};

/// A row of the registry (registry.cc).
struct ModelFamily {
  std::string_view architecture;  // config.json, architectures[0]
  DecoderSpec (*read_spec)(const ConfigReader&);
  std::span<const WeightTable> weights;  // the first whose marker is there
  /// The forward pass: make_decoder (decoder.h), or the family's own.
  std::unique_ptr<Model> (*make)(const DecoderSpec&, DecoderWeights, const Kernels&, const LoadOptions&);
};

}  // namespace lmdeploy
