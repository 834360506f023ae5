// The one C++ API that Python, the command line and the server use: text in, text out.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "lmdeploy/core/json.h"
#include "lmdeploy/engine/engine.h"
#include "lmdeploy/hub/hub.h"
#include "lmdeploy/text/chat/chat_template.h"
#include "lmdeploy/text/grammar/response_format.h"
#include "lmdeploy/text/tokenizer.h"

namespace lmdeploy {

/// How tokens are guessed (docs/speculative_decoding.md); names as LMDeploy's SpeculativeConfig.
struct SpeculativeOptions {
  std::string method;      // prompt_lookup, draft
  std::string model;       // of draft: a path, or with PipelineConfig::hub the name of a model there
  std::string local_path;  // where its files are, when that has been found out
  int64_t num_speculative_tokens = 1;
};

/// Everything a pipeline is opened with. Names and meanings as LMDeploy's engine configs
/// (docs/configuration.md).
struct PipelineConfig {
  std::string model_path;      // a folder or file, or with `hub` the name of a model there
  std::string local_path;      // where its files are, when that has been found out; empty: as model_path says
  std::string model_format;    // what the checkpoint must be; empty: whatever it is
  std::string dtype = "auto";  // auto, float16, bfloat16, float32
  std::string device_type = "auto";  // auto, cpu, cuda
  /// What is unset comes from a converted workspace's config, else from default_engine_options().
  std::optional<int64_t> session_len;  // 0: the model's
  std::optional<int64_t> max_batch_size;
  std::optional<double>
      cache_max_entry_count;  // none: default; (0, 1): share of available memory; >= 1: number of blocks
  std::optional<int64_t> cache_block_seq_len;
  std::optional<bool> enable_prefix_caching;
  std::optional<int> quant_policy;
  std::optional<double> rope_scaling_factor;  // >= 1: dynamic NTK with this factor
  std::optional<bool> use_logn_attn;          // unset: as the checkpoint says
  std::optional<int64_t> max_prefill_token_num;
  std::optional<int64_t> num_tokens_per_iter;
  std::optional<int64_t> max_prefill_iters;
  JsonObject hf_overrides;   // merged over config.json
  int tp = 1;                // GPUs that share the model
  std::string communicator;  // of these: cuda-ipc, also called native, nccl or host; empty: cuda-ipc
  int num_threads = 0;       // 0: all CPUs this process may use
  /// CpuOptions::rounded_activations; unset: rounds_activations().
  std::optional<bool> rounded_activations;
  std::optional<SpeculativeOptions> speculative;
  /// A request's ids depend on nothing else that runs: on the CPU always so; on CUDA products are slower.
  bool deterministic = false;
  std::optional<ChatTemplateConfig> chat_template;
  std::function<void(int64_t done, int64_t total)> progress;  // bytes of the checkpoint
  std::optional<HubConfig> hub;                               // unset: nothing is downloaded
  std::string revision, download_dir;                         // as ModelRequest
  HubHooks hub_hooks;
};

/// Fields of LMDeploy's GenerationConfig that the native side needs; Python and HTTP fill it. Unset optionals
/// mean "not given".
struct GenerationConfig {
  int n = 1;
  std::optional<int64_t> max_new_tokens = 512;  // unset: what fits; 0: the prompt is only read
  bool do_sample = false;                       // false: greedy, whatever top_k ... say
  float top_p = 1, min_p = 0, temperature = 0.8f;
  int top_k = 50;
  float repetition_penalty = 1, presence_penalty = 0, frequency_penalty = 0;
  bool ignore_eos = false;  // nothing but the length ends the answer: no end ids, no stop ids, no stop words
  std::optional<uint64_t> random_seed;  // unset: a fresh one for each request
  /// Added to the template's. Found in the text, whatever the token borders; the text of one control token
  /// ("<|im_end|>") ends the answer at that token.
  std::vector<std::string> stop_words;
  std::vector<std::string> bad_words;
  std::vector<int> stop_token_ids, bad_token_ids;
  int64_t min_new_tokens = 0;
  bool skip_special_tokens = true;
  bool spaces_between_special_tokens = true;
  bool include_stop_str_in_output = false;
  std::optional<int> logprobs;         // top-n per token
  std::optional<int> prompt_logprobs;  // the same of the prompt's tokens
  OutputRows output_logits = OutputRows::kNone, output_last_hidden_state = OutputRows::kNone;
  bool return_ppl = false;                         // Response::ppl
  std::vector<LogitsProcessor> logits_processors;  // see there
  int repetition_ngram_size = 0, repetition_ngram_threshold = 0;
  std::vector<std::pair<int, float>> logit_bias;
  /// What the answer's text must be; compiled on the thread that starts the prompt
  /// (docs/structured_output.md).
  ResponseFormat response_format;

  /// Throws Error(kInvalidArgument) naming the field, its value and the allowed range.
  void validate() const;
  /// The config of choice i of n: n is 1, and a given random_seed differs from choice to choice (choice 0
  /// keeps it).
  GenerationConfig choice(int i) const;
};

/// A prompt: text (goes through the chat template unless do_preprocess is off), messages (an array of
/// role/content objects), or ids as they are.
using Prompt = std::variant<std::string, Json, std::vector<int>>;

/// After a stop word in the text, token_ids (and logprobs, logits, hidden states, generate_token_len) still
/// hold the tokens that spell it, up to the one that completed it; `text` ends before it. A stop id is in
/// neither, unless include_stop_str_in_output.
struct Response {
  std::string text;
  int64_t generate_token_len = 0, input_token_len = 0;
  FinishReason finish_reason = FinishReason::kNone;
  std::vector<int> token_ids;
  std::vector<std::vector<std::pair<int, float>>>
      logprobs;                                // per token: id -> log probability, the chosen one included
  std::vector<TokenLogprobs> prompt_logprobs;  // of the prompt's tokens but the first
  std::vector<float> logits;                   // rows of [vocab_size]
  std::vector<float> last_hidden_state;        // rows of [hidden_size]
  std::optional<double> ppl;                   // as get_ppl() of the prompt, in the last piece
  int64_t index = 0;                           // which prompt
  int64_t cached_tokens = 0;
  RequestTimes times = {};
  std::optional<ErrorCode> error_code;
  std::string error_message;
};

struct RunOptions {
  bool do_preprocess = true;  // apply the chat template to text prompts
  bool add_generation_prompt = true;
  bool continue_final_message = false;  // the prompt ends inside the last message; excludes the former
  JsonObject template_extra;            // more variables for the template
  Json tools;
};

/// A prompt as the model gets it.
struct PromptPreview {
  std::string text;  // after the chat template; of a prompt of ids: their text, control tokens included
  std::vector<int> token_ids;
};

/// One running prompt. Destroying it cancels the request. One reader at a time.
class ResponseStream {
 public:
  virtual ~ResponseStream() = default;
  /// The next piece: text and token_ids hold only what is new, lengths are totals; the last one has
  /// finish_reason set (its text may be empty). Nothing after `timeout`, or when finished() already.
  virtual std::optional<Response> next(std::chrono::milliseconds timeout) = 0;
  virtual bool finished() const = 0;
  /// The rest ends with finish_reason kAbort.
  virtual void cancel() = 0;
  /// As RequestHandle::set_notify.
  virtual void set_notify(std::function<void()> notify) = 0;
};

/// A conversation whose keys and values stay in the engine between turns.
struct ChatSession {
  uint64_t session_id = 0;
  int64_t step = 0;                                          // tokens that the session holds
  std::vector<std::pair<std::string, std::string>> history;  // (prompt, answer)
  std::string system;          // opens the conversation as a system message; empty: the template's own
  std::vector<int> token_ids;  // [step]: what the engine holds for it
};

struct LoadedModel;

/// Thread-safe: any number of threads may run prompts at once.
class Pipeline {
 public:
  /// Loads the model. Throws Error with the path and what to do.
  explicit Pipeline(const PipelineConfig& config);
  /// Over a model that the caller has loaded or made (loaded_model.h).
  explicit Pipeline(LoadedModel loaded);
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  /// Starts one prompt; gen_config.n must be 1 (see GenerationConfig::choice). A prompt that does not fit
  /// gives a stream whose only piece has empty text, finish_reason kLength and the error set. Throws Error
  /// for a malformed prompt or config, or after close().
  std::unique_ptr<ResponseStream> submit(const Prompt& prompt, const GenerationConfig& gen_config,
                                         const RunOptions& options = {});
  /// Runs all prompts together; result i belongs to prompt i. `gen_configs`: one for all or one per prompt.
  /// All prompts and configs are checked before the first one starts.
  /// With n > 1 a prompt's n results stand one after another (index is the prompt's). `poll` is called now
  /// and then from the calling thread with the number of prompts done; when it throws, everything running is
  /// cancelled.
  std::vector<Response> infer(const std::vector<Prompt>& prompts,
                              const std::vector<GenerationConfig>& gen_configs,
                              const RunOptions& options = {},
                              const std::function<void(size_t done)>& poll = {});

  ChatSession new_session();
  /// One turn; the session is updated when the stream has been read to its end (or cancelled: what was
  /// generated stays). `session` must outlive the stream. The whole conversation goes through the template
  /// each time; only what the session does not hold yet is computed. Without do_preprocess the prompt's text
  /// continues the session as it is.
  std::unique_ptr<ResponseStream> chat(ChatSession& session, const std::string& prompt,
                                       const GenerationConfig& gen_config, const RunOptions& options = {});
  void end_session(const ChatSession& session);

  /// Mean negative log-likelihood per token (nats) of each id list; every list needs at least two ids.
  std::vector<double> get_ppl(const std::vector<std::vector<int>>& input_ids);
  /// What a reward model says of each id list, after its last id. Throws Error(kUnsupported) for others.
  std::vector<double> get_reward_score(const std::vector<std::vector<int>>& input_ids);

  /// For requests to engine(): what submit() would ask of their tokens; nullptr without a response_format.
  std::shared_ptr<const TokenGrammar> grammar(const GenerationConfig& gen_config) const;

  /// The prompt text after the chat template.
  std::string render(const Prompt& prompt, const RunOptions& options = {}) const;
  /// What submit() would send to the model. Throws as it does.
  PromptPreview preview(const Prompt& prompt, const RunOptions& options = {}) const;
  /// What chat() would send: the whole conversation, also what the session holds already.
  PromptPreview preview(const ChatSession& session, const std::string& prompt,
                        const RunOptions& options = {}) const;

  Engine& engine();
  /// As Engine::on_own_thread(); false after close().
  bool on_engine_thread() const;
  /// nullptr for a checkpoint without tokenizer: then prompts must be ids and text stays empty.
  std::shared_ptr<const Tokenizer> tokenizer() const;
  std::shared_ptr<const ChatTemplate> chat_template() const;
  const PipelineConfig& config() const;
  const DecoderSpec& spec() const;
  int64_t session_len() const;
  /// Ids that end a turn: tokenizer, generation_config.json, config.json.
  const std::vector<int>& eos_ids() const;

  /// Cancels what runs, frees the engine and the weights. A second call does nothing, as does end_session();
  /// calls that need the engine then throw Error(kClosed). What describes the model stays readable.
  void close();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lmdeploy
