// Logging: one process-wide logger, "time - lmdeploy - LEVEL - message" on standard error.
#pragma once

#include <string>
#include <string_view>

#include "lmdeploy/core/error.h"

namespace lmdeploy {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kCritical };

/// Accepts the Python names in any case: CRITICAL, ERROR, WARNING (WARN), INFO, DEBUG. Throws
/// Error(kInvalidArgument) that lists them.
LogLevel log_level_from_string(std::string_view name);
void set_log_level(LogLevel level);

enum class LogColor { kAuto, kAlways, kNever };  // auto: when standard error is a terminal
struct LogOptions {
  LogColor color = LogColor::kAuto;
  std::string file;       // also write there, appending; empty: no file
  bool with_pid = false;  // add the process id to each line
};
/// Once, before other threads log. Throws Error(kIo) when the file cannot be opened.
void configure_log(const LogOptions& options);
bool log_enabled(LogLevel level);
/// Thread-safe. Identical warnings are printed once.
void log_message(LogLevel level, const std::string& message);

}  // namespace lmdeploy

/// LMD_LOG(kInfo, "loaded ", n, " tensors"): the arguments are only evaluated when the level is on.
#define LMD_LOG(level, ...)                                                               \
  do {                                                                                    \
    if (::lmdeploy::log_enabled(::lmdeploy::LogLevel::level))                             \
      ::lmdeploy::log_message(::lmdeploy::LogLevel::level, ::lmdeploy::cat(__VA_ARGS__)); \
  } while (false)
