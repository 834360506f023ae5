// What the routes of a server share: the model, its names, who may run.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lmdeploy/http/exchange.h"
#include "lmdeploy/parsers/output_parser.h"
#include "lmdeploy/pipeline/pipeline.h"
#include "lmdeploy/serve/admission.h"
#include "lmdeploy/serve/fields.h"
#include "lmdeploy/serve/interactive_sessions.h"
#include "lmdeploy/serve/metrics.h"
#include "lmdeploy/serve/request_registry.h"

namespace lmdeploy {

struct ServiceOptions {
  std::vector<std::string> model_names;  // the first one is the model's, the others are aliases
  std::vector<std::string> api_keys;     // empty: none is asked for
  OutputParserNames parsers;             // of --reasoning-parser and --tool-call-parser
  AdmissionLimits admission;
  std::optional<QosConfig> quotas;  // of --qos-config-path; max_running must be set then
  bool show_docs = true;            // pages, and openapi.json
  bool open_metrics = false;        // /metrics without a key
  bool enable_metrics = true;       // /metrics at all
  bool allow_terminate = false;     // /terminate
  bool enable_abort = false;        // /abort_request
  size_t max_sessions = 4096;       // conversations kept
  int64_t max_log_len = 0;          // bytes of each prompt in the log; 0: none
  /// Opens the model again after sleep.
  std::function<std::shared_ptr<Pipeline>()> open_model;
  std::function<void()> terminate;  // asks the program to end
};

enum class ServiceState { kLoading, kReady, kSleeping, kStopping };

/// Thread-safe.
class Service {
 public:
  explicit Service(ServiceOptions options);

  const ServiceOptions& options() const { return options_; }
  const std::string& model_name() const { return options_.model_names.front(); }

  void set_ready(std::shared_ptr<Pipeline> pipeline);
  void set_state(ServiceState state);
  ServiceState state() const;
  /// Throws ApiError 503 unless ready.
  std::shared_ptr<Pipeline> pipeline() const;
  /// Why the engine cannot answer although the server is ready; empty: it can.
  std::string engine_failure() const;

  /// The name that answers carry. Throws ApiError 404 that lists the names when the body asks for another
  /// one.
  std::string checked_model(const Body& body) const;
  std::string checked_model(const std::string& name) const;
  /// For an output that may hold calls of `tools` (null: none). Nothing: text is passed on as it is. Throws
  /// ApiError when there is no parser for this model's calls.
  std::optional<OutputParserOptions> parser_options(const Json& tools) const;

  /// Ends what runs and sleeps; gives the pipeline, which the caller closes. nullptr: it sleeps already.
  /// Throws ApiError 503 unless ready.
  std::shared_ptr<Pipeline> fall_asleep();
  /// Whether it slept: then the caller opens the model.
  bool begin_waking();
  /// Tags of /wakeup come one by one.
  void note_wakeup_tag(const std::string& tag);
  bool has_all_wakeup_tags() const;

  InteractiveSessions& sessions() { return sessions_; }
  /// For a conversation without an id of the client's.
  int64_t next_session_id() { return next_session_id_++; }
  /// Before requests come: how many connections are open, for the metrics.
  void set_connection_count(std::function<int64_t()> count) { connection_count_ = std::move(count); }
  Metrics::ServerSide load() const;
  Admission& admission() { return admission_; }
  RequestRegistry& requests() { return requests_; }
  const std::shared_ptr<Metrics>& metrics() const { return metrics_; }

 private:
  /// Where there is an engine.
  void end_session(ChatSession& session);

  const ServiceOptions options_;
  std::function<int64_t()> connection_count_;
  Admission admission_;
  RequestRegistry requests_;
  InteractiveSessions sessions_;
  std::atomic<int64_t> next_session_id_ = int64_t{1} << 40;  // above those that clients choose
  mutable std::mutex mutex_;                                 // guards what follows
  ServiceState state_ = ServiceState::kLoading;
  std::shared_ptr<Pipeline> pipeline_;
  std::shared_ptr<Metrics> metrics_;
  std::set<std::string> wakeup_tags_;
  OutputParserNames template_parsers_;  // that fit the model's chat template
};

}  // namespace lmdeploy
