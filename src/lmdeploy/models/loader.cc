// load_model(): the tensors of a plan to packed weights, one slot at a time.
#include <algorithm>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/log.h"
#include "lmdeploy/models/decoder_weights.h"
#include "lmdeploy/models/model.h"
#include "lmdeploy/models/model_plan.h"
#include "lmdeploy/models/stored_weight.h"

namespace lmdeploy {
namespace {

int64_t bytes_of(const TensorInfo& info) {
  if (info.shape.rank() == 0) return block_bytes(info.dtype);
  return row_bytes(info.dtype, info.shape.numel());
}

/// Reads the tensors of a plan into weights, one slot at a time.
class WeightReader {
 public:
  WeightReader(const Checkpoint& checkpoint, const Kernels& kernels, const LoadOptions& options)
      : checkpoint_(checkpoint), kernels_(kernels), options_(options) {
    for (const TensorInfo& info : checkpoint.tensors()) total_bytes_ += bytes_of(info);
  }

  DecoderWeights read(const LoadPlan& plan, const DecoderSpec& spec) {
    DecoderWeights weights(spec.num_layers);
    report();
    count_uses(plan);
    for (const size_t index : plan.ignored) finish(index);
    for (const SlotPlan& slot : plan.slots) {
      if (slot.is_matrix())
        read_matrices(slot, spec, weights);
      else
        weights.set_vector(slot.slot, slot.layer, read_vector(slot, spec));
      for (const PartPlan& part : slot.parts)
        for (const size_t index : part.tensors)
          if (--uses_[index] == 0) finish(index);
    }
    if (spec.tied_embedding) weights.share_matrix(Slot::kEmbed, Slot::kLmHead);
    return weights;
  }

 private:
  // Two slots may read parts of one tensor.
  void count_uses(const LoadPlan& plan) {
    uses_.assign(checkpoint_.tensors().size(), 0);
    for (const SlotPlan& slot : plan.slots)
      for (const PartPlan& part : slot.parts)
        for (const size_t index : part.tensors) ++uses_[index];
  }

  // Matrix by matrix, so that no more than one exists besides its packed form.
  void read_matrices(const SlotPlan& slot, const DecoderSpec& spec, DecoderWeights& weights) const {
    const int64_t count = num_matrices(*slot.parts[0].rule, spec);
    for (int64_t i = 0; i < count; ++i) {
      std::vector<MatrixPiece> pieces;
      std::vector<ConstTensorView> views;
      for (const PartPlan& part : slot.parts) {
        const bool own_tensor = part.tensors.size() > 1;  // of each expert or head
        const size_t tensor = part.tensors[own_tensor ? static_cast<size_t>(i) : 0];
        pieces.push_back(
            take_matrix(checkpoint_.tensor(tensor), order_of(tensor), *part.rule, spec, own_tensor ? 0 : i));
      }
      agree_on_order(pieces, slot.slot);
      for (const MatrixPiece& piece : pieces) views.push_back(piece.view);
      weights.add_matrix(slot.slot, slot.layer, kernels_.pack_weight(views, pieces[0].column_order));
    }
  }

  std::span<const int32_t> order_of(size_t tensor) const {
    const ColumnOrder& order = checkpoint_.tensors()[tensor].column_order;
    return order ? std::span<const int32_t>(*order) : std::span<const int32_t>();
  }

  // A weight has one order of columns. Its parts have the same inputs, by which quantisers order them; those
  // of one that has not, and a table of embeddings, are put in the inputs' order, in f32.
  static void agree_on_order(std::vector<MatrixPiece>& pieces, Slot slot) {
    const bool same = std::all_of(pieces.begin(), pieces.end(), [&](const MatrixPiece& piece) {
      return std::ranges::equal(piece.column_order, pieces[0].column_order);
    });
    if (same && slot != Slot::kEmbed) return;
    for (MatrixPiece& piece : pieces) undo_column_order(piece);
  }

  Tensor read_vector(const SlotPlan& slot, const DecoderSpec& spec) const {
    std::vector<float> all;
    for (const PartPlan& part : slot.parts) {
      for (const size_t index : part.tensors) {
        const std::vector<float> values = take_vector(checkpoint_.tensor(index), *part.rule, spec);
        all.insert(all.end(), values.begin(), values.end());
      }
    }
    Tensor out(DType::kF32, {static_cast<int64_t>(all.size())});
    std::memcpy(out.view().data(), all.data(), all.size() * sizeof(float));
    return kernels_.to_device(std::move(out));
  }

  void finish(size_t index) {
    checkpoint_.drop(index);
    done_bytes_ += bytes_of(checkpoint_.tensors()[index]);
    report();
  }
  void report() const {
    if (options_.progress) options_.progress(done_bytes_, total_bytes_);
  }

  const Checkpoint& checkpoint_;
  const Kernels& kernels_;
  const LoadOptions& options_;
  std::vector<int> uses_;  // of each tensor, still to come
  int64_t done_bytes_ = 0;
  int64_t total_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Model> load_model(const Checkpoint& checkpoint, const Kernels& kernels,
                                  const LoadOptions& options) {
  const ModelPlan plan = plan_model(checkpoint, options.config_overrides);
  const std::vector<size_t>& ignored = plan.load.ignored;
  if (!ignored.empty())
    LMD_LOG(kInfo, "load ", checkpoint.path(), ": ", ignored.size(), " tensors are ignored by design, first ",
            checkpoint.tensors()[ignored[0]].name);
  DecoderWeights weights = WeightReader(checkpoint, kernels, options).read(plan.load, plan.spec);
  return plan.family->make(plan.spec, std::move(weights), kernels, options);
}

}  // namespace lmdeploy
