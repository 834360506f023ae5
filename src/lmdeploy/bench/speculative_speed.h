// What speculative decoding gains: `lmdeploy bench speculative`.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lmdeploy/bench/measure.h"
#include "lmdeploy/pipeline/pipeline.h"

namespace lmdeploy {

struct SpeculativeSpeedOptions {
  std::string model_path;
  SpeculativeOptions speculative = {
      .method = "prompt_lookup", .model = "", .local_path = "", .num_speculative_tokens = 7};
  int num_threads = 0;           // 0: all CPUs that this process may use
  int64_t max_new_tokens = 256;  // of each answer
  int rounds = 5;
};

/// Prompts of one kind, answered one after the other, with and without guesses in turn.
struct SpeculativeCase {
  std::string name;
  std::vector<double> plain, guessed;  // tokens a second of each round
  SpeculativeStats stats;

  /// Of each round: guessed to plain.
  Spread gain() const;
};

/// Throws Error as loading does, and kInternal where an answer differs.
std::vector<SpeculativeCase> measure_speculative(
    const SpeculativeSpeedOptions& options, const std::function<void(const SpeculativeCase&)>& measured = {});

std::string speculative_head();
std::string speculative_line(const SpeculativeCase& c);

}  // namespace lmdeploy
