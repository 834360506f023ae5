// open_checkpoint(): which kind of checkpoint a path is.
#include "lmdeploy/formats/checkpoint.h"

#include <algorithm>
#include <filesystem>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/checkpoint_kinds.h"

namespace lmdeploy {
namespace {

namespace fs = std::filesystem;

// Names of the regular files (or links to such) in `folder`, sorted.
std::vector<std::string> file_names(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;  // a dangling link is no file
    if (it->is_regular_file(ignored)) names.push_back(it->path().filename().string());
  }
  if (error) throw Error(ErrorCode::kIo, cat("list ", folder, ": ", error.message()));
  std::sort(names.begin(), names.end());
  return names;
}

bool has(const std::vector<std::string>& names, std::string_view name) {
  return std::binary_search(names.begin(), names.end(), name);
}

// First parts stand for their split file; other parts are left out.
std::vector<std::string> gguf_models(const std::vector<std::string>& names) {
  std::vector<std::string> models;
  for (const std::string& name : names) {
    if (!name.ends_with(".gguf")) continue;
    const auto part = parse_part_name(name, ".gguf");
    if (!part || part->number == 1) models.push_back(name);
  }
  return models;
}

std::string join(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += cat(out.empty() ? "" : ", ", name);
  return out;
}

// Says what is there instead.
[[noreturn]] void no_weights(const std::string& folder, const std::vector<std::string>& names) {
  const auto pickled = std::find_if(names.begin(), names.end(), [](const std::string& name) {
    return name.ends_with(".bin") || name.ends_with(".pt") || name.ends_with(".pth");
  });
  if (pickled != names.end())
    throw Error(ErrorCode::kUnsupported,
                cat("open ", folder, ": found ", *pickled,
                    ", a pickled checkpoint, which is not read; convert it to "
                    "safetensors, e.g. in Python with transformers: model.save_pretrained(folder)"));
  if (has(names, "consolidated.safetensors"))
    throw Error(ErrorCode::kUnsupported,
                cat("open ", folder,
                    ": consolidated.safetensors has tensor names that are not the hub's; "
                    "model.safetensors or its shards are needed"));
  const auto other = std::find_if(names.begin(), names.end(),
                                  [](const std::string& name) { return name.ends_with(".safetensors"); });
  if (other != names.end())
    throw Error(ErrorCode::kNotFound,
                cat("open ", folder, ": found ", *other,
                    ", but neither model.safetensors nor "
                    "model.safetensors.index.json, which lists shards; to open one file, name it"));
  throw Error(ErrorCode::kNotFound,
              cat("open ", folder,
                  ": no weights; looked for model.safetensors.index.json, model.safetensors and "
                  "*.gguf"));
}

std::unique_ptr<Checkpoint> open_folder(const std::string& path) {
  const std::vector<std::string> names = file_names(path);
  if (has(names, "model.safetensors") || has(names, "model.safetensors.index.json"))
    return open_hub_folder(path);
  const std::vector<std::string> models = gguf_models(names);
  if (models.size() > 1)
    throw Error(ErrorCode::kInvalidArgument,
                cat("open ", path, ": several GGUF files (", join(models), "); name one of them"));
  if (models.size() == 1) return open_gguf(path, (fs::path(path) / models[0]).string());
  no_weights(path, names);
}

}  // namespace

std::unique_ptr<Checkpoint> open_checkpoint(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found)
    throw Error(ErrorCode::kNotFound, cat("open ", path, ": no such file or folder"));
  if (fs::is_directory(status)) return open_folder(path);
  if (path.ends_with(".gguf")) return open_gguf(path, path);
  if (path.ends_with(".safetensors")) return open_safetensors(path);
  throw Error(ErrorCode::kUnsupported,
              cat("open ", path, ": expected a folder, a .gguf file or a .safetensors file"));
}

}  // namespace lmdeploy
