// The reference back end, watching for choices of experts that rounding could turn over.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <set>
#include <vector>

#include "lmdeploy/kernels/ref/ref_kernels.h"

namespace lmdeploy::testing {

/// A share of the largest router logit by which those of a back end may depart from the reference's: what
/// the tests grant the logits of the model.
constexpr double kRouterTolerance = 2e-4;

/// A row is a near tie when the scores of the last expert (or group) chosen and of the first one left out
/// could change places. Of a logit that departs by d, exp(logit) and sigmoid(logit) depart by less than d
/// times themselves and the softmax, whose sum departs too, by less than 2 d: a difference of scores a and b
/// by less than 2 d (a + b). The sum of a group's scores is bounded in the same way.
class RouteRecorder : public RefKernels {
 public:
  explicit RouteRecorder(std::shared_ptr<ThreadPool> threads, double tolerance = kRouterTolerance)
      : RefKernels(threads), ref_(std::move(threads)), tolerance_(tolerance) {}

  /// The first row of all steps so far that is a near tie in some layer; `none` when there is none.
  int64_t first_near_tie(int64_t none) const { return ties_.empty() ? none : *ties_.begin(); }
  void forget() { ties_.clear(); }
  /// Of the rows to come.
  void set_tolerance(double tolerance) { tolerance_ = tolerance; }
  /// Whether the row was a near tie in some layer of some step.
  bool is_near_tie(int64_t row) const { return ties_.contains(row); }

 protected:
  void do_route(TensorView ids, TensorView weights, ConstTensorView logits,
                std::optional<ConstTensorView> correction, const RouteOptions& options) const override {
    ref_.route(ids, weights, logits, correction, options);
    for (int64_t row = 0; row < logits.rows(); ++row)
      if (row_is_near_tie(logits, row, correction, ids.cols(), options)) ties_.insert(row);
  }

 private:
  struct Score {
    double choice = 0;  // with the correction
    double raw = 0;     // without: what the logits can change
  };
  static bool better(const Score& a, const Score& b) { return a.choice > b.choice; }

  /// `scores` sorted, best first: whether number `kept` and the next could change places.
  static bool near_tie(const std::vector<Score>& scores, int64_t kept, double departure) {
    if (kept >= static_cast<int64_t>(scores.size())) return false;
    const Score &last = scores[static_cast<size_t>(kept - 1)], &next = scores[static_cast<size_t>(kept)];
    return last.choice - next.choice < 2 * departure * (std::abs(last.raw) + std::abs(next.raw));
  }

  static std::vector<Score> scores_of(ConstTensorView logits, int64_t row,
                                      const std::optional<ConstTensorView>& correction,
                                      const RouteOptions& options) {
    double sum = 0, largest = -HUGE_VAL;
    for (int64_t e = 0; e < logits.cols(); ++e) largest = std::max(largest, logits.at(row, e));
    for (int64_t e = 0; e < logits.cols(); ++e) sum += std::exp(logits.at(row, e) - largest);
    std::vector<Score> scores;
    for (int64_t e = 0; e < logits.cols(); ++e) {
      const double logit = logits.at(row, e);
      const double raw = options.sigmoid ? 1 / (1 + std::exp(-logit)) : std::exp(logit - largest) / sum;
      scores.push_back({raw + (correction ? correction->at(e) : 0), raw});
    }
    return scores;
  }

  // The scores of the groups that are kept; sets `tie` when that choice is a near tie.
  static std::vector<Score> keep_groups(const std::vector<Score>& scores, const RouteOptions& options,
                                        double departure, bool& tie) {
    const size_t size = scores.size() / static_cast<size_t>(options.num_groups);
    struct Group {
      Score score;
      std::vector<Score> members;
    };
    std::vector<Group> groups;
    for (size_t begin = 0; begin < scores.size(); begin += size) {
      Group group;
      group.members.assign(scores.begin() + static_cast<std::ptrdiff_t>(begin),
                           scores.begin() + static_cast<std::ptrdiff_t>(begin + size));
      std::ranges::sort(group.members, better);
      for (int64_t i = 0; i < options.group_best; ++i) {
        group.score.choice += group.members[static_cast<size_t>(i)].choice;
        group.score.raw += group.members[static_cast<size_t>(i)].raw;
      }
      groups.push_back(std::move(group));
    }
    std::ranges::sort(groups, [](const Group& a, const Group& b) { return better(a.score, b.score); });
    std::vector<Score> by_group, kept;
    for (const Group& group : groups) by_group.push_back(group.score);
    tie = tie || near_tie(by_group, options.groups_kept, departure);
    for (int64_t g = 0; g < options.groups_kept; ++g) {
      const std::vector<Score>& members = groups[static_cast<size_t>(g)].members;
      kept.insert(kept.end(), members.begin(), members.end());
    }
    return kept;
  }

  bool row_is_near_tie(ConstTensorView logits, int64_t row, const std::optional<ConstTensorView>& correction,
                       int64_t kept, const RouteOptions& options) const {
    double largest = 0;
    for (int64_t e = 0; e < logits.cols(); ++e) largest = std::max(largest, std::abs(logits.at(row, e)));
    const double departure = tolerance_ * largest;
    bool tie = false;
    std::vector<Score> scores =
        keep_groups(scores_of(logits, row, correction, options), options, departure, tie);
    std::ranges::sort(scores, better);
    return tie || near_tie(scores, kept, departure);
  }

  RefKernels ref_;
  double tolerance_;
  mutable std::set<int64_t> ties_;
};

}  // namespace lmdeploy::testing
