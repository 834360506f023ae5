// From a checked request to running answers: what every generating route does.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lmdeploy/serve/answers.h"
#include "lmdeploy/serve/service.h"

namespace lmdeploy {

/// A request's place among those that run, and its id. Given back with the last copy, or by give_back() of
/// any.
class RunningRequest {
 public:
  RunningRequest(Admission::Place place, RequestRegistry::Entry entry)
      : id_(entry.id()),
        held_(std::make_shared<std::optional<Held>>(Held{std::move(place), std::move(entry)})) {}

  int64_t id() const { return id_; }
  void give_back() const { held_->reset(); }

 private:
  struct Held {
    Admission::Place place;
    RequestRegistry::Entry entry;
  };
  int64_t id_;
  std::shared_ptr<std::optional<Held>> held_;
};

/// Everything that keeps one request running.
class Generation {
 public:
  Generation(RunningRequest request, std::shared_ptr<Pipeline> pipeline, std::unique_ptr<Answers> answers)
      : request_(std::move(request)), pipeline_(std::move(pipeline)), answers_(std::move(answers)) {}

  Answers& answers() { return *answers_; }
  const Answers& answers() const { return *answers_; }
  const Pipeline& pipeline() const { return *pipeline_; }
  int64_t session_id() const { return request_.id(); }
  /// Prompt tokens once for each prompt (its answers share them), generated ones of all answers.
  JsonObject usage(size_t answers_per_prompt = 1) const;

 private:
  RunningRequest request_;
  std::shared_ptr<Pipeline> pipeline_;
  std::unique_ptr<Answers> answers_;
};

struct GenerationRequest {
  std::vector<std::vector<int>> prompts;  // each gives gen_config.n answers, which stand side by side
  GenerationConfig gen_config;
  std::optional<OutputParserOptions> parser;
  bool one_call = false;  // an answer's further tool calls are dropped
  int64_t session_id = -1;
  std::string user;                       // whose quota it counts on
  std::string prompt_field = "messages";  // what the client calls the prompt
  /// Paths in response_format's schema that errors begin with, and the client's names for them; the first
  /// that fits counts.
  std::vector<std::pair<std::string, std::string>> schema_names = {};

  int64_t num_answers() const { return static_cast<int64_t>(prompts.size()) * gen_config.n; }
};

/// Most answers of one request, over all its prompts.
inline constexpr int64_t kMaxAnswers = 2048;

/// Renders and tokenises. Throws ApiError, which names `field` where the prompt as a whole is at fault.
PromptPreview preview_prompt(const Pipeline& pipeline, const Prompt& prompt, const RunOptions& options,
                             const std::string& field);

/// Waits for its turn, then starts all answers. Throws ApiError, before anything runs, for what cannot be
/// served.
http::Task<Generation> start_generation(Service& service, http::Exchange& exchange,
                                        GenerationRequest request);

/// Hands each piece to `take`. Throws the ApiError of an answer that fails.
http::Task<> read_answers(Answers& answers, std::function<void(AnswerPiece&)> take);

/// Streams what `event` makes of each piece (nothing: nothing is sent), then what `last` gives, then [DONE].
/// An answer that fails before anything is sent is thrown; later an error event ends the stream.
http::Task<> stream_answers(http::Exchange& exchange, Answers& answers,
                            std::function<std::string(AnswerPiece&)> event,
                            std::function<std::string()> last);

/// The first words of an answer within this time decide between an error status and a stream.
inline constexpr std::chrono::milliseconds kFirstPiecePatience{5000};

/// Unix time in seconds.
int64_t unix_time();
/// "stop", "length", ...; "tool_calls" for a stop after calls.
std::string finish_name(FinishReason reason, bool has_tool_calls);

}  // namespace lmdeploy
