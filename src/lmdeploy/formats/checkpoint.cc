// open_checkpoint(): which kind of checkpoint a path is.
#include "lmdeploy/formats/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/checkpoint_kinds.h"
#include "lmdeploy/formats/derived_checkpoint.h"
#include "lmdeploy/formats/quant/quantized_checkpoint.h"
#include "lmdeploy/formats/turbomind/workspace.h"
#include "lmdeploy/formats/turbomind/workspace_checkpoint.h"
#include "lmdeploy/formats/weight_format.h"

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

// consolidated.00.pth, ... of Meta's form; empty without params.json.
std::vector<std::string> meta_files(const std::string& folder, const std::vector<std::string>& names) {
  std::vector<std::string> files;
  if (!has(names, "params.json")) return files;
  for (const std::string& name : names)
    if (name.starts_with("consolidated.") && name.ends_with(".pth")) files.push_back(name);
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string wanted = cat("consolidated.", i < 10 ? "0" : "", i, ".pth");
    if (!has(files, wanted))
      throw Error(ErrorCode::kNotFound,
                  cat("open ", folder, ": ", files.size(), " files consolidated.NN.pth, but not ", wanted,
                      "; the download may be incomplete"));
  }
  return files;
}

// Every .bin file but what trainers leave beside the weights.
std::vector<std::string> torch_files(const std::string& folder, const std::vector<std::string>& names) {
  constexpr std::string_view kOthers[] = {"training_args.bin", "optimizer.bin", "scheduler.bin", "scaler.bin",
                                          "rng_state.bin"};
  std::vector<std::string> files;
  for (const std::string& name : names) {
    if (!name.ends_with(".bin") ||
        std::find(std::begin(kOthers), std::end(kOthers), name) != std::end(kOthers))
      continue;
    files.push_back(name);
    const auto part = parse_part_name(name, ".bin");
    for (int number = 1; part && number <= part->count; ++number) {
      const std::string wanted = part_file_name(*part, number, ".bin");
      if (!has(names, wanted))
        throw Error(ErrorCode::kNotFound, cat("open ", folder, ": ", name, " is there, but not ", wanted,
                                              "; the download may be incomplete"));
    }
  }
  return files;
}

// Says what is there instead.
[[noreturn]] void no_weights(const std::string& folder, const std::vector<std::string>& names) {
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
                  ": no weights; looked for model.safetensors.index.json, model.safetensors, "
                  "pytorch_model.bin.index.json, pytorch_model.bin, *.gguf, params.json with "
                  "consolidated.NN.pth, and *.bin"));
}

std::unique_ptr<Checkpoint> open_gguf_checked(const std::string& path, const std::string& file,
                                              const OpenOptions& options) {
  check_model_format(path, WeightFormat::kGguf, options.model_format);
  return open_gguf(path, file);
}

std::unique_ptr<Checkpoint> open_meta_checked(const std::string& path, const std::string& folder,
                                              const std::vector<std::string>& files,
                                              const OpenOptions& options) {
  check_model_format(path, WeightFormat::kLlama, options.model_format);
  return open_meta(path, folder, files);
}

// Of any form but a workspace.
std::unique_ptr<Checkpoint> open_plain_folder(const std::string& path, const OpenOptions& options) {
  const std::vector<std::string> names = file_names(path);
  if (options.model_format == to_string(WeightFormat::kLlama)) {
    if (const std::vector<std::string> files = meta_files(path, names); !files.empty())
      return open_meta(path, path, files);
  }
  for (const HubFiles& files : {kSafetensorsFiles, kTorchFiles}) {
    if (has(names, files.single) || has(names, files.index))
      return dequantized(open_hub_folder(path, files), options.model_format);
  }
  const std::vector<std::string> models = gguf_models(names);
  if (models.size() > 1)
    throw Error(ErrorCode::kInvalidArgument,
                cat("open ", path, ": several GGUF files (", join(models), "); name one of them"));
  if (models.size() == 1) return open_gguf_checked(path, (fs::path(path) / models[0]).string(), options);
  if (const std::vector<std::string> files = meta_files(path, names); !files.empty())
    return open_meta_checked(path, path, files, options);
  if (const std::vector<std::string> files = torch_files(path, names); !files.empty())
    return dequantized(open_hub_files(path, files), options.model_format);
  no_weights(path, names);
}

/// The weights of a workspace in our own layout, with the settings of its config.
class OwnWorkspace : public DerivedCheckpoint {
 public:
  OwnWorkspace(const std::string& path, std::unique_ptr<Checkpoint> weights, const WorkspacePaths& paths,
               const WorkspaceConfig& config)
      : DerivedCheckpoint(std::move(weights)) {
    path_ = path;
    settings_path_ = paths.config;
    engine_settings_ = config.settings;
    for (size_t i = 0; i < base().tensors().size(); ++i) add_stored(i, base().tensors()[i].name);
  }
};

std::unique_ptr<Checkpoint> open_folder(const std::string& path, const OpenOptions& options) {
  const std::optional<WorkspacePaths> paths = find_workspace(path);
  if (!paths) return open_plain_folder(path, options);
  const WorkspaceConfig config = read_workspace_config(paths->config);
  if (config.own_layout)
    return std::make_unique<OwnWorkspace>(path, open_plain_folder(paths->weights, options), *paths, config);
  const bool four_bits = config.model.group_size > 0;
  check_model_format(path, four_bits ? WeightFormat::kAwq : WeightFormat::kHf, options.model_format);
  return open_workspace(path, *paths, config);
}

// One file; one of Meta's stands for its folder.
std::unique_ptr<Checkpoint> open_file(const std::string& path, const OpenOptions& options) {
  if (path.ends_with(".gguf")) return open_gguf_checked(path, path, options);
  const fs::path file(path);
  const std::string extension = file.extension().string();
  const std::string folder = file.has_parent_path() ? file.parent_path().string() : ".";
  const bool meta = extension == ".pth" && file.filename().string().starts_with("consolidated.");
  if (meta && fs::exists(fs::path(folder) / "params.json"))
    return open_meta_checked(path, folder, meta_files(folder, file_names(folder)), options);
  if (extension == ".safetensors" || extension == ".bin" || extension == ".pt" || extension == ".pth")
    return dequantized(open_hub_file(path), options.model_format);
  throw Error(ErrorCode::kUnsupported,
              cat("open ", path, ": expected a folder or a .gguf, .safetensors, .bin, .pt or .pth file"));
}

}  // namespace

std::unique_ptr<Checkpoint> open_checkpoint(const std::string& path, const OpenOptions& options) {
  check_weight_format_name(options.model_format);
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found)
    throw Error(ErrorCode::kNotFound, cat("open ", path, ": no such file or folder"));
  if (fs::is_directory(status)) return open_folder(path, options);
  return open_file(path, options);
}

}  // namespace lmdeploy
