// A request while it runs: what was asked, what has come of it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lmdeploy/engine/channel.h"
#include "lmdeploy/engine/sampler.h"
#include "lmdeploy/engine/scheduler.h"
#include "lmdeploy/engine/sequence.h"
#include "lmdeploy/engine/speculator.h"
#include "lmdeploy/engine/step_logits.h"

namespace lmdeploy {

struct ActiveRequest {
  uint64_t id = 0;  // rises in order of arrival
  Request request;
  std::shared_ptr<Channel> channel;
  std::unique_ptr<Sequence> sequence;
  int64_t prompt_end = 0;     // tokens of the sequence before the first generated one
  int64_t max_length = 0;     // tokens of the sequence at which the request ends
  int64_t num_generated = 0;  // without a stop id that is not part of the output
  double prompt_nll = 0;
  bool first_step_done = false;
  RequestTimes times;
  GuessState guesses;
  std::string failure;  // why it cannot go on: its grammar, its processors, what the model gave
  ErrorCode failure_code = ErrorCode::kInternal;
  RequestOutput output;  // what this step has added

  bool host_draws = false;  // a device cannot draw its tokens

  bool generates() const { return max_length > prompt_end; }
  /// Whether the step after this one may begin before this one's token is known, if a device draws it.
  bool may_go_ahead() const {
    return !host_draws && failure.empty() && request.hidden_states == OutputRows::kNone;
  }
  /// What to draw the next token from; `row` of the step's logits is that of the last token. Valid until the
  /// next call.
  SampleInput sample_input(int64_t row, StepLogits& logits);
  /// Of a request whose next token is to be drawn; the longest guesses may lead to its last token but one.
  GuessTarget guess_target();
  /// Scores and hands out the rows of `entry` that belong to input ids. `first_row`: of the entry in
  /// `logits`.
  void read_prompt_rows(const StepEntry& entry, StepLogits& logits, int64_t first_row);
  /// Appends a drawn token; `row` is that it was drawn from. Returns why the request ends with it, or kNone.
  FinishReason accept(const SampleResult& drawn, StepLogits& logits, int64_t row);
  /// Fills in the totals and takes the step's output.
  RequestOutput take_output(FinishReason reason);

 private:
  SampleInput draw_input() const;
  void fill_allowed(int64_t vocab_size);
  bool completes_grammar(int token);
  FinishReason finish_after(int token);
  void run_processors(std::span<const float> row);
  void append_rows(StepLogits& logits, int64_t row, OutputRows wanted);
  void score(std::span<const float> row, int target);
  std::vector<float> row_buffer_, processed_;
  std::vector<Candidate> candidates_;
  std::unique_ptr<TokenMatcher> matcher_;  // of request.grammar, once a token is to be drawn
  std::vector<uint32_t> allowed_;
};

/// Whether the last `size` tokens have come at least `threshold` times among the latest 1024; overlapping
/// occurrences count, and so does the last one itself. False when either number is 0.
bool repeats(std::span<const int> tokens, int size, int threshold);

}  // namespace lmdeploy
