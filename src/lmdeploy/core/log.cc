#include "lmdeploy/core/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <memory>
#include <mutex>
#include <unordered_set>
#include <utility>
#include <vector>

namespace lmdeploy {
namespace {

constexpr std::array kLevels = {spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
                                spdlog::level::err, spdlog::level::critical};
constexpr size_t kMaxRememberedWarnings = 1000;
constexpr const char* kPattern = "%Y-%m-%d %H:%M:%S,%e - %n - %^%l%$ - %v";
constexpr const char* kPatternWithPid = "%Y-%m-%d %H:%M:%S,%e - %n - %P - %^%l%$ - %v";

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto made =
        std::make_shared<spdlog::logger>("lmdeploy", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made->set_pattern(kPattern);
    made->set_level(spdlog::level::warn);
    made->flush_on(spdlog::level::debug);
    return made;
  }();
  return *instance;
}

spdlog::level::level_enum spd_level(LogLevel level) { return kLevels[static_cast<size_t>(level)]; }

bool seen_before(const std::string& warning) {
  static std::mutex mutex;
  static std::unordered_set<std::string> seen;
  const std::lock_guard lock(mutex);
  if (seen.size() >= kMaxRememberedWarnings) seen.clear();
  return !seen.insert(warning).second;
}

}  // namespace

LogLevel log_level_from_string(std::string_view name) {
  std::string upper(name);
  std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char c) { return std::toupper(c); });
  if (upper == "DEBUG") return LogLevel::kDebug;
  if (upper == "INFO") return LogLevel::kInfo;
  if (upper == "WARNING" || upper == "WARN") return LogLevel::kWarning;
  if (upper == "ERROR") return LogLevel::kError;
  if (upper == "CRITICAL" || upper == "FATAL") return LogLevel::kCritical;
  throw Error(ErrorCode::kInvalidArgument,
              cat("log level \"", name, "\" is not one of CRITICAL, ERROR, WARNING, INFO, DEBUG"));
}

void set_log_level(LogLevel level) { logger().set_level(spd_level(level)); }

void configure_log(const LogOptions& options) {
  using spdlog::color_mode;
  const color_mode mode = options.color == LogColor::kAuto     ? color_mode::automatic
                          : options.color == LogColor::kAlways ? color_mode::always
                                                               : color_mode::never;
  std::vector<spdlog::sink_ptr> sinks = {std::make_shared<spdlog::sinks::stderr_color_sink_mt>(mode)};
  try {
    if (!options.file.empty())
      sinks.push_back(std::make_shared<spdlog::sinks::basic_file_sink_mt>(options.file));
  } catch (const spdlog::spdlog_ex& error) {
    throw Error(ErrorCode::kIo, cat("log file ", options.file, ": ", error.what()));
  }
  logger().sinks() = std::move(sinks);
  logger().set_pattern(options.with_pid ? kPatternWithPid : kPattern);
}

bool log_enabled(LogLevel level) { return logger().should_log(spd_level(level)); }

void log_message(LogLevel level, const std::string& message) {
  if (level == LogLevel::kWarning && seen_before(message)) return;
  logger().log(spd_level(level), message);
}

}  // namespace lmdeploy
