// The size of groups, and who is in which.
#include "lmdeploy/models/kv_groups.h"

#include <algorithm>
#include <map>

namespace lmdeploy {
namespace {

using LayersByWindow = std::map<int64_t, std::vector<size_t>>;

int64_t groups_for(size_t layers, int64_t size) { return (static_cast<int64_t>(layers) + size - 1) / size; }

// The largest size of a group that wastes at most an eighth.
int64_t choose_size(const LayersByWindow& kinds, int64_t num_layers) {
  for (int64_t size = num_layers; size > 1; --size) {
    int64_t rooms = 0;
    for (const auto& [window, layers] : kinds) rooms += groups_for(layers.size(), size) * size;
    if (rooms - num_layers <= num_layers / 8) return size;
  }
  return 1;
}

}  // namespace

KvGrouping group_kv_layers(std::span<const LayerSpec> layers) {
  LayersByWindow kinds;
  for (size_t l = 0; l < layers.size(); ++l) kinds[layers[l].window].push_back(l);
  KvGrouping grouping;
  grouping.layers_per_group = choose_size(kinds, static_cast<int64_t>(layers.size()));
  grouping.places.resize(layers.size());
  for (const auto& [window, members] : kinds) {
    for (size_t i = 0; i < members.size(); ++i) {
      const int64_t within = static_cast<int64_t>(i) % grouping.layers_per_group;
      if (within == 0) grouping.groups.push_back({window});
      grouping.places[members[i]] = {grouping.groups.size() - 1, within};
    }
  }
  return grouping;
}

}  // namespace lmdeploy
