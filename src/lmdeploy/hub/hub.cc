#include "lmdeploy/hub/hub.h"

#include <filesystem>
#include <optional>
#include <vector>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/log.h"
#include "lmdeploy/core/mapped_file.h"
#include "lmdeploy/hub/file_choice.h"
#include "lmdeploy/hub/http_client.h"
#include "lmdeploy/hub/names.h"
#include "lmdeploy/hub/repository.h"

namespace lmdeploy {
namespace {

namespace fs = std::filesystem;

/// Also what cannot be looked at for want of rights: opening it will say so.
bool is_path(const std::string& model) {
  std::error_code error;
  return fs::exists(model, error) || error == std::errc::permission_denied;
}

std::string joined(const std::string& folder, const std::string& file) {
  return file.empty() ? folder : (fs::path(folder) / file).string();
}

/// Relative paths of the files below `folder` whose content is there.
std::vector<std::string> files_below(const fs::path& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (it->is_regular_file(ignored)) files.push_back(it->path().lexically_relative(folder).generic_string());
  }
  if (error) throw Error(ErrorCode::kIo, cat("list ", folder.string(), ": ", error.message()));
  return files;
}

bool needs_weights(const ModelRequest& request, const ModelId& id, const std::vector<std::string>& files) {
  return request.weights || !id.file.empty() || !has_tokenizer(files);
}

/// What to open in `folder`; throws when files are missing.
std::string complete_path(const std::string& folder, const ModelRequest& request, const ModelId& id) {
  const std::vector<std::string> files = files_below(folder);
  if (!needs_weights(request, id, files)) return folder;
  const Weights weights =
      weight_files(files, id, [&](const std::string& file) { return read_file(joined(folder, file)); });
  if (weights.open.empty() && !fs::exists(joined(folder, "config.json")))
    throw Error(ErrorCode::kNotFound, cat("model ", id.repository(), ": config.json is not there"));
  return joined(folder, weights.open);
}

/// Small files first, so that where weights are complete all is.
std::string download(Repository& repository, const ModelRequest& request, const ModelId& id) {
  const std::vector<std::string>& files = repository.files();
  std::vector<std::string> needed;
  if (id.file.empty()) needed = small_files(files);
  std::string open;
  if (needs_weights(request, id, files)) {
    const Weights weights = weight_files(files, id, [&](const std::string& index) {
      repository.fetch({index});
      return read_file(joined(repository.folder(), index));
    });
    needed.insert(needed.end(), weights.files.begin(), weights.files.end());
    open = weights.open;
  }
  repository.fetch(needed);
  repository.finish();
  return joined(repository.folder(), open);
}

std::string fetch(Repository& repository, const ModelRequest& request, const ModelId& id,
                  const HubConfig& config, const HubHooks& hooks, const std::string& revision) {
  const std::optional<std::string> folder = repository.cached();
  std::optional<std::string> copy;
  std::string lack = cat("there is no copy in ", config.cache_dir);
  if (folder) {
    try {
      copy = complete_path(*folder, request, id);
    } catch (const Error& error) {
      lack = cat("the copy in ", *folder, " is not complete: ", error.what());
    }
  }
  // A commit never changes.
  if (copy && (config.offline || (is_commit(revision) && request.weights))) return *copy;
  const std::string what = cat("model ", id.repository(), ", revision ", revision);
  if (config.offline)
    throw Error(ErrorCode::kNotFound,
                cat(what, ": HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE forbids downloading, and ", lack,
                    "; unset it, or give the path of a local folder"));
  const std::string failure = repository.list();
  if (failure.empty()) return download(repository, request, id);
  if (!copy) throw Error(ErrorCode::kIo, cat(what, ": the hub cannot be reached and ", lack, ": ", failure));
  const std::string line =
      cat(what, ": the hub cannot be reached, using the copy in ", *folder, ": ", failure);
  if (hooks.warn) {
    hooks.warn(line);
  } else {
    log_message(LogLevel::kWarning, line);
  }
  return *copy;
}

}  // namespace

bool is_hub_model(const std::string& model) { return !is_path(model) && parse_model_id(model).has_value(); }

std::string fetch_model(const ModelRequest& request, const HubConfig& given, const HubHooks& hooks) {
  if (is_path(request.model)) return request.model;
  const std::optional<ModelId> id = parse_model_id(request.model);
  if (!id)
    throw Error(ErrorCode::kNotFound, cat("model \"", shown(request.model),
                                          "\": there is no such folder or file; give the path of a model "
                                          "folder or .gguf file, or the name of a model on a hub, org/name"));
  HubConfig config = given;
  if (!request.download_dir.empty()) config.cache_dir = request.download_dir;
  const std::string revision =
      request.revision.empty() ? std::string(default_revision(config.kind)) : request.revision;
  check_revision(revision);
  if (config.kind == HubKind::kOpenMind)
    throw Error(ErrorCode::kUnsupported,
                cat("model ", request.model,
                    ": LMDEPLOY_USE_OPENMIND_HUB is set, but this version "
                    "has no client for that hub; unset it, or give the path of a local folder"));
  if (url_origin(config.endpoint).empty())
    throw Error(ErrorCode::kInvalidArgument,
                cat("the hub's address \"", shown(config.endpoint), "\" is no http or https address"));
  const RepositoryOptions options = {*id, revision, config, hooks};
  const std::unique_ptr<Repository> repository = config.kind == HubKind::kModelScope
                                                     ? make_modelscope_repository(options)
                                                     : make_hugging_face_repository(options);
  return fetch(*repository, request, *id, config, hooks, revision);
}

}  // namespace lmdeploy
