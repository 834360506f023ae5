#include "lmdeploy/formats/gguf.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <unordered_set>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/byte_reader.h"
#include "lmdeploy/formats/gguf_layout.h"
#include "lmdeploy/formats/quote.h"
#include "lmdeploy/formats/tensor_bytes.h"

namespace lmdeploy {
namespace {

// The least a metadata entry can take: length of an empty key, type, a one-byte value.
constexpr uint64_t kMinEntryBytes = 8 + 4 + 1;
// The least a tensor description can take: length of an empty name, no dimensions, kind, offset.
constexpr uint64_t kMinTensorBytes = 8 + 4 + 4 + 8;
// Of one stored value of an integer type; 0 for other types.
uint64_t integer_bytes(uint32_t type) {
  switch (static_cast<GgufType>(type)) {
    case GgufType::kU8:
    case GgufType::kI8:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
      return 8;
    default:
      return 0;
  }
}

// Far above the largest vocabulary or merge list; keeps widened arrays of a hostile file small.
constexpr uint64_t kMaxArrayItems = uint64_t{1} << 24;
// The format's own limit (ggml.h, GGML_MAX_DIMS).
constexpr uint32_t kMaxStoredDims = 4;
static_assert(kMaxStoredDims <= Shape::kMaxRank);

class GgufParser {
 public:
  GgufParser(std::span<const std::byte> bytes, std::string_view where)
      : bytes_(bytes), where_(where), in_(bytes, where) {}

  GgufContent parse() {
    read_preamble();
    const auto num_tensors = read_count("tensor count", kMinTensorBytes);
    const auto num_entries = read_count("metadata count", kMinEntryBytes);
    read_metadata(num_entries);
    read_tensors(num_tensors);
    return std::move(content_);
  }

 private:
  [[noreturn]] void fail(const std::string& what, ErrorCode code = ErrorCode::kInvalidData) const {
    throw Error(code, cat(where_, ": ", what));
  }

  void read_preamble() {
    const auto magic = in_.read<uint32_t>("magic number");
    if (magic != kGgufMagic) fail("does not begin with \"GGUF\": not a GGUF file");
    const auto version = in_.read<uint32_t>("version");
    if (version == 2 || version == kGgufVersion) return;
    if ((version & 0xffffu) == 0 && version != 0)
      fail("GGUF for a big-endian machine; convert it with gguf-py's gguf_convert_endian.py",
           ErrorCode::kUnsupported);
    fail(cat("GGUF version ", version, "; supported are 2 and 3",
             version == 1 ? " (1 has 32-bit lengths; convert the model again)" : ""),
         ErrorCode::kUnsupported);
  }

  // A count of things that take at least `min_bytes` each: refused when the file cannot hold them.
  uint64_t read_count(std::string_view what, uint64_t min_bytes) {
    const auto count = in_.read<uint64_t>(what);
    if (count > in_.remaining() / min_bytes)
      fail(cat(what, " is ", count, ", more than the ", in_.remaining(), " bytes that follow can hold"));
    return count;
  }

  std::string_view read_string(std::string_view what) {
    const auto length = in_.read<uint64_t>(what);
    const auto bytes = in_.take(length, what);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  void read_metadata(uint64_t count) {
    std::unordered_set<std::string_view> seen;
    content_.metadata.reserve(count);
    for (uint64_t i = 0; i < count; ++i) {
      const std::string_view key = read_string("metadata key");
      if (!seen.insert(key).second) fail(cat("metadata key ", quote(key), " appears twice"));
      content_.metadata.emplace_back(key, read_value(key));
    }
  }

  GgufValue read_value(std::string_view key) {
    const auto type = in_.read<uint32_t>("metadata type");
    return type == static_cast<uint32_t>(GgufType::kArray) ? read_array(key) : read_scalar(key, type);
  }

  GgufValue read_scalar(std::string_view key, uint32_t type) {
    switch (static_cast<GgufType>(type)) {
      case GgufType::kBool:
        return read_bool(key);
      case GgufType::kString:
        return read_string("metadata string");
      case GgufType::kF32:
        return double{in_.read<float>("metadata value")};
      case GgufType::kF64:
        return in_.read<double>("metadata value");
      case GgufType::kU64: {
        const auto value = in_.read<uint64_t>("metadata value");
        if (value > uint64_t{std::numeric_limits<int64_t>::max()}) return value;
        return static_cast<int64_t>(value);
      }
      default:
        return read_integer(key, type);
    }
  }

  bool read_bool(std::string_view key) {
    const auto value = in_.read<uint8_t>("metadata value");
    if (value > 1)
      fail(cat("metadata key ", quote(key), " is a bool stored as ", value, ", expected 0 or 1"));
    return value == 1;
  }

  // Any integer type whose values all fit int64, and u64 where they do.
  int64_t read_integer(std::string_view key, uint32_t type) {
    constexpr std::string_view kWhat = "metadata value";
    switch (static_cast<GgufType>(type)) {
      case GgufType::kU8:
        return in_.read<uint8_t>(kWhat);
      case GgufType::kI8:
        return in_.read<int8_t>(kWhat);
      case GgufType::kU16:
        return in_.read<uint16_t>(kWhat);
      case GgufType::kI16:
        return in_.read<int16_t>(kWhat);
      case GgufType::kU32:
        return in_.read<uint32_t>(kWhat);
      case GgufType::kI32:
        return in_.read<int32_t>(kWhat);
      case GgufType::kI64:
        return in_.read<int64_t>(kWhat);
      case GgufType::kU64: {
        const auto value = in_.read<uint64_t>(kWhat);
        if (value <= uint64_t{std::numeric_limits<int64_t>::max()}) return static_cast<int64_t>(value);
        fail(cat("metadata key ", quote(key), " is an array with the item ", value, ", above 2^63 - 1"),
             ErrorCode::kUnsupported);
      }
      default:
        fail(cat("metadata key ", quote(key), " has the unknown type ", type));
    }
  }

  // `item_bytes`: the least one item takes in the file.
  template <typename T, typename ReadItem>
  std::vector<T> read_items(std::string_view key, uint64_t count, uint64_t item_bytes, ReadItem read_item) {
    if (count > in_.remaining() / item_bytes)
      fail(cat("metadata key ", quote(key), " claims ", count, " items, more than the ", in_.remaining(),
               " bytes that follow can hold"));
    if (count > kMaxArrayItems)
      fail(cat("metadata key ", quote(key), " has ", count, " items, at most ", kMaxArrayItems,
               " are supported"),
           ErrorCode::kUnsupported);
    std::vector<T> out;
    out.reserve(count);
    for (uint64_t i = 0; i < count; ++i) out.push_back(read_item());
    return out;
  }

  GgufValue read_array(std::string_view key) {
    const auto type = in_.read<uint32_t>("array type");
    const auto count = in_.read<uint64_t>("array length");
    switch (static_cast<GgufType>(type)) {
      case GgufType::kBool:
        return read_items<bool>(key, count, 1, [&] { return read_bool(key); });
      case GgufType::kString:
        return read_items<std::string_view>(key, count, 8, [&] { return read_string("metadata string"); });
      case GgufType::kF32:
        return read_items<double>(key, count, 4, [&] { return double{in_.read<float>("metadata value")}; });
      case GgufType::kF64:
        return read_items<double>(key, count, 8, [&] { return in_.read<double>("metadata value"); });
      case GgufType::kArray:
        fail(cat("metadata key ", quote(key), " is an array of arrays, which is not supported"),
             ErrorCode::kUnsupported);
      default:
        if (integer_bytes(type) == 0)
          fail(cat("metadata key ", quote(key), " has items of the unknown type ", type));
        return read_items<int64_t>(key, count, integer_bytes(type), [&] { return read_integer(key, type); });
    }
  }

  uint64_t alignment() const {
    for (const auto& [key, value] : content_.metadata) {
      if (key != kGgufAlignmentKey) continue;
      const int64_t* stored = std::get_if<int64_t>(&value);
      if (stored == nullptr || *stored < 0 || !valid_gguf_alignment(static_cast<uint64_t>(*stored)))
        fail(cat("metadata key \"", kGgufAlignmentKey, "\" is ",
                 stored ? cat(*stored) : std::string(gguf_kind(value)),
                 ", expected a power of two from 8 to ", kGgufMaxAlignment));
      return static_cast<uint64_t>(*stored);
    }
    return kGgufDefaultAlignment;
  }

  // A tensor as described; `offset` counts from the start of the data section.
  struct Described {
    GgufTensor tensor;
    uint64_t offset = 0;
  };

  Described read_description() {
    Described out;
    out.tensor.name = read_string("tensor name");
    const std::string label = cat("tensor ", quote(out.tensor.name));
    const auto rank = in_.read<uint32_t>("number of dimensions");
    if (rank > kMaxStoredDims)
      fail(cat(label, " has ", rank, " dimensions, at most ", kMaxStoredDims, " are allowed"));
    std::vector<int64_t> dims(rank);
    for (auto dim = dims.rbegin(); dim != dims.rend(); ++dim) *dim = in_.read<int64_t>("dimension");
    const auto kind = in_.read<uint32_t>("tensor kind");
    const std::optional<DType> dtype = dtype_of_gguf_kind(kind);
    if (!dtype)
      fail(cat(label, " has kind ", kind, " (", gguf_kind_name(kind), "); supported are ",
               gguf_supported_kinds()),
           ErrorCode::kUnsupported);
    const std::optional<size_t> bytes = tensor_bytes(*dtype, dims);
    if (!bytes)
      fail(cat(label, " has shape ", dims_to_string(dims), ", which overflows or is no whole number of ",
               to_string(*dtype), " blocks of ", block_size(*dtype)));
    out.tensor.dtype = *dtype;
    out.tensor.shape = Shape(dims);
    out.tensor.bytes = *bytes;
    out.offset = in_.read<uint64_t>("tensor offset");
    return out;
  }

  void read_tensors(uint64_t count) {
    const uint64_t align = alignment();
    std::vector<Described> described;
    described.reserve(count);
    std::unordered_set<std::string_view> seen;
    for (uint64_t i = 0; i < count; ++i) {
      described.push_back(read_description());
      const std::string_view name = described.back().tensor.name;
      if (!seen.insert(name).second) fail(cat("tensor ", quote(name), " appears twice"));
    }
    const uint64_t data_start = (in_.position() + align - 1) / align * align;
    const uint64_t data_size = bytes_.size() - std::min<uint64_t>(data_start, bytes_.size());
    for (Described& item : described) {
      check_place(item, align, data_size);
      item.tensor.data = bytes_.data() + (item.tensor.bytes == 0 ? 0 : data_start + item.offset);
      content_.tensors.push_back(item.tensor);
    }
    check_overlap(described);
  }

  void check_place(const Described& item, uint64_t align, uint64_t data_size) const {
    const GgufTensor& tensor = item.tensor;
    if (item.offset % align != 0)
      fail(cat("tensor ", quote(tensor.name), " begins at data byte ", item.offset,
               ", expected a multiple of ", align));
    if (item.offset > data_size || tensor.bytes > data_size - item.offset)
      fail(cat("tensor ", quote(tensor.name), " has ", tensor.bytes, " bytes from data byte ", item.offset,
               ", the file has ", data_size, ": cut short or damaged"));
  }

  void check_overlap(const std::vector<Described>& described) const {
    std::vector<StoredRange> ranges;
    ranges.reserve(described.size());
    for (size_t i = 0; i < described.size(); ++i) {
      const auto begin = static_cast<size_t>(described[i].offset);
      ranges.push_back({begin, begin + described[i].tensor.bytes, i});
    }
    if (const auto overlap = find_overlap(ranges))
      fail(cat("tensors ", quote(described[overlap->first.index].tensor.name), " and ",
               quote(described[overlap->second.index].tensor.name), " overlap at data byte ",
               overlap->second.begin));
  }

  std::span<const std::byte> bytes_;
  std::string_view where_;
  ByteReader in_;
  GgufContent content_;
};

template <typename T>
const T* value_of(const GgufFile& file, std::string_view key, std::string_view expected) {
  const GgufValue* value = file.find(key);
  if (value == nullptr) return nullptr;
  if (const T* typed = std::get_if<T>(value)) return typed;
  throw Error(ErrorCode::kInvalidData, cat(file.path(), ": metadata key ", quote(key), " is ",
                                           gguf_kind(*value), ", expected ", expected));
}

}  // namespace

std::string_view gguf_kind(const GgufValue& value) {
  constexpr std::array<std::string_view, std::variant_size_v<GgufValue>> kKinds = {
      "a bool",
      "an integer",
      "an integer above 2^63 - 1",
      "a number",
      "a string",
      "an array of bools",
      "an array of integers",
      "an array of numbers",
      "an array of strings"};
  return kKinds[value.index()];
}

GgufContent parse_gguf(std::span<const std::byte> bytes, std::string_view where) {
  return GgufParser(bytes, where).parse();
}

GgufFile::GgufFile(const std::string& path) : file_(path), content_(parse_gguf(file_.bytes(), path)) {}

const GgufValue* GgufContent::find(std::string_view key) const {
  for (const auto& [known, value] : metadata) {
    if (known == key) return &value;
  }
  return nullptr;
}

std::string_view GgufFile::get_string(std::string_view key, std::string_view fallback) const {
  const auto* value = value_of<std::string_view>(*this, key, "a string");
  return value == nullptr ? fallback : *value;
}

int64_t GgufFile::get_int(std::string_view key, int64_t fallback) const {
  const auto* value = value_of<int64_t>(*this, key, "an integer");
  return value == nullptr ? fallback : *value;
}

double GgufFile::get_double(std::string_view key, double fallback) const {
  if (const GgufValue* value = find(key); value != nullptr && std::holds_alternative<int64_t>(*value))
    return static_cast<double>(std::get<int64_t>(*value));
  const auto* value = value_of<double>(*this, key, "a number");
  return value == nullptr ? fallback : *value;
}

bool GgufFile::get_bool(std::string_view key, bool fallback) const {
  const auto* value = value_of<bool>(*this, key, "a bool");
  return value == nullptr ? fallback : *value;
}

}  // namespace lmdeploy
