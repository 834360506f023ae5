// find_workspace(), read_workspace_config().
#include <filesystem>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/mapped_file.h"
#include "lmdeploy/formats/turbomind/workspace.h"

namespace lmdeploy {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLargestConfig = size_t{1} << 24;
constexpr const char* kIni = "config.ini";
constexpr const char* kYaml = "config.yaml";

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}
bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}
bool has_config(const fs::path& folder) { return is_file(folder / kIni) || is_file(folder / kYaml); }

// The folder that is or would be triton_models.
std::optional<fs::path> models_folder(const fs::path& path) {
  if (is_folder(path / "triton_models")) return path / "triton_models";
  if (has_config(path / "weights") && is_folder(path / "tokenizer")) return path;
  if (has_config(path) && is_folder(path / ".." / "tokenizer")) return path / "..";
  return std::nullopt;
}

}  // namespace

std::optional<WorkspacePaths> find_workspace(const std::string& path) {
  const std::optional<fs::path> models = models_folder(path);
  if (!models) return std::nullopt;
  const fs::path weights = *models / "weights";
  if (!has_config(weights))
    throw Error(ErrorCode::kNotFound, cat("open ", path, ": ", weights.string(), " has neither ", kIni,
                                          " nor ", kYaml, "; the conversion may not have been finished"));
  if (is_file(weights / kIni) && is_file(weights / kYaml))
    throw Error(ErrorCode::kInvalidData, cat("open ", path, ": ", weights.string(), " has both ", kIni,
                                             " and ", kYaml, "; remove the one that the weights are not of"));
  const char* name = is_file(weights / kIni) ? kIni : kYaml;
  return WorkspacePaths{weights.string(), (*models / "tokenizer").string(), (weights / name).string()};
}

WorkspaceConfig read_workspace_config(const std::string& path) {
  const std::string text = read_file(path, kLargestConfig);
  return path.ends_with(kYaml) ? parse_workspace_yaml(text, path) : parse_workspace_ini(text, path);
}

}  // namespace lmdeploy
