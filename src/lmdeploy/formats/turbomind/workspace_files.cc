#include "lmdeploy/formats/turbomind/workspace_files.h"

#include <algorithm>
#include <filesystem>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/quote.h"

namespace lmdeploy {
namespace {

namespace fs = std::filesystem;

uintmax_t bytes_of(DType dtype, const Shape& shape) {
  return static_cast<uintmax_t>(shape.numel()) * static_cast<uintmax_t>(block_bytes(dtype));
}

bool is_weight_file(const std::string& name) {
  constexpr std::string_view kKinds[] = {".weight", ".bias",  ".qweight",
                                         ".scales", ".zeros", ".scales_zeros"};
  return std::any_of(std::begin(kKinds), std::end(kKinds),
                     [&](std::string_view kind) { return name.ends_with(kind); });
}

}  // namespace

WorkspaceFiles::WorkspaceFiles(const std::string& path, const std::string& folder) : folder_(folder) {
  path_ = path;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;  // a dangling link is no file
    if (it->is_regular_file(ignored)) sizes_[it->path().filename().string()] = it->file_size(ignored);
  }
  if (error) throw Error(ErrorCode::kIo, cat("list ", folder, ": ", error.message()));
}

size_t WorkspaceFiles::claim(const std::string& name, DType dtype, const Shape& shape, const Shape& other) {
  const std::string file = (fs::path(folder_) / name).string();
  const auto found = sizes_.find(name);
  if (found == sizes_.end())
    throw Error(ErrorCode::kNotFound, cat("open ", path_, ": there is no ", file,
                                          "; the conversion or the copy may be incomplete"));
  const bool is_other = other.rank() > 0 && found->second == bytes_of(dtype, other);
  if (!is_other && found->second != bytes_of(dtype, shape))
    throw Error(ErrorCode::kInvalidData,
                cat("open ", path_, ": ", file, " has ", found->second, " bytes, expected ",
                    bytes_of(dtype, shape), " for ", dtype, " ", shape));
  add_info({name, dtype, is_other ? other : shape, file, name});
  return tensors_.size() - 1;
}

std::vector<std::string> WorkspaceFiles::unclaimed() const {
  std::vector<std::string> claimed, names;
  for (const TensorInfo& info : tensors_) claimed.push_back(info.name);
  std::sort(claimed.begin(), claimed.end());
  for (const auto& [name, size] : sizes_)
    if (is_weight_file(name) && !std::binary_search(claimed.begin(), claimed.end(), name))
      names.push_back(name);
  return names;
}

ConstTensorView WorkspaceFiles::tensor(size_t index) const {
  LMD_CHECK(index < tensors_.size(), index, " of ", tensors_.size());
  const TensorInfo& info = tensors_[index];
  const std::lock_guard lock(mutex_);
  std::unique_ptr<MappedFile>& file = mapped_[index];
  if (file == nullptr) file = std::make_unique<MappedFile>(info.file);
  if (file->bytes().size() != bytes_of(info.dtype, info.shape))
    throw Error(ErrorCode::kInvalidData,
                cat("read ", info.file, ": it has ", file->bytes().size(), " bytes, it had ",
                    bytes_of(info.dtype, info.shape), " when it was opened"));
  return {file->bytes().data(), info.dtype, info.shape};
}

void WorkspaceFiles::drop(size_t index) const {
  const std::lock_guard lock(mutex_);
  mapped_.erase(index);
}

}  // namespace lmdeploy
