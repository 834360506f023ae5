// Speculative decoding as users name it.
#pragma once

#include <string>

#include "lmdeploy/pipeline/pipeline.h"

namespace lmdeploy {

/// Throws Error naming the field: kInvalidArgument for what cannot be, kUnsupported for methods of LMDeploy
/// that this version lacks.
SpeculativeConfig speculative_config(const SpeculativeOptions& options);

/// Throws Error(kInvalidArgument) with the first id that the two spell differently. nullptr: no tokenizer,
/// nothing to compare.
void check_same_vocabulary(const Tokenizer* tokenizer, const Tokenizer* draft_tokenizer,
                           const std::string& draft_path);

/// One line: how many guesses, how many of them right, what came of it.
std::string speculative_report(const SpeculativeStats& stats);

}  // namespace lmdeploy
