// What a model's logits are in 16 bits: the reference on weights rounded as a back end rounds them, and how
// far the roundings of its activations move each row.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lmdeploy/core/random.h"
#include "lmdeploy/models/model.h"
#include "random_llama.h"
#include "route_recorder.h"

namespace lmdeploy::testing {

/// What happens to each number that an op writes: nothing, rounding to nearest, or an error drawn evenly from
/// all that rounding to nearest can make.
enum class Rounding { kNone, kNearest, kRandom };

/// The reference as a back end in 16 bits has it: float weights are of `dtype`, and so is what ops write.
/// Sums stay f64.
class RoundedReference final : public RouteRecorder {
 public:
  RoundedReference(DType dtype, Rounding rounding, uint64_t seed = 0);

 private:
  std::unique_ptr<PackedWeight> do_pack_weight(std::span<const ConstTensorView> parts, int64_t rows,
                                               std::span<const int32_t> column_order) const override;
  void do_embedding(TensorView out, ConstTensorView ids, const PackedWeight& table) const override;
  void do_linear(TensorView out, ConstTensorView x, const PackedWeight& weight,
                 std::optional<ConstTensorView> bias) const override;
  void do_norm(TensorView out, ConstTensorView x, ConstTensorView weight,
               const NormOptions& options) const override;
  void do_rope(TensorView x, ConstTensorView table, RopeOptions options) const override;
  void do_attention(TensorView out, ConstTensorView q, const KvCacheView& cache, const AttentionBatch& batch,
                    const AttentionOptions& options) const override;
  void do_glu(TensorView out, ConstTensorView x, Activation activation) const override;
  void do_clamped_glu(TensorView out, ConstTensorView x, float limit) const override;
  void do_activate(TensorView out, ConstTensorView x, Activation activation) const override;
  void do_add(TensorView out, ConstTensorView a, ConstTensorView b) const override;
  void do_scale(TensorView x, float factor) const override;
  void do_scale_rows(TensorView x, ConstTensorView factors) const override;
  void do_gate_rows(TensorView x, ConstTensorView gate) const override;
  void do_soft_cap(TensorView x, float cap) const override;
  void do_route(TensorView ids, TensorView weights, ConstTensorView logits,
                std::optional<ConstTensorView> correction, const RouteOptions& options) const override;
  void do_expert_linear(TensorView out, ConstTensorView x, std::span<const PackedWeight* const> experts,
                        ConstTensorView expert_start, std::optional<ConstTensorView> bias) const override;
  void do_combine_experts(TensorView out, ConstTensorView x, ConstTensorView weights,
                          ConstTensorView pair_rows) const override;

  void round(TensorView out) const;

  const RefKernels ref_;
  const DType dtype_;
  const Rounding rounding_;
  mutable Rng rng_;
};

/// "nearest_f16" and "nearest_bf16": the reference with Rounding::kNearest, which shows on a CPU what tests
/// of a GPU in 16 bits see; else backend(name).
const Kernels& backend_or_nearest(const std::string& name);
/// Of the activations of a back end in 16 bits by its name, nullopt of others.
std::optional<DType> half_dtype_of(const std::string& name);

/// Logits of one prompt.
struct HalfLogits {
  std::vector<int> ids;
  Tensor want;             // [tokens, vocab_size]
  Tensor bound;            // of each row: how far a logit may be off
  int64_t comparable = 0;  // rows before the first near tie of a router, after which others may be right too
};

class HalfJudge {
 public:
  /// `kv_dtype`: of a cache in codes.
  HalfJudge(const Checkpoint& checkpoint, DType dtype, const LoadOptions& options,
            std::optional<DType> kv_dtype = std::nullopt);
  HalfLogits judge(const std::vector<int>& ids);
  /// These; with experts, whose router's near ties end a comparison, many prompts of one and three tokens
  /// too.
  std::vector<HalfLogits> judge_prompts(std::vector<std::vector<int>> prompts);
  const DecoderSpec& spec() const { return exact_model_->spec(); }

 private:
  /// How far random roundings move each logit: root mean squares.
  Tensor deviations(const std::vector<int>& ids, const Tensor& want);
  double router_tolerance();

  const std::optional<DType> kv_dtype_;
  RoundedReference exact_, noisy_;
  std::unique_ptr<Model> exact_model_, noisy_model_;
};

/// What a comparison has seen.
struct HalfComparison {
  int64_t rows = 0, compared = 0;
  int64_t decided = 0;  // of those compared: the best token leads by more than the bound allows to change
  double worst = 0;     // error / bound

  void add(ConstTensorView got, const HalfLogits& judged, int64_t row);
};

/// `model` against its judge, prompts in pieces of `sizes` (empty: whole). Each logit beyond its bound and
/// each best token that is another one fails the test.
HalfComparison expect_half_logits(const std::vector<HalfLogits>& judged, Model& model, const Kernels& kernels,
                                  const std::vector<size_t>& sizes = {});

}  // namespace lmdeploy::testing
