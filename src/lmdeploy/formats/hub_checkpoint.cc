// Checkpoints in the hub's form: config.json and weight files.
#include <algorithm>
#include <filesystem>
#include <map>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/log.h"
#include "lmdeploy/formats/checkpoint_kinds.h"
#include "lmdeploy/formats/quote.h"
#include "lmdeploy/formats/safetensors.h"
#include "lmdeploy/formats/safetensors_index.h"
#include "lmdeploy/formats/torch/torch_file.h"

namespace lmdeploy {
namespace {

namespace fs = std::filesystem;

Json read_object(const std::string& path) {
  Json value = read_json_file(path);
  if (!value.is_object())
    throw Error(ErrorCode::kInvalidData,
                cat(path, ": the text is ", json_kind(value), ", expected an object"));
  return value;
}

class HubCheckpoint : public MappedCheckpoint {
 public:
  HubCheckpoint(const std::string& path, const fs::path& folder) {
    path_ = path;
    config_path_ = (folder / "config.json").string();
    if (!fs::exists(config_path_))
      throw Error(ErrorCode::kNotFound,
                  cat("open ", path, ": no config.json beside the weights (", config_path_, ")"));
    config_ = read_object(config_path_);
    files_.push_back(config_path_);
    const std::string generation = (folder / "generation_config.json").string();
    if (!fs::exists(generation)) return;
    generation_config_ = read_object(generation);
    files_.push_back(generation);
  }

  /// `index` may be nullptr: all tensors of the file are wanted.
  void add_file(const std::string& path, const SafetensorsIndex* index) {
    files_.push_back(path);
    if (path.ends_with(".safetensors")) {
      const SafetensorsFile& file = *safetensors_.emplace_back(std::make_unique<SafetensorsFile>(path));
      for (const SafetensorsTensor& tensor : file.tensors()) {
        if (is_wanted(tensor.name, path, index))
          add_tensor({tensor.name, tensor.dtype, tensor.shape, path, tensor.name},
                     {tensor.data, tensor.bytes}, file.file());
      }
    } else {
      const TorchFile& file = *torch_.emplace_back(std::make_unique<TorchFile>(path));
      for (const TorchTensor& tensor : file.tensors()) {
        if (is_wanted(tensor.name, path, index))
          add_tensor({tensor.name, tensor.dtype, tensor.shape, path, tensor.name}, tensor.stored, file.file(),
                     tensor.strides);
      }
    }
  }

  void check_complete(const SafetensorsIndex& index, const std::string& index_path) {
    files_.push_back(index_path);
    std::vector<std::string_view> names;
    for (const TensorInfo& info : tensors_) names.push_back(info.name);
    std::sort(names.begin(), names.end());
    for (const auto& [name, file] : index.weight_map) {
      if (!std::binary_search(names.begin(), names.end(), std::string_view(name)))
        throw Error(ErrorCode::kInvalidData, cat(index_path, ": tensor ", quote(name), " should be in ", file,
                                                 ", which does not have it"));
    }
  }

 private:
  static bool is_wanted(const std::string& name, const std::string& path, const SafetensorsIndex* index) {
    if (index == nullptr || !index->elsewhere(name, fs::path(path).filename().string())) return true;
    LMD_LOG(kWarning, path, ": tensor ", quote(name), " is ignored: the index takes it from another file");
    return false;
  }

  std::vector<std::unique_ptr<SafetensorsFile>> safetensors_;
  std::vector<std::unique_ptr<TorchFile>> torch_;
};

// Re-saved checkpoints sometimes keep the index of shards that are gone beside one whole file.
bool index_is_stale(const SafetensorsIndex& index, const fs::path& folder, const HubFiles& names) {
  if (!fs::exists(folder / names.single)) return false;
  const std::vector<std::string> files = index.files();
  return std::none_of(files.begin(), files.end(),
                      [&](const std::string& file) { return fs::exists(folder / file); });
}

void check_shards_exist(const SafetensorsIndex& index, const fs::path& folder,
                        const std::string& index_path) {
  for (const std::string& file : index.files()) {
    if (!fs::exists(folder / file))
      throw Error(ErrorCode::kNotFound, cat(index_path, ": it lists ", quote(file),
                                            ", which is not in the folder; "
                                            "the download may be incomplete"));
  }
}

}  // namespace

std::unique_ptr<Checkpoint> open_hub_folder(const std::string& path, const HubFiles& names) {
  const fs::path folder(path);
  auto checkpoint = std::make_unique<HubCheckpoint>(path, folder);
  const std::string index_path = (folder / names.index).string();
  if (!fs::exists(index_path)) {
    checkpoint->add_file((folder / names.single).string(), nullptr);
    return checkpoint;
  }
  const SafetensorsIndex index = parse_safetensors_index(read_file(index_path), index_path);
  if (index_is_stale(index, folder, names)) {
    LMD_LOG(kWarning, index_path, ": none of its files exists; ", names.single, " is read instead");
    checkpoint->add_file((folder / names.single).string(), nullptr);
    return checkpoint;
  }
  check_shards_exist(index, folder, index_path);
  for (const std::string& file : index.files()) checkpoint->add_file((folder / file).string(), &index);
  checkpoint->check_complete(index, index_path);
  return checkpoint;
}

std::unique_ptr<Checkpoint> open_hub_files(const std::string& path, const std::vector<std::string>& names) {
  const fs::path folder(path);
  auto checkpoint = std::make_unique<HubCheckpoint>(path, folder);
  for (const std::string& name : names) checkpoint->add_file((folder / name).string(), nullptr);
  return checkpoint;
}

std::unique_ptr<Checkpoint> open_hub_file(const std::string& path) {
  const fs::path file(path);
  const std::string extension = file.extension().string();
  if (const auto part = parse_part_name(file.filename().string(), extension); part && part->count > 1)
    throw Error(ErrorCode::kInvalidArgument,
                cat("open ", path, ": one of ", part->count, " shards; name the folder that holds them all"));
  auto checkpoint = std::make_unique<HubCheckpoint>(path, file.parent_path());
  checkpoint->add_file(path, nullptr);
  return checkpoint;
}

}  // namespace lmdeploy
