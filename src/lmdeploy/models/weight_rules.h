// Which checkpoint tensor goes where: rules as data, one table for each model family.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "lmdeploy/models/decoder_spec.h"
#include "lmdeploy/models/model.h"

namespace lmdeploy {

class DecoderWeights;

/// A place in the forward pass that wants a weight. Those of a layer exist once for each layer.
enum class Slot : uint8_t {
  kEmbed,          // [vocab, hidden]
  kFinalNorm,      // [hidden]
  kLmHead,         // [vocab, hidden]
  kAttentionNorm,  // [hidden], before attention
  kQkv,            // [q + 2 kv, hidden]: q rows, then k, then v
  kQkvBias,        // [q + 2 kv]
  kO,              // [hidden, q]
  kOBias,          // [hidden]
  kMlpNorm,        // [hidden], before the MLP
  kGateUp,         // [2 inner, hidden]: gate rows, then up
  kGateUpBias,     // [2 inner]
  kDown,           // [hidden, inner]
  kDownBias,       // [hidden]
};
inline constexpr int kNumSlots = 13;

/// A size of the spec. kNone as `cols`: the tensor is a vector.
enum class Dim : uint8_t { kNone, kVocab, kHidden, kQ, kKv, kInner };
int64_t size_of(Dim dim, const DecoderSpec& spec);

/// One checkpoint tensor. Names match exactly; "{l}" stands for the layer's number.
struct WeightRule {
  Slot slot;
  std::string_view name;
  Dim rows;
  Dim cols = Dim::kNone;
  int part = 0;                                  // position in a slot that stacks several tensors by rows
  bool (*wanted)(const DecoderSpec&) = nullptr;  // nullptr: always
};

inline bool untied(const DecoderSpec& spec) { return !spec.tied_embedding; }
inline bool with_qkv_bias(const DecoderSpec& spec) { return spec.qkv_bias; }
inline bool with_o_bias(const DecoderSpec& spec) { return spec.o_bias; }
inline bool with_mlp_bias(const DecoderSpec& spec) { return spec.mlp_bias; }

/// A row of the registry (registry.cc).
struct ModelFamily {
  std::string_view architecture;  // config.json, architectures[0]
  DecoderSpec (*read_spec)(const ConfigReader&);
  std::span<const WeightRule> weights;
  /// The forward pass: make_decoder (decoder.h), or the family's own.
  std::unique_ptr<Model> (*make)(const DecoderSpec&, DecoderWeights, const Kernels&, const LoadOptions&);
};

}  // namespace lmdeploy
