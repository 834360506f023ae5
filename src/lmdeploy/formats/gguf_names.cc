// hub_tensor_name().
#include <algorithm>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/gguf_hub.h"
#include "lmdeploy/formats/gguf_tables.h"

namespace lmdeploy {
namespace {

constexpr std::string_view kStoredLayer = "blk.";
constexpr std::string_view kHubLayer = "model.layers.";

// "12.attn_q.weight" -> "12", "attn_q", ".weight"; false when it is not of this form.
bool split_layer_name(std::string_view text, std::string_view& layer, std::string_view& slot,
                      std::string_view& suffix) {
  const size_t dot = text.find('.'), last = text.rfind('.');
  if (dot == std::string_view::npos || dot == last) return false;
  layer = text.substr(0, dot);
  slot = text.substr(dot + 1, last - dot - 1);
  suffix = text.substr(last);
  const bool digits =
      !layer.empty() && std::all_of(layer.begin(), layer.end(), [](char c) { return c >= '0' && c <= '9'; });
  const bool canonical = digits && (layer.size() == 1 || layer[0] != '0');
  return canonical && (suffix == ".weight" || suffix == ".bias");
}

const std::string_view* find_name(std::span<const GgufNameRule> rules, std::string_view stored) {
  for (const GgufNameRule& rule : rules) {
    if (rule.stored == stored) return &rule.hub;
  }
  return nullptr;
}

}  // namespace

std::string hub_tensor_name(std::string_view architecture, std::string_view stored_name) {
  const GgufArchitecture* known = find_gguf_architecture(architecture);
  if (known == nullptr) return std::string(stored_name);
  if (const std::string_view* hub = find_name(known->names, stored_name)) return std::string(*hub);
  std::string_view layer, slot, suffix;
  if (stored_name.starts_with(kStoredLayer) &&
      split_layer_name(stored_name.substr(kStoredLayer.size()), layer, slot, suffix)) {
    if (const std::string_view* hub = find_name(known->layer_names, slot))
      return cat(kHubLayer, layer, ".", *hub, suffix);
  }
  return std::string(stored_name);
}

}  // namespace lmdeploy
