// write_gguf().
#include <algorithm>
#include <cmath>
#include <concepts>
#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/gguf.h"
#include "lmdeploy/formats/gguf_layout.h"
#include "lmdeploy/formats/output_file.h"
#include "lmdeploy/formats/quote.h"

namespace lmdeploy {
namespace {

// Collects the part before the data.
class HeaderWriter {
 public:
  explicit HeaderWriter(const std::string& path) : path_(path) {}

  template <typename T>
  void put(T value) {
    out_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  void put_string(std::string_view text) {
    put<uint64_t>(text.size());
    out_ += text;
  }
  void put_item(const GgufItem& item) {
    put_string(item.key);
    std::visit([&](const auto& value) { put_value(item, value); }, item.value);
  }
  const std::string& bytes() const { return out_; }

 private:
  [[noreturn]] void misfit(const GgufItem& item) const {
    throw Error(ErrorCode::kInvalidArgument,
                cat("write ", path_, ": metadata key ", quote(item.key), " is ", gguf_kind(item.value),
                    ", which does not fit type ", static_cast<uint32_t>(item.type)));
  }

  template <typename T>
  void put_value(const GgufItem& item, const T& value) {
    put(item.type);
    put_scalar(item, value);
  }
  template <typename T>
  void put_value(const GgufItem& item, const std::vector<T>& values) {
    if (item.type == GgufType::kArray) misfit(item);
    put(GgufType::kArray);
    put(item.type);
    put<uint64_t>(values.size());
    for (const auto& value : values) put_scalar(item, T(value));
  }

  void put_scalar(const GgufItem& item, bool value) {
    if (item.type != GgufType::kBool) misfit(item);
    put<uint8_t>(value ? 1 : 0);
  }
  void put_scalar(const GgufItem& item, std::string_view value) {
    if (item.type != GgufType::kString) misfit(item);
    put_string(value);
  }
  void put_scalar(const GgufItem& item, double value) {
    if (item.type == GgufType::kF32 && std::isfinite(value) == std::isfinite(static_cast<float>(value)))
      return put(static_cast<float>(value));
    if (item.type == GgufType::kF64) return put(value);
    misfit(item);
  }
  template <std::integral T>
  void put_scalar(const GgufItem& item, T value) {
    switch (item.type) {
      case GgufType::kU8:
        return put_narrow<uint8_t>(item, value);
      case GgufType::kI8:
        return put_narrow<int8_t>(item, value);
      case GgufType::kU16:
        return put_narrow<uint16_t>(item, value);
      case GgufType::kI16:
        return put_narrow<int16_t>(item, value);
      case GgufType::kU32:
        return put_narrow<uint32_t>(item, value);
      case GgufType::kI32:
        return put_narrow<int32_t>(item, value);
      case GgufType::kU64:
        return put_narrow<uint64_t>(item, value);
      case GgufType::kI64:
        return put_narrow<int64_t>(item, value);
      default:
        misfit(item);
    }
  }
  template <typename Stored, typename T>
  void put_narrow(const GgufItem& item, T value) {
    if (!std::in_range<Stored>(value)) misfit(item);
    put(static_cast<Stored>(value));
  }

  const std::string& path_;
  std::string out_;
};

template <typename Items, typename Name>
void refuse_duplicates(const Items& items, Name name, const std::string& path) {
  std::vector<std::string_view> names;
  for (const auto& item : items) names.push_back(name(item));
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end())
    throw Error(ErrorCode::kInvalidArgument, cat("write ", path, ": ", quote(*twice), " is given twice"));
}

uint64_t alignment_of(std::span<const GgufItem> metadata, const std::string& path) {
  for (const GgufItem& item : metadata) {
    if (item.key != kGgufAlignmentKey) continue;
    const int64_t* value = std::get_if<int64_t>(&item.value);
    if (value == nullptr || *value < 0 || !valid_gguf_alignment(static_cast<uint64_t>(*value)))
      throw Error(ErrorCode::kInvalidArgument, cat("write ", path, ": ", kGgufAlignmentKey,
                                                   " must be a power of two from 8 to ", kGgufMaxAlignment));
    return static_cast<uint64_t>(*value);
  }
  return kGgufDefaultAlignment;
}

void put_description(HeaderWriter& out, const GgufNamedTensor& named, uint64_t offset,
                     const std::string& path) {
  const ConstTensorView tensor = named.tensor;
  const auto kind = gguf_kind_of(tensor.dtype());
  if (!kind)
    throw Error(ErrorCode::kUnsupported,
                cat("write ", path, ": tensor ", quote(named.name), " is ", to_string(tensor.dtype()),
                    "; GGUF holds ", gguf_supported_kinds()));
  out.put_string(named.name);
  out.put(static_cast<uint32_t>(tensor.rank()));
  for (int i = tensor.rank() - 1; i >= 0; --i) out.put(tensor.dim(i));
  out.put(*kind);
  out.put(offset);
}

}  // namespace

void write_gguf(const std::string& path, std::span<const GgufItem> metadata,
                std::span<const GgufNamedTensor> tensors) {
  refuse_duplicates(
      metadata, [](const GgufItem& item) { return std::string_view(item.key); }, path);
  refuse_duplicates(
      tensors, [](const GgufNamedTensor& item) { return std::string_view(item.name); }, path);
  const uint64_t alignment = alignment_of(metadata, path);
  HeaderWriter header(path);
  header.put(kGgufMagic);
  header.put(kGgufVersion);
  header.put<uint64_t>(tensors.size());
  header.put<uint64_t>(metadata.size());
  for (const GgufItem& item : metadata) header.put_item(item);
  uint64_t offset = 0;
  for (const GgufNamedTensor& tensor : tensors) {
    put_description(header, tensor, offset, path);
    offset = (offset + packed_bytes(tensor.tensor) + alignment - 1) / alignment * alignment;
  }
  OutputFile file(path);
  file.write(header.bytes());
  for (const GgufNamedTensor& tensor : tensors) {
    file.pad_to(alignment);
    file.write(tensor.tensor);
  }
  file.pad_to(alignment);
  file.commit();
}

}  // namespace lmdeploy
