// Checkpoints in GGUF files, whole or split into parts.
#include <algorithm>
#include <filesystem>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/checkpoint_kinds.h"
#include "lmdeploy/formats/gguf.h"
#include "lmdeploy/formats/gguf_hub.h"

namespace lmdeploy {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> part_paths(const std::string& file) {
  const fs::path path(file);
  const auto part = parse_part_name(path.filename().string(), ".gguf");
  if (!part) return {file};
  std::vector<std::string> paths;
  for (int number = 1; number <= part->count; ++number) {
    paths.push_back((path.parent_path() / part_file_name(*part, number, ".gguf")).string());
    if (!fs::exists(paths.back()))
      throw Error(ErrorCode::kNotFound, cat("open ", file, ": part ", number, " of ", part->count, ", ",
                                            paths.back(), ", is missing"));
  }
  return paths;
}

class GgufCheckpoint : public MappedCheckpoint {
 public:
  GgufCheckpoint(const std::string& path, const std::string& file) {
    path_ = path;
    weight_format_ = WeightFormat::kGguf;
    files_ = part_paths(file);
    for (const std::string& part : files_) parts_.push_back(std::make_unique<GgufFile>(part));
    check_parts();
    config_path_ = parts_[0]->path();
    GgufContent whole = parts_[0]->content();
    for (size_t i = 1; i < parts_.size(); ++i)
      whole.tensors.insert(whole.tensors.end(), parts_[i]->tensors().begin(), parts_[i]->tensors().end());
    config_ = hub_config(whole, config_path_);
    const std::string_view architecture = parts_[0]->get_string("general.architecture");
    for (const auto& part : parts_) {
      for (const GgufTensor& tensor : part->tensors())
        add_tensor({hub_tensor_name(architecture, tensor.name), tensor.dtype, tensor.shape, part->path(),
                    std::string(tensor.name)},
                   {tensor.data, tensor.bytes}, part->file());
    }
  }

 private:
  // Every part says its number (from 0) and how many there are.
  void check_parts() const {
    const auto count = static_cast<int64_t>(parts_.size());
    for (int64_t i = 0; i < count; ++i) {
      const GgufFile& part = *parts_[static_cast<size_t>(i)];
      const int64_t said_count = part.get_int("split.count", 1), said_number = part.get_int("split.no", 0);
      if (std::max<int64_t>(said_count, 1) != count || said_number != i)
        throw Error(ErrorCode::kInvalidData,
                    cat(part.path(), ": metadata say part ", said_number + 1, " of ", said_count,
                        ", its name and the files beside it part ", i + 1, " of ", count));
    }
  }

  std::vector<std::unique_ptr<GgufFile>> parts_;
};

}  // namespace

std::unique_ptr<Checkpoint> open_gguf(const std::string& path, const std::string& file) {
  return std::make_unique<GgufCheckpoint>(path, file);
}

}  // namespace lmdeploy
