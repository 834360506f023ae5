// What `check_env` asks Python.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lmdeploy {

struct PythonFacts {
  std::optional<std::string> version_and_path;  // nothing: no Python
  std::vector<std::pair<std::string, std::optional<std::string>>>
      packages;  // name, version: of what can be imported
};

/// The Python beside the program, as in a virtual environment; otherwise the one in PATH.
std::string python_for(const std::string& program_folder);
PythonFacts ask_python(const std::string& python, const std::vector<std::string>& packages);

}  // namespace lmdeploy
