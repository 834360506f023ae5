// Reference of the ops of mixture-of-experts layers.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "lmdeploy/kernels/checks.h"
#include "lmdeploy/kernels/ref/ref_kernels.h"

namespace lmdeploy {
namespace {

using Values = std::vector<double>;

constexpr double kLowest = std::numeric_limits<double>::lowest();

// Indices of the `count` largest, largest first; of equal ones the lower index first.
std::vector<int64_t> largest(const Values& values, int64_t count) {
  std::vector<int64_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return values[static_cast<size_t>(a)] > values[static_cast<size_t>(b)];
  });
  order.resize(static_cast<size_t>(count));
  return order;
}

Values softmax(const Values& logits) {
  const double max = *std::max_element(logits.begin(), logits.end());
  Values out;
  double sum = 0;
  for (const double logit : logits) sum += out.emplace_back(std::exp(logit - max));
  for (double& value : out) value /= sum;
  return out;
}

Values scores_of(const Values& logits, const RouteOptions& options) {
  if (options.softmax_of_chosen) return logits;
  if (!options.sigmoid) return softmax(logits);
  Values out;
  for (const double logit : logits) out.push_back(1 / (1 + std::exp(-logit)));
  return out;
}

// Choice scores outside the best groups become -inf.
void keep_best_groups(Values& choice, const RouteOptions& options) {
  const auto size = static_cast<int64_t>(choice.size()) / options.num_groups;
  Values group_scores;
  for (int64_t g = 0; g < options.num_groups; ++g) {
    const Values group(choice.begin() + g * size, choice.begin() + (g + 1) * size);
    double score = 0;
    for (const int64_t i : largest(group, options.group_best)) score += group[static_cast<size_t>(i)];
    group_scores.push_back(score);
  }
  const std::vector<int64_t> kept = largest(group_scores, options.groups_kept);
  for (int64_t g = 0; g < options.num_groups; ++g)
    if (std::find(kept.begin(), kept.end(), g) == kept.end())
      std::fill(choice.begin() + g * size, choice.begin() + (g + 1) * size, -HUGE_VAL);
}

Values weights_of(const Values& chosen_scores, const RouteOptions& options) {
  Values weights = options.softmax_of_chosen ? softmax(chosen_scores) : chosen_scores;
  double norm = 1;
  if (options.renormalize) {
    double sum = 0;
    for (const double weight : weights) sum += std::pow(std::abs(weight), options.norm_p);
    norm = std::pow(sum, 1 / static_cast<double>(options.norm_p)) + options.norm_eps;
  }
  for (double& weight : weights) weight = weight / norm * options.scale;
  return weights;
}

}  // namespace

void RefKernels::do_route(TensorView ids, TensorView weights, ConstTensorView logits,
                          std::optional<ConstTensorView> correction, const RouteOptions& options) const {
  for_rows(logits.rows(), [&](int64_t t) {
    Values row;
    for (int64_t e = 0; e < logits.cols(); ++e) row.push_back(logits.at(t, e));
    const Values scores = scores_of(row, options);
    Values choice = scores;
    if (correction)
      for (int64_t e = 0; e < logits.cols(); ++e) choice[static_cast<size_t>(e)] += correction->at(e);
    for (double& value : choice)
      value = value > kLowest ? value : kLowest;  // a NaN or -inf can still be chosen
    if (options.groups_kept < options.num_groups) keep_best_groups(choice, options);
    const std::vector<int64_t> chosen = largest(choice, ids.cols());
    Values chosen_scores;
    for (const int64_t e : chosen) chosen_scores.push_back(scores[static_cast<size_t>(e)]);
    const Values out = weights_of(chosen_scores, options);
    for (int64_t j = 0; j < ids.cols(); ++j) {
      ids.row<int32_t>(t)[j] = static_cast<int32_t>(chosen[static_cast<size_t>(j)]);
      weights.set(t, j, out[static_cast<size_t>(j)]);
    }
  });
}

void RefKernels::do_sort_by_expert(TensorView expert_start, TensorView row_tokens, TensorView pair_rows,
                                   ConstTensorView ids) const {
  checks::index_values("sort_by_expert", "ids", ids, expert_start.cols() - 1);
  int32_t next = 0;
  for (int32_t expert = 0; expert + 1 < expert_start.cols(); ++expert) {
    expert_start.row<int32_t>(0)[expert] = next;
    for (int64_t t = 0; t < ids.dim(0); ++t) {
      for (int64_t j = 0; j < ids.dim(1); ++j) {
        if (ids.row<int32_t>(t)[j] != expert) continue;
        row_tokens.row<int32_t>(0)[next] = static_cast<int32_t>(t);
        pair_rows.row<int32_t>(t)[j] = next++;
      }
    }
  }
  expert_start.row<int32_t>(0)[expert_start.cols() - 1] = next;
}

void RefKernels::do_expert_linear(TensorView out, ConstTensorView x,
                                  std::span<const PackedWeight* const> experts, ConstTensorView expert_start,
                                  std::optional<ConstTensorView> bias) const {
  checks::expert_values(expert_start, x.rows());
  for (size_t e = 0; e < experts.size(); ++e) {
    const auto begin = static_cast<int64_t>(expert_start.row<int32_t>(0)[e]);
    const int64_t count = expert_start.row<int32_t>(0)[e + 1] - begin;
    if (count == 0) continue;
    std::optional<ConstTensorView> expert_bias;
    if (bias)
      expert_bias = ConstTensorView(bias->row_data(static_cast<int64_t>(e)), DType::kF32, {bias->cols()});
    do_linear(out.slice_rows(begin, count), x.slice_rows(begin, count), *experts[e], expert_bias);
  }
}

void RefKernels::do_combine_experts(TensorView out, ConstTensorView x, ConstTensorView weights,
                                    ConstTensorView pair_rows) const {
  checks::index_values("combine_experts", "pair_rows", pair_rows, x.rows());
  for_elements(out, [&](int64_t t, int64_t i) {
    double sum = 0;
    for (int64_t j = 0; j < weights.cols(); ++j)
      sum += weights.at(t, j) * x.at(pair_rows.row<int32_t>(t)[j], i);
    return sum;
  });
}

}  // namespace lmdeploy
