// Whether a model runs here, wholly or in part, and why not: found out without reading its weights.
#pragma once

#include <string>
#include <vector>

namespace lmdeploy {

struct ModelCheck {
  std::string architecture;           // as the files name it; "" when they do not
  std::string problem;                // why it cannot be loaded, as loading it says; "" when it can
  std::vector<std::string> left_out;  // what it has and is not used, or used another way; a line each
};

/// `path`: what open_checkpoint() takes, or a folder or file that has the config alone. Throws
/// Error(kNotFound) when there is no such path.
ModelCheck check_model(const std::string& path);

}  // namespace lmdeploy
