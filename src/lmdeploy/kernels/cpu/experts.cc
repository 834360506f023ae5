// The ops of mixture-of-experts layers on the CPU.
#include <algorithm>
#include <cmath>
#include <vector>

#include "lmdeploy/kernels/checks.h"
#include "lmdeploy/kernels/cpu/cpu_kernels.h"

namespace lmdeploy::cpu {
namespace {

/// Routes one token. Scores are as many as experts: the arithmetic is f64, as in the reference.
class Router {
 public:
  Router(int64_t experts, const RouteOptions& options)
      : options_(options), scores_(static_cast<size_t>(experts)), choice_(scores_.size()) {}

  void run(const float* logits, const float* correction, int32_t* ids, float* weights, int64_t top_k) {
    compute_scores(logits);
    for (size_t e = 0; e < scores_.size(); ++e)
      choice_[e] = scores_[e] + (correction == nullptr ? 0 : correction[e]);
    if (options_.groups_kept < options_.num_groups) keep_best_groups();
    for (int64_t j = 0; j < top_k; ++j) ids[j] = static_cast<int32_t>(take_best(choice_));
    write_weights(ids, weights, top_k);
  }

 private:
  // Index of the largest, which becomes -inf; the lowest of equals.
  static size_t take_best(std::vector<double>& values) {
    const auto best = std::max_element(values.begin(), values.end());
    *best = -HUGE_VAL;
    return static_cast<size_t>(best - values.begin());
  }

  void compute_scores(const float* logits) {
    const size_t n = scores_.size();
    if (options_.softmax_of_chosen) return std::copy(logits, logits + n, scores_.begin()), void();
    if (options_.sigmoid) {
      for (size_t e = 0; e < n; ++e) scores_[e] = 1 / (1 + std::exp(-static_cast<double>(logits[e])));
      return;
    }
    const double max = *std::max_element(logits, logits + n);
    double sum = 0;
    for (size_t e = 0; e < n; ++e) sum += scores_[e] = std::exp(logits[e] - max);
    for (double& score : scores_) score /= sum;
  }

  void keep_best_groups() {
    const size_t size = choice_.size() / static_cast<size_t>(options_.num_groups);
    group_scores_.clear();
    for (auto group = choice_.begin(); group != choice_.end(); group += static_cast<std::ptrdiff_t>(size)) {
      group_.assign(group, group + static_cast<std::ptrdiff_t>(size));
      double score = 0;
      for (int64_t i = 0; i < options_.group_best; ++i) {
        const double best = *std::max_element(group_.begin(), group_.end());
        take_best(group_);
        score += best;
      }
      group_scores_.push_back(score);
    }
    for (int64_t i = 0; i < options_.groups_kept; ++i) take_best(group_scores_);
    for (size_t e = 0; e < choice_.size(); ++e)
      if (group_scores_[e / size] != -HUGE_VAL) choice_[e] = -HUGE_VAL;
  }

  void write_weights(const int32_t* ids, float* weights, int64_t top_k) {
    double norm = 1, sum = 0;
    const double max = scores_[static_cast<size_t>(ids[0])];
    const auto score = [&](int64_t j) {
      const double s = scores_[static_cast<size_t>(ids[j])];
      return options_.softmax_of_chosen ? std::exp(s - max) : s;
    };
    if (options_.softmax_of_chosen)
      for (int64_t j = 0; j < top_k; ++j) norm = j == 0 ? score(j) : norm + score(j);
    if (options_.renormalize) {
      for (int64_t j = 0; j < top_k; ++j) sum += std::pow(std::abs(score(j) / norm), options_.norm_p);
      norm *= std::pow(sum, 1 / static_cast<double>(options_.norm_p)) + options_.norm_eps;
    }
    for (int64_t j = 0; j < top_k; ++j) weights[j] = static_cast<float>(score(j) / norm * options_.scale);
  }

  const RouteOptions& options_;
  std::vector<double> scores_, choice_, group_, group_scores_;
};

}  // namespace

void CpuKernels::do_route(TensorView ids, TensorView weights, ConstTensorView logits,
                          std::optional<ConstTensorView> correction, const RouteOptions& options) const {
  const float* bias = correction ? correction->row<float>(0) : nullptr;
  for_pieces(logits.rows(), 16, [&](int, int64_t begin, int64_t end) {
    Router router(logits.cols(), options);
    for (int64_t t = begin; t < end; ++t)
      router.run(logits.row<float>(t), bias, ids.row<int32_t>(t), weights.row<float>(t), ids.cols());
  });
}

// A counting sort: pairs are few, one thread does it.
void CpuKernels::do_sort_by_expert(TensorView expert_start, TensorView row_tokens, TensorView pair_rows,
                                   ConstTensorView ids) const {
  const int64_t experts = expert_start.cols() - 1;
  auto* start = expert_start.row<int32_t>(0);
  std::fill_n(start, experts + 1, 0);
  for (int64_t t = 0; t < ids.rows(); ++t) {
    const ConstTensorView row(ids.row_data(t), DType::kI32, {ids.cols()});
    checks::index_values("sort_by_expert", "ids", row, experts);
    for (int64_t j = 0; j < ids.cols(); ++j) ++start[ids.row<int32_t>(t)[j] + 1];
  }
  for (int64_t e = 0; e < experts; ++e) start[e + 1] += start[e];
  for (int64_t t = 0; t < ids.rows(); ++t) {
    for (int64_t j = 0; j < ids.cols(); ++j) {
      const int32_t row = start[ids.row<int32_t>(t)[j]]++;
      row_tokens.row<int32_t>(0)[row] = static_cast<int32_t>(t);
      pair_rows.row<int32_t>(t)[j] = row;
    }
  }
  for (int64_t e = experts; e > 0; --e) start[e] = start[e - 1];  // each has moved to the next one's start
  start[0] = 0;
}

void CpuKernels::do_expert_linear(TensorView out, ConstTensorView x,
                                  std::span<const PackedWeight* const> experts, ConstTensorView expert_start,
                                  std::optional<ConstTensorView> bias) const {
  checks::expert_values(expert_start, x.rows());
  for (size_t e = 0; e < experts.size(); ++e) {
    const int64_t begin = expert_start.row<int32_t>(0)[e];
    const int64_t count = expert_start.row<int32_t>(0)[e + 1] - begin;
    if (count == 0) continue;
    std::optional<ConstTensorView> expert_bias;
    if (bias)
      expert_bias = ConstTensorView(bias->row_data(static_cast<int64_t>(e)), DType::kF32, {bias->cols()});
    do_linear(out.slice_rows(begin, count), x.slice_rows(begin, count), *experts[e], expert_bias);
  }
}

void CpuKernels::do_combine_experts(TensorView out, ConstTensorView x, ConstTensorView weights,
                                    ConstTensorView pair_rows) const {
  for (int64_t t = 0; t < pair_rows.rows(); ++t) {
    const ConstTensorView row(pair_rows.row_data(t), DType::kI32, {pair_rows.cols()});
    checks::index_values("combine_experts", "pair_rows", row, x.rows());
  }
  for_rows(out.rows(), weights.cols() * out.cols(), [&](int64_t t) {
    auto* sum = out.row<float>(t);
    std::fill_n(sum, out.cols(), 0.0f);
    for (int64_t j = 0; j < weights.cols(); ++j) {
      const float weight = weights.row<float>(t)[j];
      const auto* row = x.row<float>(pair_rows.row<int32_t>(t)[j]);
      for (int64_t i = 0; i < out.cols(); ++i) sum[i] += weight * row[i];
    }
  });
}

}  // namespace lmdeploy::cpu
