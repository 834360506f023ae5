// The implementations behind open_checkpoint(), and what they share.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lmdeploy/core/mapped_file.h"
#include "lmdeploy/core/tensor.h"
#include "lmdeploy/formats/checkpoint.h"

namespace lmdeploy {

/// Tensors spread over mapped files. The maker calls add_tensor() for each.
class MappedCheckpoint : public Checkpoint {
 public:
  ConstTensorView tensor(size_t index) const override;
  void drop(size_t index) const override;

 protected:
  /// `strides`: in elements, one per dimension, inside `bytes`; empty for contiguous rows. Throws
  /// Error(kInvalidData) when a tensor of that name is there already. `file` must live as long as this.
  void add_tensor(TensorInfo info, std::span<const std::byte> bytes, const MappedFile& file,
                  std::vector<int64_t> strides = {});

 private:
  struct Place {
    std::span<const std::byte> bytes;
    const MappedFile* file = nullptr;
    std::vector<int64_t> strides;
  };
  std::vector<Place> places_;  // as tensors_
  mutable std::mutex copies_mutex_;
  mutable std::map<size_t, Tensor> copies_;  // of misaligned and of strided tensors
};

/// The names of hub-form weights: one file, or an index of several.
struct HubFiles {
  const char* single;
  const char* index;
};
constexpr HubFiles kSafetensorsFiles = {"model.safetensors", "model.safetensors.index.json"};
constexpr HubFiles kTorchFiles = {"pytorch_model.bin", "pytorch_model.bin.index.json"};

/// A folder with config.json and one of the two files.
std::unique_ptr<Checkpoint> open_hub_folder(const std::string& folder, const HubFiles& files);
/// A folder with config.json and all of these weight files (names in it).
std::unique_ptr<Checkpoint> open_hub_files(const std::string& folder, const std::vector<std::string>& names);
/// One .safetensors, .bin, .pt or .pth file, its config.json beside it.
std::unique_ptr<Checkpoint> open_hub_file(const std::string& path);
/// A folder with params.json and these files (consolidated.NN.pth), as Meta publishes Llama. `path`: what the
/// caller named.
std::unique_ptr<Checkpoint> open_meta(const std::string& path, const std::string& folder,
                                      const std::vector<std::string>& names);
/// `file`: a .gguf file, or any part of a split one. `path`: what the caller named.
std::unique_ptr<Checkpoint> open_gguf(const std::string& path, const std::string& file);

/// "model-00002-of-00005.gguf": part 2 of 5 of the stem "model".
struct PartName {
  std::string stem;
  int number = 0;  // from 1
  int count = 0;
};
/// Nothing when `file_name` is not the name of a part. `extension` has its dot.
std::optional<PartName> parse_part_name(std::string_view file_name, std::string_view extension);
std::string part_file_name(const PartName& part, int number, std::string_view extension);

}  // namespace lmdeploy
