#include "lmdeploy/cli/environment.h"

#include <cstdlib>
#include <sstream>

namespace lmdeploy {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool is_on(const char* name) {
  const std::string value = variable(name);
  return !value.empty() && value != "0" && value != "false" && value != "False";
}

/// no-color.org and its kin: any non-empty value counts.
LogColor log_color() {
  if (!variable("NO_COLOR").empty() || !variable("ANSI_COLORS_DISABLED").empty()) return LogColor::kNever;
  return variable("FORCE_COLOR").empty() ? LogColor::kAuto : LogColor::kAlways;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);)
    if (!part.empty()) parts.push_back(part);
  return parts;
}

}  // namespace

Environment read_environment() {
  Environment environment;
  environment.log_level = variable("TM_LOG_LEVEL");
  environment.log = {log_color(), variable("LMDEPLOY_LOG_FILE"), is_on("LMDEPLOY_LOG_PID")};
  environment.cuda_home = variable("CUDA_HOME").empty() ? variable("CUDA_PATH") : variable("CUDA_HOME");
  environment.library_path = split(variable("LD_LIBRARY_PATH"), ':');
  environment.end_with_stdin = is_on("LMDEPLOY_END_WITH_STDIN");
  return environment;
}

HubConfig read_hub_config() { return hub_config(variable); }

HubCertificates read_hub_certificates() { return hub_certificates(variable); }

}  // namespace lmdeploy
