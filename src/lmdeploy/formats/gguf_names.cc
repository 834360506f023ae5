// hub_tensor_name().
#include <algorithm>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/gguf_hub.h"
#include "lmdeploy/formats/gguf_tables.h"

namespace lmdeploy {
namespace {

constexpr std::string_view kStoredLayer = "blk.";
constexpr std::string_view kExpertMark = "{e}";

bool is_number(std::string_view text) {
  const bool digits =
      !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  return digits && (text.size() == 1 || text[0] != '0');
}

// "12.attn_q.weight" -> "12", "attn_q", ".weight"; false when it is not of this form.
bool split_layer_name(std::string_view text, std::string_view& layer, std::string_view& slot,
                      std::string_view& suffix) {
  const size_t dot = text.find('.'), last = text.rfind('.');
  if (dot == std::string_view::npos || dot == last) return false;
  layer = text.substr(0, dot);
  slot = text.substr(dot + 1, last - dot - 1);
  suffix = text.substr(last);
  return is_number(layer) && (suffix == ".weight" || suffix == ".bias");
}

const std::string_view* find_name(std::span<const GgufNameRule> rules, std::string_view stored) {
  for (const GgufNameRule& rule : rules) {
    if (rule.stored == stored) return &rule.hub;
  }
  return nullptr;
}

// "ffn_gate.7" by the rule of "ffn_gate.{e}".
std::string expert_name(std::span<const GgufNameRule> rules, std::string_view slot) {
  const size_t dot = slot.rfind('.');
  if (dot == std::string_view::npos || !is_number(slot.substr(dot + 1))) return {};
  const std::string_view* hub = find_name(rules, cat(slot.substr(0, dot + 1), kExpertMark));
  if (hub == nullptr) return {};
  return std::string(*hub).replace(hub->find(kExpertMark), kExpertMark.size(), slot.substr(dot + 1));
}

// What follows the layer's number; "" for a slot that no rule names.
std::string hub_slot(std::span<const GgufNameRule> rules, std::string_view slot, std::string_view suffix) {
  if (const std::string_view* whole = find_name(rules, cat(slot, suffix))) return std::string(*whole);
  if (const std::string_view* hub = find_name(rules, slot)) return cat(*hub, suffix);
  const std::string expert = expert_name(rules, slot);
  return expert.empty() ? expert : cat(expert, suffix);
}

}  // namespace

std::string hub_tensor_name(std::string_view architecture, std::string_view stored_name) {
  const GgufArchitecture* known = find_gguf_architecture(architecture);
  if (known == nullptr) return std::string(stored_name);
  if (const std::string_view* hub = find_name(known->names, stored_name)) return std::string(*hub);
  std::string_view layer, slot, suffix;
  if (stored_name.starts_with(kStoredLayer) &&
      split_layer_name(stored_name.substr(kStoredLayer.size()), layer, slot, suffix)) {
    const std::string hub = hub_slot(known->layer_names, slot, suffix);
    if (!hub.empty()) return cat(known->layer_prefix, layer, ".", hub);
  }
  return std::string(stored_name);
}

}  // namespace lmdeploy
