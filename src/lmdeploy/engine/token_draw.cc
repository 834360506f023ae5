// Weights are exp((logit - max) / temperature): the best token weighs 1, and no sum can overflow.
#include "lmdeploy/engine/token_draw.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lmdeploy/core/random.h"

namespace lmdeploy {
namespace {

struct Scale {
  float max;
  float temperature;
  double weight(float logit) const { return std::exp((logit - max) / temperature); }
};

// The first index at which the running sum exceeds `uniform` (in [0, 1)) times the total.
size_t pick(std::span<const double> weights, double uniform) {
  const double target = uniform * std::accumulate(weights.begin(), weights.end(), 0.0);
  double sum = 0;
  size_t last = 0;  // with a weight: the fallback where rounding leaves the sum short
  for (size_t i = 0; i < weights.size(); ++i) {
    sum += weights[i];
    if (sum > target) return i;
    if (weights[i] > 0) last = i;
  }
  return last;
}

// Length of the shortest head of `weights` (falling) with at least `share` of `total`; 0 when all of it has
// less.
size_t head_with_share(std::span<const double> weights, double share, double total) {
  double sum = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    sum += weights[i];
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
  const double total = std::accumulate(scratch.weights.begin(), scratch.weights.end(), 0.0);
  const size_t head = head_with_share(scratch.weights, static_cast<double>(params.top_p), total);
  if (head > 0) scratch.weights.resize(head);
}

// Usually few tokens hold the share; only a flat distribution gets to sort much of the vocabulary.
void select_top_p(std::span<const float> logits, const Scale& scale, const SamplingParams& params,
                  DrawScratch& scratch) {
  double total = 0;
  for (const float logit : logits) total += scale.weight(logit);
  const auto vocab_size = static_cast<int64_t>(logits.size());
  for (int64_t count = 64;; count *= 8) {
    select_top(logits, count, scratch.candidates);
    weigh_candidates(scale, scratch);
    const size_t head = head_with_share(scratch.weights, static_cast<double>(params.top_p), total);
    if (head > 0) scratch.weights.resize(head);
    if (head > 0 || count >= vocab_size) return;
  }
}

// weights[i] belongs to token i here.
int draw_from_all(std::span<const float> logits, const Scale& scale, const SamplingParams& params,
                  double uniform, DrawScratch& scratch) {
  scratch.weights.resize(logits.size());
  const auto threshold = static_cast<double>(params.min_p);
  for (size_t id = 0; id < logits.size(); ++id) {
    const double weight = scale.weight(logits[id]);
    scratch.weights[id] = weight >= threshold ? weight : 0;
  }
  return static_cast<int>(pick(scratch.weights, uniform));
}

}  // namespace

int draw_token(std::span<const float> logits, float max, const SamplingParams& params, uint64_t draw,
               DrawScratch& scratch) {
  if (params.temperature == 0 || params.top_k == 1) return arg_max(logits);
  const Scale scale = {max, params.temperature};
  const double uniform = random_uniform(params.seed, draw);
  if (params.top_k <= 0 && params.top_p >= 1) return draw_from_all(logits, scale, params, uniform, scratch);
  if (params.top_k > 0) {
    select_top_k(logits, scale, params, scratch);
  } else {
    select_top_p(logits, scale, params, scratch);
  }
  const double threshold = static_cast<double>(params.min_p) * scratch.weights[0];
  std::erase_if(scratch.weights, [&](double weight) { return weight < threshold; });  // the tail: they fall
  return scratch.candidates[pick(scratch.weights, uniform)].id;
}

}  // namespace lmdeploy
