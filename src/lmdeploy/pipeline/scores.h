// Scores of given ids: which request finds one, and what its output says.
#pragma once

#include <vector>

#include "lmdeploy/engine/request.h"
#include "lmdeploy/models/decoder_spec.h"

namespace lmdeploy {

enum class ScoreKind {
  kPerplexity,  // mean negative log-likelihood of the ids but the first
  kReward       // what a reward model says after the last id
};

/// Throws Error where the model cannot give the score, or a list has too few ids or one outside the
/// vocabulary.
void check_scored_ids(ScoreKind kind, const std::vector<std::vector<int>>& input_ids,
                      const DecoderSpec& spec);
Request score_request(ScoreKind kind, std::vector<int> ids);
/// Of the request's last output. Throws why there is none; `index`: of its ids among the lists.
double score_of(ScoreKind kind, const RequestOutput& last, size_t index);

}  // namespace lmdeploy
