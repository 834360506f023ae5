// write_safetensors().
#include <algorithm>
#include <tuple>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/json.h"
#include "lmdeploy/formats/output_file.h"
#include "lmdeploy/formats/quote.h"
#include "lmdeploy/formats/safetensors.h"
#include "lmdeploy/formats/safetensors_dtypes.h"

namespace lmdeploy {
namespace {

constexpr size_t kHeaderAlignment = 8;

std::vector<const NamedTensor*> in_file_order(std::span<const NamedTensor> tensors) {
  std::vector<const NamedTensor*> order;
  order.reserve(tensors.size());
  for (const NamedTensor& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const NamedTensor* a, const NamedTensor* b) {
    return std::tuple(safetensors_rank(a->tensor.dtype()), std::string_view(a->name)) <
           std::tuple(safetensors_rank(b->tensor.dtype()), std::string_view(b->name));
  });
  return order;
}

void check_names(std::span<const NamedTensor> tensors, const std::string& path) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const NamedTensor& tensor : tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end())
    throw Error(ErrorCode::kInvalidArgument, cat("write ", path, ": two tensors are named ", quote(*twice)));
  if (std::binary_search(names.begin(), names.end(), std::string_view("__metadata__")))
    throw Error(ErrorCode::kInvalidArgument,
                cat("write ", path, ": a tensor is named \"__metadata__\", which the format reserves"));
}

JsonObject describe(const NamedTensor& named, size_t begin, const std::string& path) {
  const ConstTensorView tensor = named.tensor;
  const auto dtype = safetensors_name(tensor.dtype());
  if (!dtype)
    throw Error(ErrorCode::kUnsupported,
                cat("write ", path, ": tensor ", quote(named.name), " is ", to_string(tensor.dtype()),
                    "; safetensors holds ", safetensors_dtype_names()));
  JsonArray shape;
  for (int i = 0; i < tensor.rank(); ++i) shape.emplace_back(tensor.dim(i));
  return {{"dtype", *dtype},
          {"shape", std::move(shape)},
          {"data_offsets", {begin, begin + packed_bytes(tensor)}}};
}

std::string little_endian(uint64_t value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};  // safetensors.cc asserts the host's order
}

}  // namespace

void write_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                       std::span<const std::pair<std::string, std::string>> metadata) {
  check_names(tensors, path);
  const std::vector<const NamedTensor*> order = in_file_order(tensors);
  JsonObject header;
  if (!metadata.empty()) {
    JsonObject object;
    for (const auto& [key, value] : metadata) object[key] = value;
    header.emplace("__metadata__", std::move(object));
  }
  size_t offset = 0;
  for (const NamedTensor* tensor : order) {
    header.emplace(tensor->name, describe(*tensor, offset, path));
    offset += packed_bytes(tensor->tensor);
  }
  std::string text = to_json_text(header);
  text.resize((text.size() + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment, ' ');

  OutputFile file(path);
  file.write(little_endian(text.size()));
  file.write(text);
  for (const NamedTensor* tensor : order) file.write(tensor->tensor);
  file.commit();
}

}  // namespace lmdeploy
