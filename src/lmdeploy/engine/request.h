// What goes into the engine and what comes out: token ids, no text.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/token_grammar.h"

namespace lmdeploy {

/// Per-request sampling. Order (docs/sampling.md): logits in f32 -> repetition penalty -> presence and
/// frequency -> logit bias -> grammar, bad-word and min_new_tokens masks -> temperature -> top-k -> top-p ->
/// min-p -> draw. Penalties, bias and masks act under greedy too.
struct SamplingParams {
  float temperature = 0;         // 0: greedy (arg-max, ties to the lowest id)
  int top_k = 0;                 // 0 or -1: off
  float top_p = 1;               // (0, 1]
  float min_p = 0;               // [0, 1]
  float repetition_penalty = 1;  // > 0; over prompt and generated ids, once per distinct id
  float presence_penalty = 0, frequency_penalty = 0;  // over generated ids
  std::vector<std::pair<int, float>> logit_bias;
  std::vector<std::vector<int>> bad_words;  // the last id of an item is banned when the ids before it match
  uint64_t seed = 0;  // draws depend on (seed, number of tokens drawn in the session) alone
};

/// Rows of the model's own logits or hidden states. kGeneration: row i predicts generated token i; where
/// nothing is generated, the row of the last of input_ids. kAll: a row for each of input_ids (the last one
/// predicts the first generated token), then one for each generated token but the last. The row that predicts
/// a stop id that is not part of the output is left out, unless it belongs to an input id.
enum class OutputRows { kNone, kGeneration, kAll };

/// What a request's owner does to the logits of its next token, before penalties, bias and masks. `tokens`:
/// history, prompt and what has been generated. `logits`: [vocab_size], to be changed, or replaced by as many
/// others. What it throws ends the request with those words. Called on the engine's thread, while all other
/// requests wait; it cannot use the engine that it runs in. Destroyed on any thread.
using LogitsProcessor = std::function<void(std::span<const int> tokens, std::vector<float>& logits)>;

struct Request {
  uint64_t session_id = 0;     // 0: a session of its own that ends with the request
  std::vector<int> input_ids;  // may be empty when the session has tokens already
  bool sequence_start = true;  // false: continue the session's history
  bool sequence_end = true;    // false: keep the session for later requests
  int64_t step = -1;  // >= 0: roll the session back to this many tokens first; more than it has: ignored
  SamplingParams sampling;
  int64_t max_new_tokens = -1;  // < 0: whatever fits; clamped to the space left; 0: only reads the prompt in
  int64_t min_new_tokens = 0;   // stop ids are masked before this many
  std::vector<int> stop_ids;    // end the request; not part of the output unless include_stop_id
  bool include_stop_id = false;
  /// What the generated ids must spell. Stop ids may come only where that is whole; where it is whole and
  /// nothing may follow, the request ends with kStop.
  std::shared_ptr<const TokenGrammar> grammar;
  /// Both > 0: kStop once the last `size` generated ids have come `threshold` times among the latest 1024
  /// (overlaps count), but not before min_new_tokens.
  int repetition_ngram_size = 0, repetition_ngram_threshold = 0;
  /// >= 0: that many alternatives a token, and the chosen one: log-softmax of the model's own logits, before
  /// penalties, temperature and filters.
  int num_logprobs = -1;
  /// The same of input_ids but the first, each given the ids before it.
  int num_prompt_logprobs = -1;
  OutputRows logits = OutputRows::kNone;
  OutputRows hidden_states = OutputRows::kNone;  // the output of the final norm
  /// The sum of -log p(id[i+1] | history, id[..i]) over the n - 1 pairs of input_ids.
  bool score_prompt = false;
  std::vector<LogitsProcessor> logits_processors;  // one after the other
};

/// Throws Error(kInvalidArgument) naming the field, what was found and what was expected. Checks all that
/// does not depend on a session.
void check_request(const Request& request, int64_t vocab_size);

enum class FinishReason { kNone, kStop, kLength, kAbort, kError };
std::string_view to_string(FinishReason reason);

/// Log probabilities of one generated token.
struct TokenLogprobs {
  float chosen = 0;
  std::vector<std::pair<int, float>> top;  // falling order
};

/// When a request came to each point; the clock's epoch: not yet.
struct RequestTimes {
  using Time = std::chrono::steady_clock::time_point;
  Time enqueued = {};     // submitted
  Time scheduled = {};    // first part of a step
  Time first_token = {};  // generated
  Time finished = {};     // its last output was made
};

/// What became known since the last one. Outputs that a reader has not fetched are merged.
struct RequestOutput {
  std::vector<int> token_ids;
  std::vector<TokenLogprobs> logprobs;         // one per token id, when asked for
  std::vector<TokenLogprobs> prompt_logprobs;  // of input_ids but the first, when asked for
  std::vector<float> logits;                   // rows of [head_size], when asked for
  std::vector<float> hidden_states;            // rows of [hidden_size], when asked for
  int64_t prompt_tokens = 0;                   // input_ids of this request
  int64_t cached_tokens = 0;                   // of those, taken from the prefix cache
  int64_t generated_tokens = 0;                // so far, in all
  int64_t session_tokens = 0;                  // tokens the session holds after this output
  RequestTimes times = {};
  double prompt_nll = 0;                        // score_prompt
  FinishReason finish = FinishReason::kNone;    // set in the last output only
  ErrorCode error_code = ErrorCode::kInternal;  // with kError
  std::string error_message;
};

/// The caller's end of a running request. Destroying it cancels the request: its blocks are free before the
/// next step ends. Thread-safe.
class RequestHandle {
 public:
  virtual ~RequestHandle() = default;
  /// Waits for something new; nothing after `timeout` or once the last output has been taken.
  virtual std::optional<RequestOutput> next(std::chrono::milliseconds timeout) = 0;
  /// The request ends with kAbort (at the latest one step later); what was generated stays in its session.
  virtual void cancel() = 0;
  /// `notify` is called from the engine thread whenever next() has something, and from here when it has
  /// something already. It must not block, call set_notify() or destroy the handle. The former one is not
  /// running any more when this returns; none is once the handle is destroyed.
  virtual void set_notify(std::function<void()> notify) = 0;
};

}  // namespace lmdeploy
