// Meta's form: {"params": params.json, "files": [{"NAME": ["f32", rows, cols], ...}, ...]}. The folder that
// says so is opened: one Error, or a checkpoint whose tensors can all be read.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "json_mutation.h"
#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/formats/torch/torch_test_support.h"

namespace {

namespace fs = std::filesystem;
using lmdeploy::DType;
using lmdeploy::Json;
using lmdeploy::JsonArray;
using lmdeploy::JsonObject;

volatile float sink;  // keeps the reads

/// Removed at the end of the run.
class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / lmdeploy::cat("meta_fuzz_", getpid())) {}
  ~Folder() { fs::remove_all(path_); }
  std::string fresh() const {
    fs::remove_all(path_);
    fs::create_directory(path_);
    return path_.string();
  }

 private:
  fs::path path_;
};

/// ["f32", 6, 4]; an empty tensor for what is no such list, or is large.
lmdeploy::Tensor tensor_of(const Json& json) {
  constexpr int64_t kMost = 1 << 10;
  DType dtype = DType::kF32;
  std::vector<int64_t> dims;
  if (json.is_array()) {
    for (const Json& entry : json.get_array()) {
      if (entry.is_string()) dtype = entry == "f16" ? DType::kF16 : DType::kBF16;
      const bool small = entry.is_int64() && entry.get_int64() >= 0 && entry.get_int64() <= kMost;
      if (entry.is_int64()) dims.push_back(small ? entry.get_int64() : 0);
    }
  }
  lmdeploy::Shape shape = {0};
  if (dims.size() == 1) shape = {dims[0]};
  if (dims.size() == 2 && dims[0] * dims[1] <= kMost) shape = {dims[0], dims[1]};
  lmdeploy::Tensor tensor(dtype, shape);
  for (std::byte& byte : tensor.span<std::byte>()) byte = std::byte{1};
  return tensor;
}

void write_file(const std::string& path, const JsonObject& tensors) {
  std::vector<lmdeploy::Tensor> kept;
  for (const auto& entry : tensors) kept.push_back(tensor_of(entry.value()));
  std::vector<lmdeploy::NamedTensor> named;
  size_t next = 0;
  for (const auto& entry : tensors) named.push_back({std::string(entry.key()), kept[next++]});
  std::ofstream(path, std::ios::binary) << lmdeploy::torch_file(named);
}

void read_all(const lmdeploy::Checkpoint& checkpoint) {
  for (size_t i = 0; i < checkpoint.tensors().size(); ++i) {
    const lmdeploy::ConstTensorView view = checkpoint.tensor(i);
    for (int64_t r = 0; r < view.rows(); ++r)
      for (int64_t c = 0; c < view.cols(); ++c) sink = static_cast<float>(view.at(r, c));
    checkpoint.drop(i);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static fuzz::JsonInputs inputs;
  static const Folder folder;
  const JsonObject input = inputs.take(data, size);
  const std::string path = folder.fresh();
  if (const Json* params = input.if_contains("params"))
    std::ofstream(path + "/params.json") << lmdeploy::to_json_text(*params);
  const Json* files = input.if_contains("files");
  constexpr size_t kMostFiles = 4;
  for (size_t i = 0; files != nullptr && files->is_array() && i < files->get_array().size(); ++i) {
    const Json& file = files->get_array()[i];
    if (file.is_object() && i < kMostFiles)
      write_file(lmdeploy::cat(path, "/consolidated.0", i, ".pth"), file.get_object());
  }
  try {
    read_all(*lmdeploy::open_checkpoint(path));
  } catch (const lmdeploy::Error&) {
  }
  return 0;
}
