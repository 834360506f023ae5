// Edits JSON texts as trees: bytes of a text rarely change into another valid one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/json.h"
#include "lmdeploy/core/random.h"

namespace fuzz {

/// Turns any input into JSON objects: a text that is one stands for itself (the first ones are kept as
/// bases); other bytes choose a base and edits.
class JsonInputs {
 public:
  lmdeploy::JsonObject take(const uint8_t* data, size_t size) {
    try {
      lmdeploy::Json json = lmdeploy::parse_json({reinterpret_cast<const char*>(data), size}, "input");
      if (json.is_object()) {
        if (bases_.size() < kMostBases) bases_.push_back(json.get_object());
        return std::move(json.get_object());
      }
    } catch (const lmdeploy::Error&) {
    }
    if (bases_.empty()) return {};
    uint64_t hash = 1469598103934665603u;  // FNV-1a
    for (size_t i = 0; i < size; ++i) hash = (hash ^ data[i]) * 1099511628211u;
    lmdeploy::Rng rng(hash);
    lmdeploy::Json json = bases_[rng.below(bases_.size())];
    for (uint64_t edits = 1 + rng.below(4); edits > 0; --edits) edit(json, rng);
    return json.is_object() ? std::move(json.get_object()) : lmdeploy::JsonObject();
  }

 private:
  static constexpr size_t kMostBases = 400;

  /// Walks down to some value and changes it.
  void edit(lmdeploy::Json& json, lmdeploy::Rng& rng) const {
    lmdeploy::Json* inner = nullptr;
    if (auto* object = json.if_object(); object != nullptr && !object->empty()) {
      auto* entry = object->begin() + static_cast<std::ptrdiff_t>(rng.below(object->size()));
      if (rng.below(8) == 0) {
        object->erase(entry);
        return;
      }
      if (rng.below(8) == 0) return add_from_another(*object, rng);
      inner = &entry->value();
    } else if (auto* array = json.if_array(); array != nullptr && !array->empty()) {
      inner = &(*array)[rng.below(array->size())];
      if (rng.below(4) == 0) {
        const lmdeploy::Json copy = *inner;
        array->push_back(copy);
        return;
      }
    }
    const bool deeper = inner != nullptr && (inner->is_object() || inner->is_array()) && rng.below(8) != 0;
    if (deeper) return edit(*inner, rng);
    (inner == nullptr ? json : *inner) = value(inner == nullptr ? json : *inner, rng);
  }

  void add_from_another(lmdeploy::JsonObject& object, lmdeploy::Rng& rng) const {
    const lmdeploy::JsonObject& other = bases_[rng.below(bases_.size())];
    if (other.empty()) return;
    const auto* entry = other.begin() + static_cast<std::ptrdiff_t>(rng.below(other.size()));
    object[entry->key()] = entry->value();
  }

  static lmdeploy::Json value(const lmdeploy::Json& old, lmdeploy::Rng& rng) {
    static const int64_t kIntegers[] = {0,
                                        1,
                                        -1,
                                        2,
                                        3,
                                        7,
                                        8,
                                        16,
                                        64,
                                        255,
                                        4096,
                                        65536,
                                        1 << 20,
                                        1 << 24,
                                        INT32_MAX,
                                        INT32_MIN,
                                        INT64_MAX,
                                        INT64_MIN,
                                        (1 << 24) + 1,
                                        1LL << 32,
                                        1LL << 40,
                                        16384};
    static const double kDoubles[] = {0.0, -0.0, 0.5, 1.0, -1.5, 1e-300, 1e300, 1e38, 4.0, 1e6};
    switch (rng.below(10)) {
      case 0:
        return nullptr;
      case 1:
        return rng.below(2) == 0;
      case 2:
        return rng.below(2) == 0 ? "" : "default";
      case 3:
        return lmdeploy::JsonArray{old};
      case 4:
        return lmdeploy::JsonObject{{"factor", old}};
      case 5:
        return kDoubles[rng.below(std::size(kDoubles))];
      case 6:
        if (old.is_int64() && old.get_int64() > INT32_MIN && old.get_int64() < INT32_MAX)
          return old.get_int64() + static_cast<int64_t>(rng.below(5)) - 2;
        [[fallthrough]];
      default:
        return kIntegers[rng.below(std::size(kIntegers))];
    }
  }

  std::vector<lmdeploy::JsonObject> bases_;
};

}  // namespace fuzz
