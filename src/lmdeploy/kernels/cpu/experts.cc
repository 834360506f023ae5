// The ops of mixture-of-experts layers on the CPU but expert_linear (linear.cc).
#include <algorithm>
#include <cmath>
#include <limits>

#include "lmdeploy/kernels/checks.h"
#include "lmdeploy/kernels/cpu/cpu_kernels.h"

namespace lmdeploy::cpu {
namespace {

/// Routes one token. Scores are as many as experts: the arithmetic is f64, as in the reference.
class Router {
 public:
  /// `memory`: doubles() of them.
  Router(int64_t experts, int64_t top_k, const RouteOptions& options, double* memory)
      : options_(options),
        experts_(experts),
        top_k_(top_k),
        scores_(memory),
        choice_(scores_ + experts),
        group_scores_(choice_ + experts),
        chosen_(group_scores_ + options.num_groups),
        best_(reinterpret_cast<int32_t*>(chosen_ + top_k)) {}
  static int64_t doubles(int64_t experts, int64_t top_k, const RouteOptions& options) {
    return 2 * experts + options.num_groups + top_k + experts;  // best_ has at most `experts` ids
  }

  void run(const float* logits, const float* correction, int32_t* ids, float* weights) {
    compute_scores(logits);
    for (int64_t e = 0; e < experts_; ++e) {
      const double score = scores_[e] + (correction == nullptr ? 0 : correction[e]);
      choice_[e] = score > kLowest ? score : kLowest;  // a NaN or -inf can still be chosen
    }
    if (options_.groups_kept < options_.num_groups) keep_best_groups();
    find_largest(choice_, experts_, ids, top_k_);
    write_weights(ids, weights);
  }

 private:
  static constexpr double kLowest = std::numeric_limits<double>::lowest();

  // Indices of the `count` largest, largest first; of equal ones the lower first.
  static void find_largest(const double* values, int64_t n, int32_t* ids, int64_t count) {
    int64_t found = 0;
    for (int64_t i = 0; i < n; ++i) {
      if (found == count && !(values[i] > values[ids[count - 1]])) continue;
      int64_t at = found < count ? found++ : count - 1;
      for (; at > 0 && values[i] > values[ids[at - 1]]; --at) ids[at] = ids[at - 1];
      ids[at] = static_cast<int32_t>(i);
    }
  }

  static void softmax(double* values, int64_t n) {
    const double max = *std::max_element(values, values + n);
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += values[i] = std::exp(values[i] - max);
    for (int64_t i = 0; i < n; ++i) values[i] /= sum;
  }

  void compute_scores(const float* logits) {
    std::copy_n(logits, experts_, scores_);
    if (options_.softmax_of_chosen) return;
    if (!options_.sigmoid) return softmax(scores_, experts_);
    for (int64_t e = 0; e < experts_; ++e) scores_[e] = 1 / (1 + std::exp(-scores_[e]));
  }

  // Choice scores outside the best groups become -inf.
  void keep_best_groups() {
    const int64_t size = experts_ / options_.num_groups;
    for (int64_t g = 0; g < options_.num_groups; ++g) {
      const double* group = choice_ + g * size;
      find_largest(group, size, best_, options_.group_best);
      group_scores_[g] = 0;
      for (int64_t i = 0; i < options_.group_best; ++i) group_scores_[g] += group[best_[i]];
    }
    find_largest(group_scores_, options_.num_groups, best_, options_.groups_kept);
    const int32_t* end = best_ + options_.groups_kept;
    for (int64_t g = 0; g < options_.num_groups; ++g)
      if (std::find<const int32_t*>(best_, end, g) == end) std::fill_n(choice_ + g * size, size, -HUGE_VAL);
  }

  void write_weights(const int32_t* ids, float* weights) {
    for (int64_t j = 0; j < top_k_; ++j) chosen_[j] = scores_[ids[j]];
    if (options_.softmax_of_chosen) softmax(chosen_, top_k_);
    double norm = 1;
    if (options_.renormalize) {
      const double p = options_.norm_p;
      double sum = 0;
      for (int64_t j = 0; j < top_k_; ++j) sum += std::pow(std::abs(chosen_[j]), p);
      norm = std::pow(sum, 1 / p) + options_.norm_eps;
    }
    for (int64_t j = 0; j < top_k_; ++j) weights[j] = static_cast<float>(chosen_[j] / norm * options_.scale);
  }

  const RouteOptions& options_;
  int64_t experts_;
  int64_t top_k_;
  double* scores_;        // [experts]
  double* choice_;        // [experts]
  double* group_scores_;  // [num_groups]
  double* chosen_;        // [top_k]: scores, then weights
  int32_t* best_;         // [experts]
};

}  // namespace

void CpuKernels::do_route(TensorView ids, TensorView weights, ConstTensorView logits,
                          std::optional<ConstTensorView> correction, const RouteOptions& options) const {
  const float* bias = correction ? correction->row<float>(0) : nullptr;
  const int64_t experts = logits.cols(), top_k = ids.cols();
  for_pieces(logits.rows(), 16, [&](int worker, int64_t begin, int64_t end) {
    double* memory =
        thread_scratch_[static_cast<size_t>(worker)].doubles(Router::doubles(experts, top_k, options));
    Router router(experts, top_k, options, memory);
    for (int64_t t = begin; t < end; ++t)
      router.run(logits.row<float>(t), bias, ids.row<int32_t>(t), weights.row<float>(t));
  });
}

// A counting sort: pairs are few, one thread does it.
void CpuKernels::do_sort_by_expert(TensorView expert_start, TensorView row_tokens, TensorView pair_rows,
                                   ConstTensorView ids) const {
  const int64_t experts = expert_start.cols() - 1;
  checks::index_values("sort_by_expert", "ids", ids, experts);
  auto* start = expert_start.row<int32_t>(0);
  std::fill_n(start, experts + 1, 0);
  for (int64_t t = 0; t < ids.rows(); ++t)
    for (int64_t j = 0; j < ids.cols(); ++j) ++start[ids.row<int32_t>(t)[j] + 1];
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

void CpuKernels::do_combine_experts(TensorView out, ConstTensorView x, ConstTensorView weights,
                                    ConstTensorView pair_rows) const {
  checks::index_values("combine_experts", "pair_rows", pair_rows, x.rows());
  const int64_t stride = x.row_stride_bytes() / static_cast<int64_t>(sizeof(float));
  for_rows(out.rows(), weights.cols() * out.cols(), [&](int64_t t) {
    ops_.weighted_sum(out.row<float>(t), out.cols(), x.row<float>(0), stride, pair_rows.row<int32_t>(t),
                      weights.row<float>(t), weights.cols());
  });
}

}  // namespace lmdeploy::cpu
