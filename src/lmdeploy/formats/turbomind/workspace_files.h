// The weight files of a workspace: raw numbers, one tensor in each.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "lmdeploy/core/mapped_file.h"
#include "lmdeploy/formats/checkpoint.h"

namespace lmdeploy {

/// Each file that has been claimed is a tensor under its file name. A file is mapped when it is asked for and
/// closed by drop(): there may be more of them than a process can map.
class WorkspaceFiles : public Checkpoint {
 public:
  /// `path`: what the user named.
  WorkspaceFiles(const std::string& path, const std::string& folder);

  bool has(const std::string& name) const { return sizes_.contains(name); }
  /// The file must be there and have as many bytes as `shape` of `dtype` takes, or `other` if that is given:
  /// Error(kNotFound | kInvalidData) naming the file and both sizes. Returns its index.
  size_t claim(const std::string& name, DType dtype, const Shape& shape, const Shape& other = {});
  /// Names of weight files that nobody has claimed, sorted.
  std::vector<std::string> unclaimed() const;

  ConstTensorView tensor(size_t index) const override;
  void drop(size_t index) const override;

 private:
  std::string folder_;
  std::map<std::string, uintmax_t, std::less<>> sizes_;  // of the files in the folder
  mutable std::mutex mutex_;
  mutable std::map<size_t, std::unique_ptr<MappedFile>> mapped_;
};

}  // namespace lmdeploy
