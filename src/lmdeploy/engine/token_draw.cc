// A token's weight is exp((logit - max) / temperature).
#include "lmdeploy/engine/token_draw.h"

#include <algorithm>
#include <numeric>

#include "lmdeploy/engine/softmax.h"

namespace lmdeploy {
namespace {

struct Scale {
  float max;
  float temperature;
  float weight(float logit) const { return exp_nonpositive((logit - max) / temperature); }
};

double sum_of(std::span<const float> weights) { return std::accumulate(weights.begin(), weights.end(), 0.0); }

// The first index at which the running sum exceeds `target`, which is below the sum of all; where rounding
// leaves the sum short, the last one with a weight.
template <typename T>
size_t find_target(std::span<const T> weights, double& target) {
  size_t last = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] > 0) last = i;
    if (static_cast<double>(weights[i]) > target) break;
    target -= static_cast<double>(weights[i]);
  }
  return last;
}

// Length of the shortest head of `weights` (falling) with at least `share` of `total`; 0 when all of it has
// less.
size_t head_with_share(std::span<const float> weights, double share, double total) {
  double sum = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    sum += static_cast<double>(weights[i]);
    if (sum >= share * total) return i + 1;
  }
  return 0;
}

void weigh_candidates(const Scale& scale, DrawScratch& scratch) {
  scratch.weights.clear();
  for (const Candidate& candidate : scratch.candidates)
    scratch.weights.push_back(scale.weight(candidate.logit));
}

void select_top_k(std::span<const float> logits, const Scale& scale, const SamplingParams& params,
                  DrawScratch& scratch) {
  select_top(logits, params.top_k, scratch.candidates);
  weigh_candidates(scale, scratch);
  if (params.top_p >= 1) return;
  const size_t head =
      head_with_share(scratch.weights, static_cast<double>(params.top_p), sum_of(scratch.weights));
  if (head > 0) scratch.weights.resize(head);
}

// Usually few tokens hold the share; only a flat distribution gets to sort much of the vocabulary.
void select_top_p(std::span<const float> logits, const Scale& scale, const SamplingParams& params,
                  DrawScratch& scratch) {
  const double total = sum_of_weights(logits, scale.max, scale.temperature);
  const auto vocab_size = static_cast<int64_t>(logits.size());
  for (int64_t count = 64;; count *= 8) {
    select_top(logits, count, scratch.candidates);
    weigh_candidates(scale, scratch);
    const size_t head = head_with_share(scratch.weights, static_cast<double>(params.top_p), total);
    if (head > 0) scratch.weights.resize(head);
    if (head > 0 || count >= vocab_size) return;
  }
}

// Finds the block of tokens first, so that the walk from token to token is short.
int draw_from_all(std::span<const float> logits, const Scale& scale, const SamplingParams& params,
                  double uniform, DrawScratch& scratch) {
  constexpr size_t kBlock = 256;
  scratch.weights.resize(logits.size());
  weigh(logits, scale.max, scale.temperature, scratch.weights);
  if (params.min_p > 0)
    for (float& weight : scratch.weights) weight = weight >= params.min_p ? weight : 0;
  const std::span<const float> weights = scratch.weights;
  scratch.block_sums.clear();
  for (size_t begin = 0; begin < weights.size(); begin += kBlock)
    scratch.block_sums.push_back(sum_of(weights.subspan(begin, std::min(kBlock, weights.size() - begin))));
  double target = uniform * std::accumulate(scratch.block_sums.begin(), scratch.block_sums.end(), 0.0);
  const size_t begin = kBlock * find_target(std::span<const double>(scratch.block_sums), target);
  const auto block = weights.subspan(begin, std::min(kBlock, weights.size() - begin));
  return static_cast<int>(begin + find_target(block, target));
}

int draw_from_candidates(const SamplingParams& params, double uniform, DrawScratch& scratch) {
  const float threshold = params.min_p * scratch.weights[0];
  std::erase_if(scratch.weights, [&](float weight) { return weight < threshold; });  // the tail: they fall
  double target = uniform * sum_of(scratch.weights);
  return scratch.candidates[find_target(std::span<const float>(scratch.weights), target)].id;
}

}  // namespace

int draw_token(std::span<const float> logits, float max, const SamplingParams& params, double uniform,
               DrawScratch& scratch) {
  if (params.temperature == 0 || params.top_k == 1)
    return static_cast<int>(std::ranges::find(logits, max) - logits.begin());
  const Scale scale = {max, params.temperature};
  if (params.top_k <= 0 && params.top_p >= 1) return draw_from_all(logits, scale, params, uniform, scratch);
  if (params.top_k > 0) {
    select_top_k(logits, scale, params, scratch);
  } else {
    select_top_p(logits, scale, params, scratch);
  }
  return draw_from_candidates(params, uniform, scratch);
}

}  // namespace lmdeploy
