// Weights by slot.
#include "lmdeploy/models/decoder_weights.h"

#include <utility>

#include "lmdeploy/core/error.h"

namespace lmdeploy {

std::span<const PackedWeight* const> DecoderWeights::matrices(Slot slot, int64_t layer) const {
  const Entry& entry = at(slot, layer);
  LMD_CHECK(!entry.matrices.empty(), "slot ", static_cast<int>(slot), " of layer ", layer, " is empty");
  return entry.matrices;
}

std::optional<ConstTensorView> DecoderWeights::vector(Slot slot, int64_t layer) const {
  const Entry& entry = at(slot, layer);
  if (entry.vector.empty()) return std::nullopt;
  return entry.vector;
}

void DecoderWeights::add_matrix(Slot slot, int64_t layer, std::unique_ptr<const PackedWeight> weight) {
  bytes_ += weight->bytes();
  at(slot, layer).matrices.push_back(weight.get());
  owned_.push_back(std::move(weight));
}

void DecoderWeights::set_vector(Slot slot, int64_t layer, Tensor values) {
  bytes_ += values.bytes();
  at(slot, layer).vector = std::move(values);
}

void DecoderWeights::for_each(const std::function<void(const Filled&)>& visit) const {
  for (int64_t layer = kNoLayer; layer + 1 < static_cast<int64_t>(layers_.size()); ++layer) {
    for (int slot = 0; slot < kNumSlots; ++slot) {
      const Entry& entry = at(static_cast<Slot>(slot), layer);
      if (!entry.matrices.empty() || !entry.vector.empty())
        visit({static_cast<Slot>(slot), layer, entry.matrices, entry.vector.bytes()});
    }
  }
}

void DecoderWeights::share_matrix(Slot from, Slot to) {
  at(to, kNoLayer).matrices = at(from, kNoLayer).matrices;
}

}  // namespace lmdeploy
