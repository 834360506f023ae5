#include "lmdeploy/cli/python_facts.h"

#include <unistd.h>

#include <map>
#include <sstream>

#include "lmdeploy/cli/child_process.h"

namespace lmdeploy {
namespace {

/// Prints the version and path of Python, then a line "name version" for each package that it finds, not
/// counting the current folder. Only a package without metadata is imported.
constexpr const char* kScript = R"(import contextlib, importlib.util, sys
from importlib import metadata

def version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        with contextlib.redirect_stdout(sys.stderr):
            return getattr(importlib.import_module(name), "__version__", "of unknown version")

sys.path[:] = [folder for folder in sys.path if folder]
print(sys.version.split()[0], sys.executable)
for name in sys.argv[1:]:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        continue
    try:
        print(name, version(name))
    except Exception as error:
        print(name, "cannot be imported:", " ".join(str(error).split()))
)";

}  // namespace

std::string python_for(const std::string& program_folder) {
  for (const char* name : {"/python3", "/python"})
    if (::access((program_folder + name).c_str(), X_OK) == 0) return program_folder + name;
  return "python3";
}

PythonFacts ask_python(const std::string& python, const std::vector<std::string>& packages) {
  std::vector<std::string> command = {python, "-c", kScript};
  command.insert(command.end(), packages.begin(), packages.end());
  std::istringstream lines(output_of(command).value_or(""));
  PythonFacts facts;
  std::string line;
  if (std::getline(lines, line)) facts.version_and_path = line;
  std::map<std::string, std::string> versions;
  for (std::string name; lines >> name >> std::ws && std::getline(lines, line);) versions[name] = line;
  for (const std::string& name : packages) {
    const auto found = versions.find(name);
    facts.packages.emplace_back(name, found == versions.end() ? std::nullopt : std::optional(found->second));
  }
  return facts;
}

}  // namespace lmdeploy
