#include "lmdeploy/serve/service.h"

#include <algorithm>

#include "lmdeploy/serve/api_error.h"

namespace lmdeploy {
namespace {

[[noreturn]] void refuse_state(ServiceState state) {
  switch (state) {
    case ServiceState::kLoading:
      throw ApiError({503, "loading: the model is not ready yet", {}, "loading", 2});
    case ServiceState::kSleeping:
      throw ApiError({503, "the engine is asleep: POST /wakeup first", {}, {}, 2});
    case ServiceState::kStopping:
      throw ApiError({503, "the server is shutting down", {}, {}, 2});
    default:
      throw ApiError({503, "the engine has failed; the log says why", {}, {}, 2});
  }
}

std::string listed(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return list;
}

}  // namespace

Service::Service(ServiceOptions options)
    : options_(std::move(options)),
      admission_(options_.admission, options_.quotas),
      sessions_([this](ChatSession& session) { end_session(session); }, options_.max_sessions) {}

void Service::end_session(ChatSession& session) {
  std::shared_ptr<Pipeline> pipeline;
  {
    const std::lock_guard lock(mutex_);
    pipeline = pipeline_;
  }
  if (pipeline) pipeline->end_session(session);
}

void Service::set_ready(std::shared_ptr<Pipeline> pipeline) {
  const auto chat_template = pipeline->chat_template();
  const auto tokenizer = pipeline->tokenizer();
  OutputParserNames fitting;
  if (chat_template && tokenizer)
    fitting = parsers_for_template(chat_template->name(), tokenizer->chat_template());
  const std::lock_guard lock(mutex_);
  if (!metrics_) metrics_ = std::make_shared<Metrics>(model_name(), pipeline->session_len());
  pipeline_ = std::move(pipeline);
  template_parsers_ = std::move(fitting);
  if (state_ != ServiceState::kStopping) state_ = ServiceState::kReady;
}

void Service::set_state(ServiceState state) {
  const std::lock_guard lock(mutex_);
  state_ = state;
  if (state != ServiceState::kReady) pipeline_.reset();
}

ServiceState Service::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

std::shared_ptr<Pipeline> Service::pipeline() const {
  const std::lock_guard lock(mutex_);
  if (state_ != ServiceState::kReady) refuse_state(state_);
  return pipeline_;
}

std::string Service::engine_failure() const {
  constexpr int64_t kTooMany = 3;  // one may be the fault of its requests
  const std::lock_guard lock(mutex_);
  if (state_ != ServiceState::kReady) return {};
  try {
    const Engine& engine = pipeline_->engine();
    if (engine.closed()) return "the engine has been closed";
    const int64_t failed = engine.stats().failed_steps_in_a_row;
    if (failed < kTooMany) return {};
    return cat("the last ", failed, " steps of the engine failed; the log says why");
  } catch (const Error& error) {  // the pipeline has been closed
    return error.what();
  }
}

Metrics::ServerSide Service::load() const {
  const Admission::Counts api = admission_.counts();
  return {connection_count_ ? connection_count_() : 0, api.running, api.waiting, api.refused,
          admission_.group_counts()};
}

std::shared_ptr<Pipeline> Service::fall_asleep() {
  const std::lock_guard lock(mutex_);
  if (state_ == ServiceState::kSleeping) return nullptr;
  if (state_ != ServiceState::kReady) refuse_state(state_);
  state_ = ServiceState::kSleeping;
  wakeup_tags_.clear();
  requests_.abort_all();
  sessions_.clear();
  return std::move(pipeline_);
}

bool Service::begin_waking() {
  const std::lock_guard lock(mutex_);
  if (state_ != ServiceState::kSleeping) return false;
  state_ = ServiceState::kLoading;
  return true;
}

void Service::note_wakeup_tag(const std::string& tag) {
  const std::lock_guard lock(mutex_);
  wakeup_tags_.insert(tag);
}

bool Service::has_all_wakeup_tags() const {
  const std::lock_guard lock(mutex_);
  return wakeup_tags_.size() == 2;
}

std::string Service::checked_model(const Body& body) const {
  const std::string name = body.text("model");
  return name.empty() ? model_name() : checked_model(name);
}

std::string Service::checked_model(const std::string& name) const {
  if (std::find(options_.model_names.begin(), options_.model_names.end(), name) != options_.model_names.end())
    return name;
  throw ApiError(
      {404, cat("The model '", name, "' does not exist. This server has: ", listed(options_.model_names)),
       "model", "model_not_found"});
}

std::optional<OutputParserOptions> Service::parser_options(const Json& tools) const {
  OutputParserOptions options;
  options.names = options_.parsers;
  const std::lock_guard lock(mutex_);
  if (template_parsers_.harmony())
    options.names = template_parsers_;  // text that is not taken apart is unreadable
  if (!tools.is_null() && options.names.tool_calls.empty()) {
    options.names.tool_calls = template_parsers_.tool_calls;
    if (options.names.tool_calls.empty())
      refuse_field("tools", cat("tools: no parser fits this model's chat template; start the server with "
                                "--tool-call-parser, one of ",
                                listed(tool_parser_names())));
  }
  if (tools.is_null()) options.names.tool_calls = options.names.harmony() ? options.names.tool_calls : "";
  if (options.names.reasoning.empty() && options.names.tool_calls.empty()) return std::nullopt;
  options.tools = tools;
  return options;
}

}  // namespace lmdeploy
