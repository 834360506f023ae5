// Checkpoints in the hub's form: config.json and safetensors files.
#include <algorithm>
#include <filesystem>
#include <map>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/log.h"
#include "lmdeploy/formats/checkpoint_kinds.h"
#include "lmdeploy/formats/quote.h"
#include "lmdeploy/formats/safetensors.h"
#include "lmdeploy/formats/safetensors_index.h"

namespace lmdeploy {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

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
    const std::string generation = (folder / "generation_config.json").string();
    if (fs::exists(generation)) generation_config_ = read_object(generation);
  }

  void add_file(const std::string& path, const SafetensorsIndex* index) {
    files_.push_back(std::make_unique<SafetensorsFile>(path));
    const std::string file_name = fs::path(path).filename().string();
    for (const SafetensorsTensor& tensor : files_.back()->tensors()) {
      if (index != nullptr && index->elsewhere(tensor.name, file_name)) {
        LMD_LOG(kWarning, path, ": tensor ", quote(tensor.name), " is ignored: ", kIndexFile,
                " takes it from another file");
        continue;
      }
      add_tensor({tensor.name, tensor.dtype, tensor.shape, path, tensor.name}, tensor.data, tensor.bytes,
                 files_.back()->file());
    }
  }

  void check_complete(const SafetensorsIndex& index, const std::string& index_path) const {
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
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
};

// Re-saved checkpoints sometimes keep the index of shards that are gone beside one whole file.
bool index_is_stale(const SafetensorsIndex& index, const fs::path& folder) {
  if (!fs::exists(folder / kSingleFile)) return false;
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

std::unique_ptr<Checkpoint> open_hub_folder(const std::string& path) {
  const fs::path folder(path);
  auto checkpoint = std::make_unique<HubCheckpoint>(path, folder);
  const std::string index_path = (folder / kIndexFile).string();
  if (!fs::exists(index_path)) {
    checkpoint->add_file((folder / kSingleFile).string(), nullptr);
    return checkpoint;
  }
  const SafetensorsIndex index = parse_safetensors_index(read_file(index_path), index_path);
  if (index_is_stale(index, folder)) {
    LMD_LOG(kWarning, index_path, ": none of its files exists; ", kSingleFile, " is read instead");
    checkpoint->add_file((folder / kSingleFile).string(), nullptr);
    return checkpoint;
  }
  check_shards_exist(index, folder, index_path);
  for (const std::string& file : index.files()) checkpoint->add_file((folder / file).string(), &index);
  checkpoint->check_complete(index, index_path);
  return checkpoint;
}

std::unique_ptr<Checkpoint> open_safetensors(const std::string& path) {
  const fs::path file(path);
  if (const auto part = parse_part_name(file.filename().string(), ".safetensors"); part && part->count > 1)
    throw Error(ErrorCode::kInvalidArgument,
                cat("open ", path, ": one of ", part->count, " shards; name the folder that holds them all"));
  auto checkpoint = std::make_unique<HubCheckpoint>(path, file.parent_path());
  checkpoint->add_file(path, nullptr);
  return checkpoint;
}

}  // namespace lmdeploy
