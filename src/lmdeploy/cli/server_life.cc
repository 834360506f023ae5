#include "lmdeploy/cli/server_life.h"

#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <ostream>
#include <thread>

#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

std::string environment_file(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): before other threads start
  if (value == nullptr || *value == '\0')
    throw Error(ErrorCode::kInvalidArgument,
                cat("--ssl: the environment variable ", name, " is not set; it names a PEM file"));
  return value;
}

}  // namespace

void allow_many_files() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

http::TlsFiles tls_from_environment() {
  return {environment_file("SSL_CERTFILE"), environment_file("SSL_KEYFILE")};
}

std::chrono::seconds drain_time(std::optional<int64_t> shutdown_timeout_s, int signal) {
  return std::chrono::seconds(shutdown_timeout_s.value_or(signal == SIGINT ? 8 : 30));
}

int exit_code(int signal) { return signal == SIGINT ? 130 : 0; }

void end_server(const std::function<bool()>& drain, const std::function<void()>& stop, StopSignals& signals,
                int first_signal, const Console& console) {
  std::atomic<bool> ended = false;
  std::thread waiter([&] {
    if (!drain())
      console.err << "lmdeploy: requests that did not end within --shutdown-timeout are cut off" << std::endl;
    stop();
    ended = true;
    signals.wake();
  });
  while (!ended)
    if (const int signal = signals.wait(); signal != 0 && !ended)
      _exit(128 + (first_signal == 0 ? signal : first_signal));
  waiter.join();
}

}  // namespace lmdeploy
