// What the servers of the command line share from their start to their end.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include "lmdeploy/cli/console.h"
#include "lmdeploy/cli/stop_signals.h"
#include "lmdeploy/http/server.h"

namespace lmdeploy {

/// As many open files as the system lets this process have: each connection takes one.
void allow_many_files();

/// The files that SSL_CERTFILE and SSL_KEYFILE name. Throws Error(kInvalidArgument) naming the one that is
/// not set.
http::TlsFiles tls_from_environment();

/// What running requests get when `signal` ends the server: --shutdown-timeout, or where that was not given
/// 30 s, and 8 s after Ctrl-C, which somebody waits for.
std::chrono::seconds drain_time(std::optional<int64_t> shutdown_timeout_s, int signal);

/// Of a server that a signal ended, or something else (0): 130 after Ctrl-C.
int exit_code(int signal);

/// Runs `drain`, which waits for running requests and says whether all have ended, then `stop`. A second
/// signal ends the process at once, whatever the server is busy with, with the code of the first;
/// `first_signal` 0: there was none.
void end_server(const std::function<bool()>& drain, const std::function<void()>& stop, StopSignals& signals,
                int first_signal, const Console& console);

}  // namespace lmdeploy
