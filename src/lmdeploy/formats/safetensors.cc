#include "lmdeploy/formats/safetensors.h"

#include <bit>
#include <cstring>
#include <optional>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/json.h"
#include "lmdeploy/formats/quote.h"
#include "lmdeploy/formats/safetensors_dtypes.h"
#include "lmdeploy/formats/tensor_bytes.h"
#include "lmdeploy/formats/unique_keys.h"

namespace lmdeploy {
namespace {

static_assert(std::endian::native == std::endian::little, "tensor bytes are used as they are stored");

constexpr size_t kLengthBytes = 8;
// The limit of the reference implementation; the largest headers seen (30 000 tensors) have 4 MB.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;

// One header entry, with its name in hand for messages.
class EntryReader {
 public:
  EntryReader(std::string_view where, std::string_view name, const Json& entry)
      : where_(where), name_(name), object_(entry.if_object()) {
    if (object_ == nullptr) fail(cat("is ", json_kind(entry), ", expected an object"));
    for (const auto& field : *object_) {
      if (field.key() != "dtype" && field.key() != "shape" && field.key() != "data_offsets")
        fail(cat("has the unknown field ", quote(field.key())));
    }
  }

  SafetensorsTensor read(std::span<const std::byte> data) const {
    const DType dtype = read_dtype();
    const std::vector<int64_t> dims = read_integers("shape");
    if (dims.size() > Shape::kMaxRank)
      fail(cat("has ", dims.size(), " dimensions, at most ", Shape::kMaxRank, " are supported"),
           ErrorCode::kUnsupported);
    const std::vector<int64_t> offsets = read_integers("data_offsets");
    const std::optional<size_t> bytes = tensor_bytes(dtype, dims);
    if (!bytes) fail(cat("has shape ", dims_to_string(dims), ": its size overflows"));
    if (offsets.size() != 2) fail(cat("has ", offsets.size(), " data_offsets, expected 2"));
    const auto begin = static_cast<size_t>(offsets[0]), end = static_cast<size_t>(offsets[1]);
    if (begin > end || end > data.size())
      fail(cat("has data_offsets ", dims_to_string(offsets), ", expected a range within the ", data.size(),
               " bytes of data"));
    if (end - begin != *bytes)
      fail(cat("has ", end - begin, " bytes of data, but shape ", dims_to_string(dims), " of ",
               to_string(dtype), " takes ", *bytes));
    return {std::string(name_), dtype, Shape(dims), data.data() + begin, *bytes};
  }

 private:
  [[noreturn]] void fail(const std::string& what, ErrorCode code = ErrorCode::kInvalidData) const {
    throw Error(code, cat(where_, ": tensor ", quote(name_), " ", what));
  }

  const Json& field(std::string_view key) const {
    const Json* value = object_->if_contains(key);
    if (value == nullptr) fail(cat("has no ", key));
    return *value;
  }

  DType read_dtype() const {
    const Json& value = field("dtype");
    if (!value.is_string()) fail(cat("has a dtype that is ", json_kind(value), ", expected a string"));
    const std::string_view stored = value.get_string();
    const std::optional<DType> dtype = dtype_of_safetensors(stored);
    if (!dtype)
      fail(cat("has dtype ", quote(stored), "; supported are ", safetensors_dtype_names()),
           ErrorCode::kUnsupported);
    return *dtype;
  }

  // Non-negative integers.
  std::vector<int64_t> read_integers(std::string_view key) const {
    const Json& value = field(key);
    if (!value.is_array()) fail(cat("has ", key, " that is ", json_kind(value), ", expected an array"));
    std::vector<int64_t> out;
    for (const Json& item : value.get_array()) {
      if (!item.is_int64() || item.get_int64() < 0)
        fail(cat("has ", key, " with an item that is no integer from 0 to 2^63 - 1"));
      out.push_back(item.get_int64());
    }
    return out;
  }

  std::string_view where_;
  std::string_view name_;
  const JsonObject* object_ = nullptr;
};

// The JSON text between length and data.
std::string_view header_text(std::span<const std::byte> bytes, std::string_view where) {
  if (bytes.size() < kLengthBytes)
    throw Error(ErrorCode::kInvalidData,
                cat(where, ": ", bytes.size(), " bytes, a safetensors file has at least ", kLengthBytes));
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  if (length > bytes.size() - kLengthBytes || length > kMaxHeaderBytes)
    throw Error(ErrorCode::kInvalidData, cat(where, ": the header claims ", length, " bytes; the file has ",
                                             bytes.size() - kLengthBytes, " after the length, at most ",
                                             kMaxHeaderBytes, " are allowed"));
  const std::string_view text(reinterpret_cast<const char*>(bytes.data() + kLengthBytes),
                              static_cast<size_t>(length));
  if (text.empty() || text[0] != '{')
    throw Error(ErrorCode::kInvalidData,
                cat(where, ": the header does not begin with '{': not a safetensors file"));
  return text;
}

std::vector<std::pair<std::string, std::string>> read_metadata(const Json& value, std::string_view where) {
  if (!value.is_object())
    throw Error(ErrorCode::kInvalidData,
                cat(where, ": __metadata__ is ", json_kind(value), ", expected an object of strings"));
  std::vector<std::pair<std::string, std::string>> out;
  for (const auto& item : value.get_object()) {
    if (!item.value().is_string())
      throw Error(ErrorCode::kInvalidData, cat(where, ": __metadata__ key ", quote(item.key()), " is ",
                                               json_kind(item.value()), ", expected a string"));
    out.emplace_back(item.key(), item.value().get_string());
  }
  return out;
}

// The format allows neither overlap nor bytes that belong to no tensor.
void check_coverage(const std::vector<SafetensorsTensor>& tensors, std::span<const std::byte> data,
                    std::string_view where) {
  std::vector<StoredRange> ranges;
  ranges.reserve(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto begin = static_cast<size_t>(tensors[i].data - data.data());
    ranges.push_back({begin, begin + tensors[i].bytes, i});
  }
  if (const auto overlap = find_overlap(ranges))
    throw Error(ErrorCode::kInvalidData, cat(where, ": tensors ", quote(tensors[overlap->first.index].name),
                                             " and ", quote(tensors[overlap->second.index].name),
                                             " overlap at data byte ", overlap->second.begin));
  size_t end = 0;
  ranges.push_back({data.size(), data.size(), 0});
  for (const StoredRange& range : ranges) {
    if (range.begin != end)
      throw Error(ErrorCode::kInvalidData, cat(where, ": data bytes ", end, " to ", range.begin, " of ",
                                               data.size(), " belong to no tensor"));
    end = range.end;
  }
}

}  // namespace

SafetensorsContent parse_safetensors(std::span<const std::byte> bytes, std::string_view where) {
  const std::string_view text = header_text(bytes, where);
  const std::string header_where = cat(where, ": header");
  const Json header = parse_json(text, header_where);
  refuse_duplicate_keys(text, header_where);
  const std::span<const std::byte> data = bytes.subspan(kLengthBytes + text.size());
  SafetensorsContent content;
  for (const auto& item : header.get_object()) {
    if (item.key() == "__metadata__") {
      content.metadata = read_metadata(item.value(), where);
    } else {
      content.tensors.push_back(EntryReader(where, item.key(), item.value()).read(data));
    }
  }
  check_coverage(content.tensors, data, where);
  return content;
}

SafetensorsFile::SafetensorsFile(const std::string& path)
    : file_(path), content_(parse_safetensors(file_.bytes(), path)) {}

const SafetensorsTensor* SafetensorsFile::find(std::string_view name) const {
  for (const SafetensorsTensor& tensor : content_.tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

}  // namespace lmdeploy
