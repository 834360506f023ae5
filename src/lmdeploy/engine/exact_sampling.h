// For tests: sampling as the documentation states it, in double precision, and counts of draws against it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "lmdeploy/engine/logit_processing.h"

namespace lmdeploy::testing {

/// `few`, or what LMDEPLOY_TEST_DRAWS says (a multiple of 1000), for the long runs.
inline int64_t num_test_draws(int64_t few) {
  const char* given = std::getenv("LMDEPLOY_TEST_DRAWS");
  return given != nullptr ? std::atoll(given) : few;
}

/// The rules of SamplingParams, one after the other, as the documentation states them.
inline std::vector<double> exact_logits(const std::vector<float>& raw, const SampleInput& in) {
  const SamplingParams& p = *in.params;
  std::vector<double> logits(raw.begin(), raw.end());
  std::map<int, int> generated;
  for (size_t i = static_cast<size_t>(in.generated_begin); i < in.tokens.size(); ++i)
    ++generated[in.tokens[i]];
  for (const int id : std::set<int>(in.tokens.begin(), in.tokens.end())) {
    double& l = logits[static_cast<size_t>(id)];
    l = l < 0 ? l * p.repetition_penalty : l / p.repetition_penalty;
  }
  for (const auto& [id, count] : generated)
    logits[static_cast<size_t>(id)] -= p.presence_penalty + p.frequency_penalty * count;
  for (const auto& [id, bias] : p.logit_bias) logits[static_cast<size_t>(id)] += bias;
  for (const std::vector<int>& word : p.bad_words) {
    const size_t head = word.size() - 1;
    if (head <= in.tokens.size() &&
        std::equal(word.begin(), word.end() - 1, in.tokens.end() - static_cast<int64_t>(head)))
      logits[static_cast<size_t>(word.back())] = -std::numeric_limits<double>::infinity();
  }
  for (const int id : in.banned_ids)
    logits[static_cast<size_t>(id)] = -std::numeric_limits<double>::infinity();
  return logits;
}

inline std::vector<double> exact_probabilities(const std::vector<float>& raw, const SampleInput& in) {
  const SamplingParams& p = *in.params;
  const std::vector<double> logits = exact_logits(raw, in);
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  std::vector<double> out(logits.size(), 0);
  if (p.temperature == 0) {
    out[order[0]] = 1;
    return out;
  }
  if (p.top_k > 0 && order.size() > static_cast<size_t>(p.top_k)) order.resize(static_cast<size_t>(p.top_k));
  std::vector<double> weights;
  for (const size_t id : order) weights.push_back(std::exp((logits[id] - logits[order[0]]) / p.temperature));
  double total = std::accumulate(weights.begin(), weights.end(), 0.0), sum = 0;
  size_t kept = 0;
  while (kept < weights.size() && (kept == 0 || sum < p.top_p * total)) sum += weights[kept++];
  while (kept > 1 && weights[kept - 1] < p.min_p * weights[0]) --kept;
  total = std::accumulate(weights.begin(), weights.begin() + static_cast<int64_t>(kept), 0.0);
  for (size_t i = 0; i < kept; ++i) out[order[i]] = weights[i] / total;
  return out;
}

/// Pearson's statistic against its 1 - 1e-6 quantile (Wilson-Hilferty: the cube root of chi2/df is nearly
/// normal). Cells with fewer than 5 expected draws are taken together.
inline void expect_distribution(const std::vector<int64_t>& counts, const std::vector<double>& probabilities,
                                int64_t num_draws) {
  double chi2 = 0, rare_want = 0, rare_got = 0;
  int cells = 0;
  const auto add = [&](double got, double want) {
    if (want <= 0) return;
    chi2 += (got - want) * (got - want) / want;
    ++cells;
  };
  for (size_t id = 0; id < counts.size(); ++id) {
    const double want = probabilities[id] * static_cast<double>(num_draws);
    const auto got = static_cast<double>(counts[id]);
    EXPECT_TRUE(probabilities[id] > 0 || counts[id] == 0) << "token " << id << " is filtered out";
    if (want >= 5) {
      add(got, want);
    } else {
      rare_want += want;
      rare_got += got;
    }
  }
  add(rare_got, rare_want);
  const double df = cells - 1;
  if (df < 1) return;
  const double spread = 2 / (9 * df);
  const double quantile = df * std::pow(1 - spread + 4.7534 * std::sqrt(spread), 3);
  EXPECT_LT(chi2, quantile) << cells << " cells";
}

}  // namespace lmdeploy::testing
