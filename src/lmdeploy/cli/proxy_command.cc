// `lmdeploy serve proxy`: flags, the proxy, and its life until a signal.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <optional>
#include <ostream>

#include "lmdeploy/cli/command.h"
#include "lmdeploy/cli/engine_arguments.h"
#include "lmdeploy/cli/integer_range.h"
#include "lmdeploy/cli/limited_flags.h"
#include "lmdeploy/cli/list_flag.h"
#include "lmdeploy/cli/server_life.h"
#include "lmdeploy/core/error.h"
#include "lmdeploy/core/log.h"
#include "lmdeploy/proxy/proxy.h"

namespace lmdeploy {
namespace {

struct ProxyFlags {
  proxy::ProxyOptions options;
  std::string strategy = "min_expected_latency", log_level, node_file;
  bool ssl = false, no_node_file = false;
  std::optional<int64_t> shutdown_timeout_s;
  LimitedFlags limited;
};

const std::vector<LimitedFlag>& limited_flags() {
  constexpr const char* kGroup = "Prefill and decode on separate nodes";
  static const std::vector<LimitedFlag> flags = {
      {"--serving-strategy",
       "TEXT",
       kGroup,
       "How a request is served (Hybrid)",
       {"Hybrid", "DistServe"},
       {"Hybrid"},
       "--serving-strategy Hybrid"},
      {"--migration-protocol",
       "TEXT",
       kGroup,
       "How keys and values travel; they do not (RDMA)",
       {"RDMA", "NVLINK"},
       {"RDMA"},
       "--serving-strategy Hybrid"},
      {"--link-type",
       "TEXT",
       kGroup,
       "Kind of network for that (RoCE)",
       {"RoCE", "IB"},
       {"RoCE"},
       "--serving-strategy Hybrid"},
      {"--dummy-prefill", "", kGroup, "Not supported", {}, {}, "use --serving-strategy Hybrid"},
      {"--disable-gdr", "", kGroup, "Not supported", {}, {}, "use --serving-strategy Hybrid"},
  };
  return flags;
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): before other threads start
  return value == nullptr ? "" : value;
}

/// Whole seconds; empty: `fallback`.
std::chrono::seconds seconds_of(const char* name, int64_t fallback, int64_t least) {
  const std::string text = variable(name);
  int64_t value = fallback;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (!text.empty() && (!whole || value < least || value > 1'000'000'000))
    throw Error(ErrorCode::kInvalidArgument, cat("the environment variable ", name, " is \"", text,
                                                 "\"; expected a number of seconds from ", least));
  return std::chrono::seconds(value);
}

/// Where programs keep what should last (XDG base directories, "state").
std::string default_node_file() {
  const std::string state = variable("XDG_STATE_HOME"), home = variable("HOME");
  if (state.empty() && home.empty()) return "";
  return (state.empty() ? home + "/.local/state" : state) + "/lmdeploy/proxy_config.json";
}

void complete(ProxyFlags& flags) {
  flags.limited.check();
  proxy::ProxyOptions& options = flags.options;
  options.strategy = proxy::strategy_from_string(flags.strategy);
  options.server.cors.credentials = true;
  if (!flags.no_node_file)
    options.node_file = flags.node_file.empty() ? default_node_file() : flags.node_file;
  options.probes.interval = seconds_of("LMDEPLOY_CONTROLLER_HEART_BEAT_EXPIRATION", 90, 1);
  const std::chrono::seconds limit = seconds_of("AIOHTTP_TIMEOUT", 0, 0);
  options.client.answer_timeout = options.client.piece_timeout = limit;
  if (flags.ssl) options.server.tls = tls_from_environment();
}

int run_proxy(ProxyFlags& flags, const CommandContext& context) {
  StopSignals signals;
  set_log_level(chosen_log_level(flags.log_level, context.environment, "WARNING"));
  complete(flags);
  allow_many_files();
  proxy::Proxy proxy(flags.options);
  context.console.out << "The proxy listens on " << (flags.ssl ? "https" : "http") << "://"
                      << flags.options.server.address << ":" << proxy.port() << std::endl;
  const int signal = signals.wait();
  const auto drain = [&] { return proxy.drain(drain_time(flags.shutdown_timeout_s, signal)); };
  end_server(
      drain, [&] { proxy.stop(); }, signals, signal, context.console);
  return exit_code(signal);
}

void add_flags(CLI::App& command, ProxyFlags& flags) {
  http::ServerOptions& server = flags.options.server;
  command.add_option("--server-name", server.address, "Address to listen on")->capture_default_str();
  command.add_option("--server-port", server.port, "Port; 0: any free one")
      ->capture_default_str()
      ->type_name("INT")
      ->transform(integer_in(0, 65535));
  command
      .add_option("--routing-strategy,--strategy", flags.strategy,
                  "Which node gets a request; prefix_aware keeps a conversation at one node")
      ->capture_default_str()
      ->check(CLI::IsMember(
          std::vector<std::string>(std::begin(proxy::kStrategyNames), std::end(proxy::kStrategyNames))));
  add_list_flag(command, {"--api-keys", "Keys, one of which clients must send; none: nobody is asked", "key"},
                flags.options.api_keys);
  command.add_flag("--ssl", flags.ssl, "TLS with the files named by SSL_CERTFILE and SSL_KEYFILE");
  command
      .add_option("--config-path", flags.node_file,
                  "Where the nodes are kept; by default lmdeploy/proxy_config.json in XDG_STATE_HOME")
      ->type_name("FILE");
  command.add_flag("--disable-cache-status", flags.no_node_file, "Keep the nodes nowhere");
  command
      .add_option("--shutdown-timeout", flags.shutdown_timeout_s,
                  "Seconds that running requests get to end; default 30, after Ctrl-C 8")
      ->type_name("INT")
      ->transform(integer_in(0, 1'000'000));
  command.add_option("--log-level", flags.log_level, "CRITICAL, ERROR, WARNING, INFO or DEBUG")
      ->default_str("WARNING");
  flags.limited.add_to(command, limited_flags());
}

}  // namespace

void add_proxy_command(CLI::App& serve, CommandContext& context) {
  CLI::App& command = *serve.add_subcommand("proxy", "Distributes requests over api_servers");
  const auto flags = std::make_shared<ProxyFlags>();
  flags->options.server.address = "0.0.0.0";
  flags->options.server.port = 8000;
  add_flags(command, *flags);
  command.callback(
      [&context, flags] { context.run = [&context, flags] { return run_proxy(*flags, context); }; });
}

}  // namespace lmdeploy
