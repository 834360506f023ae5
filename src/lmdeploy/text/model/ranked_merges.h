// BPE vocabularies without a list of merges: any two neighbours that spell a token join, best token first.
// SentencePiece (by score) and tiktoken (by rank) are of this kind.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "lmdeploy/text/model/bpe_model.h"

namespace lmdeploy {

/// Of a token that is neither made by merges nor takes part in them.
inline constexpr uint32_t kNoRank = std::numeric_limits<uint32_t>::max();

/// The model for a vocabulary and the rank of each id (lower joins first; of equal ranks the leftmost).
/// `ranks` has num_ids() entries. Sets options.first_virtual_id: characters that only occur inside tokens
/// get ids from there on.
std::unique_ptr<BpeModel> make_ranked_bpe(Vocabulary vocabulary, std::vector<uint32_t> ranks,
                                          BpeOptions options);

/// Ranks of scores: equal scores have equal ranks, the highest score the lowest. Throws Error(kInvalidData),
/// beginning with `where`, when one is not a number.
std::vector<uint32_t> rank_scores(const std::vector<double>& scores, const std::string& where);

}  // namespace lmdeploy
