#include "half_judge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "backends.h"
#include "lmdeploy/core/error.h"
#include "lmdeploy/core/half.h"
#include "lmdeploy/models/step_runner.h"

namespace lmdeploy::testing {
namespace {

/// The largest error of a value's rounding: half a step of its power of two, of f16 at least 2^-25.
double largest_error(double value, DType dtype) {
  int exponent = 0;
  std::frexp(value, &exponent);
  const double error = std::ldexp(epsilon(dtype), exponent - 1);
  return dtype == DType::kF16 ? std::max(error, 0x1p-25) : error;
}

double nearest(double value, DType dtype) {
  const auto as_float = static_cast<float>(value);
  return dtype == DType::kF16 ? to_float(to_f16(as_float)) : to_float(to_bf16(as_float));
}

Tensor rounded_part(ConstTensorView part, DType dtype) {
  Tensor out(dtype, part.shape());
  for (int64_t r = 0; r < part.rows(); ++r)
    for (int64_t c = 0; c < part.cols(); ++c) out.view().set(r, c, part.at(r, c));
  return out;
}

}  // namespace

RoundedReference::RoundedReference(DType dtype, Rounding rounding, uint64_t seed)
    : RouteRecorder(std::make_shared<ThreadPool>(1)),
      ref_(std::make_shared<ThreadPool>(1)),
      dtype_(dtype),
      rounding_(rounding),
      rng_(seed) {}

void RoundedReference::round(TensorView out) const {
  if (rounding_ == Rounding::kNone) return;
  for (int64_t r = 0; r < out.rows(); ++r) {
    for (int64_t c = 0; c < out.cols(); ++c) {
      const double value = out.at(r, c);
      if (value == 0 || !std::isfinite(value)) continue;
      out.set(r, c,
              rounding_ == Rounding::kNearest
                  ? nearest(value, dtype_)
                  : value + largest_error(value, dtype_) * (2 * rng_.uniform() - 1));
    }
  }
}

std::unique_ptr<PackedWeight> RoundedReference::do_pack_weight(std::span<const ConstTensorView> parts,
                                                               int64_t,
                                                               std::span<const int32_t> column_order) const {
  std::vector<Tensor> rounded;
  rounded.reserve(parts.size());
  std::vector<ConstTensorView> views;
  for (const ConstTensorView& part : parts) {
    if (is_float(part.dtype())) rounded.push_back(rounded_part(part, dtype_));
    views.push_back(is_float(part.dtype()) ? ConstTensorView(rounded.back()) : part);
  }
  return ref_.pack_weight(views, column_order);
}

void RoundedReference::do_embedding(TensorView out, ConstTensorView ids, const PackedWeight& table) const {
  ref_.embedding(out, ids, table);
}
void RoundedReference::do_linear(TensorView out, ConstTensorView x, const PackedWeight& weight,
                                 std::optional<ConstTensorView> bias) const {
  ref_.linear(out, x, weight, bias);
  round(out);
}
void RoundedReference::do_norm(TensorView out, ConstTensorView x, ConstTensorView weight,
                               const NormOptions& options) const {
  ref_.norm(out, x, weight, options);
  round(out);
}
void RoundedReference::do_rope(TensorView x, ConstTensorView table, RopeOptions options) const {
  ref_.rope(x, table, options);
  round(x);
}
void RoundedReference::do_attention(TensorView out, ConstTensorView q, const KvCacheView& cache,
                                    const AttentionBatch& batch, const AttentionOptions& options) const {
  ref_.attention(out, q, cache, batch, options);
  round(out);
}
void RoundedReference::do_glu(TensorView out, ConstTensorView x, Activation activation) const {
  ref_.glu(out, x, activation);
  round(out);
}
void RoundedReference::do_clamped_glu(TensorView out, ConstTensorView x, float limit) const {
  ref_.clamped_glu(out, x, limit);
  round(out);
}
void RoundedReference::do_activate(TensorView out, ConstTensorView x, Activation activation) const {
  ref_.activate(out, x, activation);
  round(out);
}
void RoundedReference::do_add(TensorView out, ConstTensorView a, ConstTensorView b) const {
  ref_.add(out, a, b);
  round(out);
}
void RoundedReference::do_scale(TensorView x, float factor) const {
  ref_.scale(x, factor);
  round(x);
}
void RoundedReference::do_scale_rows(TensorView x, ConstTensorView factors) const {
  ref_.scale_rows(x, factors);
  round(x);
}
void RoundedReference::do_gate_rows(TensorView x, ConstTensorView gate) const {
  ref_.gate_rows(x, gate);
  round(x);
}
void RoundedReference::do_soft_cap(TensorView x, float cap) const {
  ref_.soft_cap(x, cap);
  round(x);
}
void RoundedReference::do_route(TensorView ids, TensorView weights, ConstTensorView logits,
                                std::optional<ConstTensorView> correction,
                                const RouteOptions& options) const {
  RouteRecorder::do_route(ids, weights, logits, correction, options);
  round(weights);
}
void RoundedReference::do_expert_linear(TensorView out, ConstTensorView x,
                                        std::span<const PackedWeight* const> experts,
                                        ConstTensorView expert_start,
                                        std::optional<ConstTensorView> bias) const {
  ref_.expert_linear(out, x, experts, expert_start, bias);
  round(out);
}
void RoundedReference::do_combine_experts(TensorView out, ConstTensorView x, ConstTensorView weights,
                                          ConstTensorView pair_rows) const {
  ref_.combine_experts(out, x, weights, pair_rows);
  round(out);
}

const Kernels& backend_or_nearest(const std::string& name) {
  static const RoundedReference f16(DType::kF16, Rounding::kNearest), bf16(DType::kBF16, Rounding::kNearest);
  return name == "nearest_f16" ? f16 : name == "nearest_bf16" ? bf16 : backend(name);
}

std::optional<DType> half_dtype_of(const std::string& name) {
  if (name.ends_with("_bf16")) return DType::kBF16;
  return name.ends_with("_f16") ? std::optional(DType::kF16) : std::nullopt;
}

// Monte Carlo arithmetic (Parker 1997): a logit's error in one run of random roundings is of the size of its
// error in another, those of a back end included. Of one logit or row a few runs say little: none counts as
// steadier than its row and its prompt are. An error is a sum of many roundings, near normal but for those
// that a sharp softmax carries on unevenly: kDeviations are for both.
constexpr int kRuns = 16;
constexpr double kDeviations = 8;

HalfJudge::HalfJudge(const Checkpoint& checkpoint, DType dtype, const LoadOptions& options,
                     std::optional<DType> kv_dtype)
    : kv_dtype_(kv_dtype),
      exact_(dtype, Rounding::kNone),
      noisy_(dtype, Rounding::kRandom),
      exact_model_(load_model(checkpoint, exact_, options)),
      noisy_model_(load_model(checkpoint, noisy_, options)) {
  if (spec().has_experts()) exact_.set_tolerance(router_tolerance());
}

Tensor HalfJudge::deviations(const std::vector<int>& ids, const Tensor& want) {
  const int64_t rows = want.dim(0), cols = want.dim(1);
  Tensor out(DType::kF64, {rows, cols});
  const auto squares = out.span<double>();
  std::ranges::fill(squares, 0);
  for (int run = 0; run < kRuns; ++run) {
    const Tensor noisy = all_logits(*noisy_model_, noisy_, ids, {ids.size()}, kv_dtype_);
    for (size_t i = 0; i < squares.size(); ++i) {
      const double error = noisy.span<double>()[i] - want.span<double>()[i];
      squares[i] += error * error / kRuns;
    }
  }
  const auto mean = [&](int64_t first_row, int64_t count) {
    const auto part =
        squares.subspan(static_cast<size_t>(first_row * cols), static_cast<size_t>(count * cols));
    return std::accumulate(part.begin(), part.end(), 0.0) / static_cast<double>(part.size());
  };
  const double of_all = mean(0, rows);
  for (int64_t r = 0; r < rows; ++r) {
    const double least = std::max(of_all, mean(r, 1));
    for (int64_t c = 0; c < cols; ++c) out.view().set(r, c, std::sqrt(std::max(least, out.view().at(r, c))));
  }
  return out;
}

// By which share of the largest a router's logits may be off: hidden states are off by no more where it reads
// them than at the end, where the model's logits show it. Half of the tokens asked are no near tie that
// turned.
double HalfJudge::router_tolerance() {
  const auto some = static_cast<int>(std::min<int64_t>(16, spec().vocab_size));
  std::vector<double> shares;
  for (int id = 0; id < some; ++id) {
    const Tensor want = all_logits(*exact_model_, exact_, {id}, {1}, kv_dtype_);
    double sum_sq = 0;
    for (int64_t c = 0; c < want.dim(1); ++c) sum_sq += want.view().at(0, c) * want.view().at(0, c);
    const Tensor off = deviations({id}, want);
    const double size = std::sqrt(sum_sq / static_cast<double>(want.dim(1)));
    shares.push_back(*std::ranges::min_element(off.span<double>()) / size);  // the row's: none is below it
  }
  const auto middle = shares.begin() + some / 2;
  std::ranges::nth_element(shares, middle);
  return kDeviations * *middle;
}

HalfLogits HalfJudge::judge(const std::vector<int>& ids) {
  HalfLogits out;
  out.ids = ids;
  exact_.forget();
  out.want = all_logits(*exact_model_, exact_, ids, {ids.size()}, kv_dtype_);
  out.comparable = exact_.first_near_tie(static_cast<int64_t>(ids.size()));
  if (out.comparable == 0) return out;
  out.bound = deviations(ids, out.want);
  for (double& value : out.bound.span<double>()) value *= kDeviations;
  return out;
}

std::vector<HalfLogits> HalfJudge::judge_prompts(std::vector<std::vector<int>> prompts) {
  const auto some = static_cast<int>(std::min<int64_t>(48, spec().vocab_size));
  for (int id = 0; spec().has_experts() && id < some; ++id) {
    prompts.push_back({id});
    if (id % 3 == 0) prompts.push_back({id, (id + 1) % some, (id + 5) % some});
  }
  std::vector<HalfLogits> judged;
  for (const std::vector<int>& ids : prompts) judged.push_back(judge(ids));
  return judged;
}

void HalfComparison::add(ConstTensorView got, const HalfLogits& judged, int64_t row) {
  const ConstTensorView want = judged.want, bound = judged.bound;
  const int best = argmax(want, row);
  bool leads = true;
  for (int64_t c = 0; c < want.cols(); ++c) {
    const double share = std::abs(got.at(row, c) - want.at(row, c)) / bound.at(row, c);
    worst = std::isnan(share) ? HUGE_VAL : std::max(worst, share);
    EXPECT_LE(share, 1) << "token " << row << ", id " << c << ": got " << got.at(row, c) << ", want "
                        << want.at(row, c);
    leads &= c == best || want.at(row, best) - want.at(row, c) > bound.at(row, best) + bound.at(row, c);
  }
  ++compared;
  decided += leads ? 1 : 0;
  if (leads) {
    EXPECT_EQ(argmax(got, row), best) << "token " << row;
  }
}

HalfComparison expect_half_logits(const std::vector<HalfLogits>& judged, Model& model, const Kernels& kernels,
                                  const std::vector<size_t>& sizes) {
  HalfComparison seen;
  for (const HalfLogits& one : judged) {
    SCOPED_TRACE(cat("prompt ", &one - judged.data()));
    seen.rows += one.want.dim(0);
    if (one.comparable == 0) continue;
    const Tensor got =
        all_logits(model, kernels, one.ids, sizes.empty() ? std::vector{one.ids.size()} : sizes);
    for (int64_t r = 0; r < one.comparable; ++r) seen.add(got, one, r);
  }
  return seen;
}

}  // namespace lmdeploy::testing
