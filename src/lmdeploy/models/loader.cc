// load_model(): the tensors of a plan to packed weights, one slot at a time, for one rank or several.
#include <algorithm>
#include <cstring>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/log.h"
#include "lmdeploy/models/decoder_weights.h"
#include "lmdeploy/models/f16_range.h"
#include "lmdeploy/models/kv_risk.h"
#include "lmdeploy/models/model.h"
#include "lmdeploy/models/model_plan.h"
#include "lmdeploy/models/sharded_model.h"
#include "lmdeploy/models/weight_share.h"

namespace lmdeploy {
namespace {

int64_t bytes_of(const TensorInfo& info) {
  if (info.shape.rank() == 0) return block_bytes(info.dtype);
  return row_bytes(info.dtype, info.shape.numel());
}

/// What weights are packed for.
struct Ranks {
  const Sharding& sharding;
  std::span<const Kernels* const> kernels;
  const RankGroup* group;  // nullptr: there is one rank
};

/// body() for a rank, in the calling thread; an error says which, and while what was done.
void as_rank(const RankGroup& group, int64_t rank, const char* doing, const std::function<void()>& body) {
  try {
    group.enter(rank);
    body();
  } catch (const std::exception& error) {
    throw Error(code_of(error),
                cat("tensor parallelism: rank ", rank, " failed while ", doing, ": ", describe(error)));
  }
}

/// Reads the tensors of a plan into weights, one slot at a time: those of all ranks.
class WeightReader {
 public:
  WeightReader(const Checkpoint& checkpoint, const ModelPlan& plan, const Ranks& ranks,
               const LoadOptions& options)
      : checkpoint_(checkpoint),
        family_(*plan.family),
        plan_(plan.load),
        spec_(plan.spec),
        ranks_(ranks),
        options_(options) {
    for (const TensorInfo& info : checkpoint.tensors()) total_bytes_ += bytes_of(info);
    for (size_t rank = 0; rank < ranks.kernels.size(); ++rank) weights_.emplace_back(spec_.num_layers);
  }

  /// By rank. Once.
  std::vector<DecoderWeights> read() {
    report();
    count_uses();
    for (const size_t index : plan_.ignored) finish(index);
    for (const SlotPlan& slot : plan_.slots) {
      if (slot.is_matrix())
        read_matrices(slot);
      else
        read_vector(slot);
      for (const PartPlan& part : slot.parts)
        for (const size_t index : part.tensors)
          if (--uses_[index] == 0) finish(index);
    }
    if (spec_.tied_embedding && ranks_.group == nullptr)
      weights_[0].share_matrix(Slot::kEmbed, Slot::kLmHead);
    if (ranks_.group != nullptr) ranks_.group->enter(0);
    warn(f16_range_.warning());
    if (options_.kv_dtype) warn(kv_risk_.warning(*options_.kv_dtype, family_.architecture));
    return std::move(weights_);
  }

 private:
  using Pieces = std::vector<MatrixPiece>;  // of the parts of a slot

  // Two slots may read parts of one tensor.
  void count_uses() {
    uses_.assign(checkpoint_.tensors().size(), 0);
    for (const SlotPlan& slot : plan_.slots)
      for (const PartPlan& part : slot.parts)
        for (const size_t index : part.tensors) ++uses_[index];
  }

  // body(rank), in which weights are packed for it.
  void for_ranks(const std::function<void(int64_t rank)>& body) const {
    if (ranks_.group == nullptr) return body(0);
    for (int64_t rank = 0; rank < ranks_.sharding.num_ranks(); ++rank)
      as_rank(*ranks_.group, rank, "weights were loaded", [&] { body(rank); });
  }

  // Matrix by matrix, so that no more than one exists besides its packed form.
  void read_matrices(const SlotPlan& slot) {
    const int64_t count = num_matrices(*slot.parts[0].rule, spec_);
    for (int64_t i = 0; i < count; ++i) {
      Pieces pieces = take_pieces(slot, i);
      agree_on_order(pieces, slot.slot);
      look_at_range(slot, pieces, i);
      for_ranks([&](int64_t rank) {
        if (holds_heads(slot.parts[0].rule->stored)) return pack_head(slot, pieces, i, rank);
        pack_share(slot, slot.slot, pieces, rank);
        if (slot.slot == Slot::kEmbed && spec_.tied_embedding && ranks_.group != nullptr)
          pack_share(slot, Slot::kLmHead, pieces, rank);
      });
    }
  }

  Pieces take_pieces(const SlotPlan& slot, int64_t index) const {
    Pieces pieces;
    for (const PartPlan& part : slot.parts) {
      const size_t tensor = tensor_of(part, index);
      pieces.push_back(take_matrix(checkpoint_.tensor(tensor), order_of(tensor), *part.rule, spec_,
                                   has_own_tensors(part) ? 0 : index));
    }
    return pieces;
  }

  // A tensor of each expert or head.
  static bool has_own_tensors(const PartPlan& part) { return part.tensors.size() > 1; }
  static size_t tensor_of(const PartPlan& part, int64_t index) {
    return part.tensors[has_own_tensors(part) ? static_cast<size_t>(index) : 0];
  }

  // A device whose activations are f16 has matrices of floats in f16 too; vectors stay f32.
  void look_at_range(const SlotPlan& slot, const Pieces& pieces, int64_t index) {
    const Kernels& kernels = *ranks_.kernels[0];
    if (kernels.activation_dtype() != DType::kF16) return;
    for (size_t p = 0; p < pieces.size(); ++p)
      f16_range_.add(pieces[p].view, checkpoint_.tensors()[tensor_of(slot.parts[p], index)].name,
                     kernels.threads());
  }

  // A rank that has fewer heads than others fills up with matrices of zeros.
  void pack_head(const SlotPlan& slot, const Pieces& pieces, int64_t head, int64_t rank) {
    int64_t own_end = 0;
    for (const ShardRun& run : ranks_.sharding.heads(rank)) {
      if (run.begin != ShardRun::kZeros) {
        own_end = run.begin + run.count;
        if (head >= run.begin && head < own_end) pack(slot.slot, slot.layer, pieces, rank);
      } else if (head == own_end - 1) {
        Pieces zeros;
        for (const MatrixPiece& piece : pieces) zeros.push_back(zeros_like(piece));
        for (int64_t i = 0; i < run.count; ++i) pack(slot.slot, slot.layer, zeros, rank);
      }
    }
  }

  void pack_share(const SlotPlan& slot, Slot to, const Pieces& pieces, int64_t rank) {
    Pieces shares;
    for (size_t p = 0; p < pieces.size(); ++p) {
      WeightRule rule = *slot.parts[p].rule;
      rule.slot = to;
      shares.push_back(
          take_share(pieces[p], ranks_.sharding.rows(rule, rank), ranks_.sharding.cols(rule, rank)));
    }
    pack(to, slot.layer, shares, rank);
  }

  void pack(Slot slot, int64_t layer, const Pieces& pieces, int64_t rank) {
    std::vector<ConstTensorView> views;
    for (const MatrixPiece& piece : pieces) views.push_back(piece.view);
    const auto at = static_cast<size_t>(rank);
    weights_[at].add_matrix(slot, layer, ranks_.kernels[at]->pack_weight(views, pieces[0].column_order));
  }

  std::span<const int32_t> order_of(size_t tensor) const {
    const ColumnOrder& order = checkpoint_.tensors()[tensor].column_order;
    return order ? std::span<const int32_t>(*order) : std::span<const int32_t>();
  }

  // A weight has one order of columns. Its parts have the same inputs, by which quantisers order them; those
  // of one that has not, and a table of embeddings, are put in the inputs' order, in f32.
  static void agree_on_order(Pieces& pieces, Slot slot) {
    const bool same = std::all_of(pieces.begin(), pieces.end(), [&](const MatrixPiece& piece) {
      return std::ranges::equal(piece.column_order, pieces[0].column_order);
    });
    if (same && slot != Slot::kEmbed) return;
    for (MatrixPiece& piece : pieces) undo_column_order(piece);
  }

  /// "": there is nothing to warn of.
  void warn(const std::string& of) const {
    if (!of.empty()) LMD_LOG(kWarning, "load ", checkpoint_.path(), ": ", of);
  }

  void read_vector(const SlotPlan& slot) {
    std::vector<std::vector<float>> parts;
    for (const PartPlan& part : slot.parts) {
      std::vector<float>& all = parts.emplace_back();
      for (const size_t index : part.tensors) {
        const std::vector<float> values = take_vector(checkpoint_.tensor(index), *part.rule, spec_);
        all.insert(all.end(), values.begin(), values.end());
      }
    }
    if (slot.slot == Slot::kQkvBias) {  // of queries, keys, values
      std::vector<float> all;
      for (const std::vector<float>& part : parts) all.insert(all.end(), part.begin(), part.end());
      kv_risk_.add_key_bias(
          std::span(all).subspan(static_cast<size_t>(spec_.q_size()), static_cast<size_t>(spec_.kv_size())));
    }
    for_ranks([&](int64_t rank) {
      std::vector<float> all;
      for (size_t p = 0; p < parts.size(); ++p) {
        const std::vector<float> own =
            take_share(parts[p], ranks_.sharding.elements(*slot.parts[p].rule, rank));
        all.insert(all.end(), own.begin(), own.end());
      }
      Tensor out(DType::kF32, {static_cast<int64_t>(all.size())});
      std::memcpy(out.view().data(), all.data(), all.size() * sizeof(float));
      const auto at = static_cast<size_t>(rank);
      weights_[at].set_vector(slot.slot, slot.layer, ranks_.kernels[at]->to_device(std::move(out)));
    });
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
  const ModelFamily& family_;
  const LoadPlan& plan_;
  const DecoderSpec& spec_;
  const Ranks& ranks_;
  const LoadOptions& options_;
  std::vector<DecoderWeights> weights_;  // by rank
  std::vector<int> uses_;                // of each tensor, still to come
  F16Range f16_range_;
  KvRisk kv_risk_;
  int64_t done_bytes_ = 0;
  int64_t total_bytes_ = 0;
};

// What `checkpoint` is, said in the log.
ModelPlan plan_to_load(const Checkpoint& checkpoint, const LoadOptions& options) {
  ModelPlan plan = plan_model(checkpoint, options.config_overrides);
  const std::vector<size_t>& ignored = plan.load.ignored;
  if (!ignored.empty())
    LMD_LOG(kInfo, "load ", checkpoint.path(), ": ", ignored.size(), " tensors are ignored by design, first ",
            checkpoint.tensors()[ignored[0]].name);
  return plan;
}

}  // namespace

std::unique_ptr<Model> load_model(const Checkpoint& checkpoint, const Kernels& kernels,
                                  const LoadOptions& options) {
  const ModelPlan plan = plan_to_load(checkpoint, options);
  const Sharding whole(plan.spec, /*num_ranks=*/1, {});
  const Kernels* const only = &kernels;
  std::vector<DecoderWeights> weights =
      WeightReader(checkpoint, plan, {whole, {&only, 1}, nullptr}, options).read();
  return plan.family->make(plan.spec, std::move(weights[0]), kernels, options);
}

std::unique_ptr<Model> load_model(const Checkpoint& checkpoint, std::span<const Kernels* const> kernels,
                                  std::unique_ptr<RankGroup> group, const LoadOptions& options) {
  LMD_CHECK(static_cast<int64_t>(kernels.size()) == group->num_ranks() && kernels.size() > 1, kernels.size(),
            " of ", group->num_ranks());
  const ModelPlan plan = plan_to_load(checkpoint, options);
  const Sharding sharding(plan.spec, group->num_ranks(), shard_units(checkpoint, plan.load));
  std::vector<DecoderWeights> weights =
      WeightReader(checkpoint, plan, {sharding, kernels, group.get()}, options).read();
  std::vector<std::unique_ptr<Model>> models;
  for (int64_t rank = 0; rank < group->num_ranks(); ++rank) {
    const auto at = static_cast<size_t>(rank);
    LoadOptions own = options;
    own.communicator = &group->communicator(rank);
    if (rank > 0 && options.observer)  // observed steps are not recorded: on no rank
      own.observer = [](const std::string&, ConstTensorView) {};
    as_rank(*group, rank, "its buffers were made", [&] {
      models.push_back(
          plan.family->make(sharding.rank_spec(rank), std::move(weights[at]), *kernels[at], own));
    });
  }
  group->enter(0);
  return std::make_unique<ShardedModel>(plan.spec, std::move(models), kernels, std::move(group));
}

}  // namespace lmdeploy
