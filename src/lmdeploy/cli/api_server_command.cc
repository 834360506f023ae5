// `lmdeploy serve api_server`: flags, the server, and its life from loading to the last answer.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <optional>
#include <ostream>
#include <thread>

#include "lmdeploy/cli/command.h"
#include "lmdeploy/cli/engine_arguments.h"
#include "lmdeploy/cli/integer_range.h"
#include "lmdeploy/cli/list_flag.h"
#include "lmdeploy/cli/model_arguments.h"
#include "lmdeploy/cli/progress_bar.h"
#include "lmdeploy/cli/server_life.h"
#include "lmdeploy/cli/terminal_mode.h"
#include "lmdeploy/core/error.h"
#include "lmdeploy/core/log.h"
#include "lmdeploy/serve/api_server.h"
#include "lmdeploy/serve/every.h"
#include "lmdeploy/serve/metrics_log.h"
#include "lmdeploy/serve/proxy_registration.h"

namespace lmdeploy {
namespace {

constexpr int64_t kMaxInt = std::numeric_limits<int>::max();

struct ServerFlags {
  std::string model_path;
  EngineArguments engine;
  http::ServerOptions http;
  ServiceOptions service;
  bool ssl = false, disable_docs = false, disable_metrics = false, exit_on_failure = false;
  int64_t queue_timeout_s = 0, max_body_mib = 64;
  std::optional<int64_t> shutdown_timeout_s;
  std::string hf_overrides, qos_config_path, proxy_url;
};

void add_network_flags(CLI::App& command, ServerFlags& flags) {
  command.add_option("--server-name", flags.http.address, "Address to listen on")->default_str("0.0.0.0");
  command.add_option("--server-port", flags.http.port, "Port; 0: any free one")
      ->default_str("23333")
      ->type_name("INT")
      ->transform(integer_in(0, 65535));
  add_list_flag(command, {"--api-keys", "Keys, one of which clients must send; none: nobody is asked", "key"},
                flags.service.api_keys);
  command.add_flag("--ssl", flags.ssl, "TLS with the files named by SSL_CERTFILE and SSL_KEYFILE");
  command.add_option("--allow-origins", flags.http.cors.origins, "Origins of pages that may use the server")
      ->default_str("*");
  command.add_option("--allow-methods", flags.http.cors.methods, "Methods that they may use")
      ->default_str("*");
  command.add_option("--allow-headers", flags.http.cors.headers, "Headers that they may send")
      ->default_str("*");
  command.add_flag("--allow-credentials", flags.http.cors.credentials, "Whether they may send cookies");
  command.add_option("--http-threads", flags.http.num_threads, "Threads for connections")
      ->capture_default_str()
      ->transform(integer_in(1, 1024));
  command.add_option("--max-body-mib", flags.max_body_mib, "Largest request")
      ->capture_default_str()
      ->transform(integer_in(1, 1 << 20));
}

void add_service_flags(CLI::App& command, ServerFlags& flags) {
  ServiceOptions& service = flags.service;
  add_list_flag(command,
                {"--model-name", "Name of the model for clients, and aliases of it; by default its path",
                 "name", /*distinct=*/true},
                service.model_names);
  command
      .add_option("--tool-call-parser", service.parsers.tool_calls,
                  "How the model writes calls of tools; by default as its chat template says")
      ->check(CLI::IsMember(tool_parser_names()));
  command
      .add_option("--reasoning-parser", service.parsers.reasoning,
                  "How the model writes its thoughts; by default they stay in the answer")
      ->check(CLI::IsMember(reasoning_parser_names()));
  command
      .add_option("--max-concurrent-requests", service.admission.max_running,
                  "Requests in the engine at once; more wait. 0: no limit")
      ->capture_default_str()
      ->type_name("INT")
      ->transform(integer_in(0, kMaxInt));
  command
      .add_option("--max-waiting-requests", service.admission.max_waiting,
                  "How many may wait when --max-concurrent-requests (by itself: --max-batch-size) run; more "
                  "get status "
                  "503. 0: no limit")
      ->capture_default_str()
      ->type_name("INT")
      ->transform(integer_in(0, kMaxInt));
  command
      .add_option("--queue-timeout", flags.queue_timeout_s,
                  "Seconds a request may wait; then it gets status 503. 0: no limit")
      ->capture_default_str()
      ->type_name("INT")
      ->transform(integer_in(0, kMaxInt / 1000));
  command
      .add_option("--shutdown-timeout", flags.shutdown_timeout_s,
                  "Seconds that running requests get to end; default 30, after Ctrl-C 8")
      ->type_name("INT")
      ->transform(integer_in(0, kMaxInt / 1000));
  command
      .add_option("--max-log-len", service.max_log_len,
                  "Bytes of each prompt in the log (level INFO); none by default")
      ->type_name("INT")
      ->transform(integer_in(0, kMaxInt));
  command
      .add_option("--qos-config-path", flags.qos_config_path,
                  "JSON file with groups of users and their quotas; the routes ..._qos")
      ->type_name("FILE");
  command
      .add_option("--proxy-url", flags.proxy_url,
                  "lmdeploy serve proxy that this server is a node of while it is ready")
      ->type_name("URL");
  command.add_flag("--exit-on-engine-failure", flags.exit_on_failure,
                   "End with an error once /health says that the engine is broken");
  command.add_flag("--disable-fastapi-docs", flags.disable_docs,
                   "No pages that describe the interface, no openapi.json");
  command.add_flag("--disable-metrics", flags.disable_metrics, "No /metrics");
  command.add_flag("--open-metrics", service.open_metrics, "/metrics without an API key");
  command.add_flag("--allow-terminate-by-client", service.allow_terminate, "GET /terminate ends the server");
  command.add_flag("--enable-abort-handling", service.enable_abort,
                   "POST /abort_request ends running requests");
}

void add_more_engine_flags(CLI::App& command, ServerFlags& flags) {
  const auto add = [&](const char* name, auto& value, const char* help) {
    return command.add_option(name, value, help)->group("Engine arguments");
  };
  PipelineConfig& config = flags.engine.config;
  add("--cache-block-seq-len", config.cache_block_seq_len, "Tokens in a block of keys and values")
      ->default_str("64")
      ->transform(integer_in(1, kMaxInt));
  add("--max-prefill-token-num", config.max_prefill_token_num, "Most prompt tokens in a step")
      ->default_str("8192")
      ->transform(integer_in(1, kMaxInt));
  add("--num-tokens-per-iter", config.num_tokens_per_iter,
      "Prompt tokens that a step takes at least, if there are any; 0: as many as allowed")
      ->default_str("0")
      ->transform(integer_in(0, kMaxInt));
  add("--max-prefill-iters", config.max_prefill_iters, "Steps that a prompt is spread over")
      ->default_str("1")
      ->transform(integer_in(1, kMaxInt));
  add("--hf-overrides", flags.hf_overrides, "JSON object merged over the checkpoint's config.json");
}

/// Quotas share what runs at once: without a limit there is nothing to share.
void set_quotas(ServerFlags& flags) {
  Json config;
  try {
    config = read_json_file(flags.qos_config_path);
  } catch (const Error& error) {
    throw Error(error.code(), cat("--qos-config-path: ", error.what()));
  }
  flags.service.quotas = parse_qos_config(config, "--qos-config-path " + flags.qos_config_path);
  AdmissionLimits& limits = flags.service.admission;
  if (flags.service.quotas->enabled && limits.max_running == 0)
    limits.max_running = flags.engine.config.max_batch_size.value_or(128);
}

/// What the flags say, in the terms of the server. Throws Error.
void complete(ServerFlags& flags, const Console& console) {
  flags.engine.apply(console);
  PipelineConfig& config = flags.engine.config;
  config.model_path = flags.model_path;
  if (!flags.engine.chat_template.empty())
    config.chat_template = read_chat_template(flags.engine.chat_template);
  if (!flags.hf_overrides.empty()) {
    const Json overrides = parse_json(flags.hf_overrides, "--hf-overrides");
    if (!overrides.is_object())
      throw Error(ErrorCode::kInvalidArgument,
                  cat("--hf-overrides: found ", json_kind(overrides), "; expected an object"));
    config.hf_overrides = overrides.get_object();
  }
  flags.service.parsers.validate();
  if (flags.service.model_names.empty()) flags.service.model_names = {flags.model_path};
  flags.service.show_docs = !flags.disable_docs;
  flags.service.enable_metrics = !flags.disable_metrics;
  flags.service.admission.timeout = std::chrono::seconds(flags.queue_timeout_s);
  // A limit on those who wait means nothing without one on those who run.
  if (flags.service.admission.max_running == 0 &&
      (flags.service.admission.max_waiting > 0 || flags.queue_timeout_s > 0))
    flags.service.admission.max_running = config.max_batch_size.value_or(128);
  if (!flags.qos_config_path.empty()) set_quotas(flags);
  if (!flags.proxy_url.empty()) http::parse_url(flags.proxy_url);  // wrong ones are refused before loading
  flags.http.max_body_bytes = static_cast<size_t>(flags.max_body_mib) << 20;
  if (flags.ssl) flags.http.tls = tls_from_environment();
}

std::shared_ptr<Pipeline> open_model(PipelineConfig config, const Console& console) {
  locate_models(config, console);
  ProgressBar bar(console.err, "Loading " + config.model_path, terminal_columns(STDERR_FILENO));
  config.progress = [&](int64_t done, int64_t total) { bar.update(done, total); };
  return std::make_shared<Pipeline>(config);
}

/// Loads the model on a thread of its own, so that signals are heard meanwhile.
class Loader {
 public:
  Loader(Service& service, const StopSignals& signals)
      : thread_([this, &service, &signals] {
          try {
            service.set_ready(service.options().open_model());
          } catch (...) {
            failure_ = std::current_exception();
          }
          done_ = true;
          signals.wake();
        }) {}
  ~Loader() { thread_.join(); }

  bool done() const { return done_; }
  /// After done(). Throws what kept the model from being loaded.
  void check() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  std::exception_ptr failure_;
  std::atomic<bool> done_ = false;
  std::thread thread_;
};

std::unique_ptr<ProxyRegistration> register_with_proxy(const ServerFlags& flags, int port) {
  if (flags.proxy_url.empty()) return nullptr;
  const std::string& address = flags.http.address;
  ProxyRegistrationOptions options;
  options.proxy_url = flags.proxy_url;
  options.tls = flags.ssl;
  options.host = address == "0.0.0.0" || address == "::" ? "" : address;
  options.port = port;
  options.models = flags.service.model_names;
  if (!flags.service.api_keys.empty()) options.api_key = flags.service.api_keys.front();
  return std::make_unique<ProxyRegistration>(std::move(options));
}

/// Ends the server by `stop` once its engine is broken, where that is asked for.
std::unique_ptr<Every> watch_engine(const ServerFlags& flags, const Service& service,
                                    std::function<void(std::string)> stop) {
  if (!flags.exit_on_failure) return nullptr;
  return std::make_unique<Every>(std::chrono::seconds(1), [&service, stop = std::move(stop)] {
    std::string failure = service.engine_failure();
    if (!failure.empty()) stop(std::move(failure));
  });
}

void print_hint(const ServerFlags& flags, int port, std::ostream& out) {
  const char* scheme = flags.ssl ? "https" : "http";
  const bool color = isatty(STDOUT_FILENO) != 0;
  const char* page = flags.disable_docs
                         ? "/ui in a browser to chat; --disable-fastapi-docs: no page on the api"
                         : " in a browser for detailed api usage!!!";
  for (int i = 0; i < 3; ++i)
    out << (color ? "\033[96m\033[1m" : "") << "HINT:    Please open " << scheme << "://"
        << flags.http.address << ":" << port << page << (color ? "\033[0m" : "") << std::endl;
}

int run_server(ServerFlags& flags, const CommandContext& context) {
  // First of all: CUDA begins threads when it is asked for its devices.
  StopSignals signals(context.environment.end_with_stdin ? STDIN_FILENO : -1);
  const Console& console = context.console;
  set_log_level(chosen_log_level(flags.engine.log_level, context.environment, "WARNING"));
  complete(flags, console);
  allow_many_files();
  std::atomic<bool> stop_asked = false;
  flags.service.terminate = [&] {
    stop_asked = true;
    signals.wake();
  };
  flags.service.open_model = [&flags, &console] { return open_model(flags.engine.config, console); };
  ApiServer server(flags.http, flags.service);
  Loader loader(server.service(), signals);
  int signal = 0;
  bool announced = false;
  std::unique_ptr<MetricsLog> metrics_log;
  std::unique_ptr<ProxyRegistration> registration;
  std::string failure;
  std::unique_ptr<Every> watch;
  while (signal == 0 && !stop_asked) {
    signal = signals.wait();
    if (signal != 0 && !loader.done())
      _exit(exit_code(signal));  // nothing is lost, and loading cannot be interrupted
    if (!loader.done() || announced) continue;
    loader.check();
    print_hint(flags, server.port(), console.out);
    announced = true;
    if (flags.service.enable_metrics) metrics_log = std::make_unique<MetricsLog>(server.service());
    registration = register_with_proxy(flags, server.port());
    watch = watch_engine(flags, server.service(), [&](std::string reason) {
      failure = std::move(reason);
      stop_asked = true;
      signals.wake();
    });
  }
  watch.reset();
  registration.reset();  // before requests are refused
  server.service().set_state(ServiceState::kStopping);
  const auto drain = [&] { return server.drain(drain_time(flags.shutdown_timeout_s, signal)); };
  end_server(
      drain, [&] { server.stop(); }, signals, signal, console);
  if (!failure.empty()) throw Error(ErrorCode::kInternal, failure);
  return exit_code(signal);
}

}  // namespace

void add_api_server_command(CLI::App& serve, CommandContext& context) {
  CLI::App& command = *serve.add_subcommand("api_server", "OpenAI-compatible server");
  const auto flags = std::make_shared<ServerFlags>();
  flags->http.address = "0.0.0.0";
  flags->http.port = 23333;
  command
      .add_option("model_path", flags->model_path,
                  "Model folder or .gguf file, or a model of the hub: org/name, org/name/file.gguf")
      ->required()
      ->type_name("PATH");
  add_network_flags(command, *flags);
  add_service_flags(command, *flags);
  flags->engine.add_to(command, server_limited_flags(), "WARNING");
  add_more_engine_flags(command, *flags);
  command.callback(
      [&context, flags] { context.run = [&context, flags] { return run_server(*flags, context); }; });
}

}  // namespace lmdeploy
