// Rotary position embedding: which kind a config asks for, and the table of frequencies that follows from it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "lmdeploy/models/decoder_spec.h"

namespace lmdeploy {

class ConfigReader;

/// What a family's own config class says where a key is absent.
struct RopeDefaults {
  double theta = 10000;
  double rotary_share = 1;      // of a head that turns
  int64_t original_length = 0;  // original_max_position_embeddings; 0: max_position_embeddings
};

/// Reads the rope keys in each of their spellings: `rope_scaling` {type | rope_type, ...} beside
/// `rope_theta`, or `rope_parameters` {rope_type, rope_theta, ...}; a `rope_scaling` that is there wins.
/// `config_max_positions` stands in for a missing original_max_position_embeddings. Throws Error:
/// kUnsupported naming an unknown kind, kInvalidData naming a key that is missing or out of range.
///
/// The newest configs of models whose layers turn differently hold one object for each kind of layer
/// ("full_attention", "sliding_attention"): `layer_kind` says which to read; "" refuses them.
RopeSpec read_rope(const ConfigReader& cfg, int64_t head_dim, int64_t config_max_positions,
                   std::string_view layer_kind = "", const RopeDefaults& defaults = {});

/// YaRN's factor for all dimensions, `mscale_all_dim` of the scaling object: DeepSeek's softmax scale has its
/// square.
double yarn_mscale_of_all(const ConfigReader& cfg, const RopeSpec& spec);

/// The longest sequence that the scaled model is meant for. linear, dynamic: config length * factor; yarn:
/// original length * factor; the others write the scaled length into the config themselves.
int64_t scaled_max_positions(const RopeSpec& spec, int64_t config_max_positions);

/// Angle of position p and pair j: p * inv_freq[j]; cos and sin are multiplied by `scale`.
struct RopeTable {
  std::vector<double> inv_freq;  // [rotary_dim / 2]
  double scale = 1;
};

/// The rope length of a sequence of `length` tokens whose session has had rope length `rope_length` so far.
/// It stays that of the session's first prompt, but for longrope, which goes by the length that the sequence
/// has now: when it outgrows original_max_positions, its keys are to be computed anew with the other table.
int64_t rope_length_at(const RopeSpec& spec, int64_t rope_length, int64_t length);

/// The table for a rope length: in most kinds, that of the prompt that began the session.
RopeTable make_rope_table(const RopeSpec& spec, int64_t rope_length);

/// Lengths with equal keys have equal tables (and make_rope_table(spec, key) is that table).
int64_t rope_table_key(const RopeSpec& spec, int64_t rope_length);

}  // namespace lmdeploy
