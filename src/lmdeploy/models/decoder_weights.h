// The weights of a loaded model, by slot.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lmdeploy/kernels/kernels.h"
#include "lmdeploy/models/weight_rules.h"

namespace lmdeploy {

/// Filled by the loader, read by the forward pass. Slots outside the layers use layer kNoLayer.
class DecoderWeights {
 public:
  static constexpr int64_t kNoLayer = -1;

  explicit DecoderWeights(int64_t num_layers) : layers_(static_cast<size_t>(num_layers + 1)) {}

  /// The slot must have been filled.
  const PackedWeight& matrix(Slot slot, int64_t layer = kNoLayer) const { return *matrices(slot, layer)[0]; }
  /// Of a slot with one matrix for each expert or head; at least one.
  std::span<const PackedWeight* const> matrices(Slot slot, int64_t layer) const;
  /// [size] f32; nothing for a slot that this model does not have (a bias).
  std::optional<ConstTensorView> vector(Slot slot, int64_t layer = kNoLayer) const;

  void add_matrix(Slot slot, int64_t layer, std::unique_ptr<const PackedWeight> weight);
  void set_vector(Slot slot, int64_t layer, Tensor values);
  /// Both slots, outside the layers, read one weight, which is counted once.
  void share_matrix(Slot from, Slot to);

  /// Memory held.
  size_t bytes() const { return bytes_; }

  /// What is in a slot.
  struct Filled {
    Slot slot;
    int64_t layer;
    std::span<const PackedWeight* const> matrices;
    size_t vector_bytes;
  };
  /// Calls `visit` for each filled slot. A matrix that two slots share is seen twice.
  void for_each(const std::function<void(const Filled&)>& visit) const;

 private:
  struct Entry {
    std::vector<const PackedWeight*> matrices;
    Tensor vector;
  };
  using Entries = std::array<Entry, kNumSlots>;

  Entry& at(Slot slot, int64_t layer) {
    return layers_[static_cast<size_t>(layer + 1)][static_cast<size_t>(slot)];
  }
  const Entry& at(Slot slot, int64_t layer) const {
    return layers_[static_cast<size_t>(layer + 1)][static_cast<size_t>(slot)];
  }

  std::vector<Entries> layers_;  // [0]: outside the layers; [l + 1]: layer l
  std::vector<std::unique_ptr<const PackedWeight>> owned_;
  size_t bytes_ = 0;
};

}  // namespace lmdeploy
