// Deals the layers of a model to groups that keep keys and values for the same tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lmdeploy/models/decoder_spec.h"
#include "lmdeploy/models/model.h"

namespace lmdeploy {

/// Blocks serve any group, so that all groups have room for as many layers; some rooms may stay empty.
struct KvGrouping {
  struct Place {
    size_t group = 0;
    int64_t layer = 0;  // within the group
  };
  std::vector<KvGroup> groups;
  std::vector<Place> places;  // [num_layers]
  int64_t layers_per_group = 0;
};

/// Layers of one window share groups; at most an eighth more rooms than layers, and as few groups as that
/// allows.
KvGrouping group_kv_layers(std::span<const LayerSpec> layers);

}  // namespace lmdeploy
