// The environment variables that the program honours, read in one place.
#pragma once

#include <string>
#include <vector>

#include "lmdeploy/core/log.h"
#include "lmdeploy/hub/config.h"

namespace lmdeploy {

struct Environment {
  std::string log_level;                  // TM_LOG_LEVEL; a --log-level flag comes first
  LogOptions log;                         // LMDEPLOY_LOG_FILE, LMDEPLOY_LOG_PID, NO_COLOR, FORCE_COLOR, ...
  std::string cuda_home;                  // CUDA_HOME, CUDA_PATH
  std::vector<std::string> library_path;  // LD_LIBRARY_PATH
  bool end_with_stdin = false;            // LMDEPLOY_END_WITH_STDIN: lmdeploy.serve() holds the other end
};

Environment read_environment();
/// Apart: it reads the token file, which must not keep commands that need no hub from running.
HubConfig read_hub_config();
HubCertificates read_hub_certificates();

}  // namespace lmdeploy
