#include "lmdeploy/formats/torch/torch_file.h"

#include <array>
#include <bit>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/log.h"
#include "lmdeploy/formats/byte_reader.h"
#include "lmdeploy/formats/quote.h"
#include "lmdeploy/formats/tensor_bytes.h"
#include "lmdeploy/formats/torch/pickle.h"
#include "lmdeploy/formats/torch/zip.h"

namespace lmdeploy {
namespace {

static_assert(std::endian::native == std::endian::little, "tensor bytes are used as they are stored");

using Kind = PickleValue::Kind;
using Use = PickleGlobal::Use;

// What a name of torch means here.
enum class Meaning {
  kOther,      // harmless
  kStorage,    // a storage with elements of one kind
  kBytes,      // a storage without a kind
  kDType,      // a kind by itself
  kTensor,     // (storage, offset, size, stride, requires_grad, hooks)
  kTensorV3,   // (storage, offset, size, stride, requires_grad, hooks, dtype)
  kParameter,  // (tensor, requires_grad, hooks)
};

struct TorchName {
  PickleGlobal global;
  Meaning meaning = Meaning::kOther;
  DType dtype = DType::kU8;  // kStorage, kDType
};

constexpr std::array kNames = {
    TorchName{{"collections", "OrderedDict", Use::kDict}},
    TorchName{{"torch._utils", "_rebuild_tensor", Use::kCall}, Meaning::kTensor},
    TorchName{{"torch._utils", "_rebuild_tensor_v2", Use::kCall}, Meaning::kTensor},
    TorchName{{"torch._utils", "_rebuild_tensor_v3", Use::kCall}, Meaning::kTensorV3},
    TorchName{{"torch._utils", "_rebuild_parameter", Use::kCall}, Meaning::kParameter},
    TorchName{{"torch", "Size", Use::kCall}},
    TorchName{{"torch", "device", Use::kCall}},
    TorchName{{"torch", "DoubleStorage"}, Meaning::kStorage, DType::kF64},
    TorchName{{"torch", "FloatStorage"}, Meaning::kStorage, DType::kF32},
    TorchName{{"torch", "HalfStorage"}, Meaning::kStorage, DType::kF16},
    TorchName{{"torch", "BFloat16Storage"}, Meaning::kStorage, DType::kBF16},
    TorchName{{"torch", "LongStorage"}, Meaning::kStorage, DType::kI64},
    TorchName{{"torch", "IntStorage"}, Meaning::kStorage, DType::kI32},
    TorchName{{"torch", "ShortStorage"}, Meaning::kStorage, DType::kI16},
    TorchName{{"torch", "CharStorage"}, Meaning::kStorage, DType::kI8},
    TorchName{{"torch", "ByteStorage"}, Meaning::kStorage, DType::kU8},
    TorchName{{"torch", "BoolStorage"}, Meaning::kStorage, DType::kBool},
    TorchName{{"torch.storage", "UntypedStorage"}, Meaning::kBytes},
    TorchName{{"torch", "UntypedStorage"}, Meaning::kBytes},
    TorchName{{"torch", "float64"}, Meaning::kDType, DType::kF64},
    TorchName{{"torch", "float32"}, Meaning::kDType, DType::kF32},
    TorchName{{"torch", "float16"}, Meaning::kDType, DType::kF16},
    TorchName{{"torch", "bfloat16"}, Meaning::kDType, DType::kBF16},
    TorchName{{"torch", "int64"}, Meaning::kDType, DType::kI64},
    TorchName{{"torch", "int32"}, Meaning::kDType, DType::kI32},
    TorchName{{"torch", "int16"}, Meaning::kDType, DType::kI16},
    TorchName{{"torch", "int8"}, Meaning::kDType, DType::kI8},
    TorchName{{"torch", "uint8"}, Meaning::kDType, DType::kU8},
    TorchName{{"torch", "bool"}, Meaning::kDType, DType::kBool},
    TorchName{{"torch", "float8_e4m3fn"}, Meaning::kDType, DType::kF8E4M3},
    TorchName{{"torch", "float8_e5m2"}, Meaning::kDType, DType::kF8E5M2},
};

constexpr auto kGlobals = [] {
  std::array<PickleGlobal, kNames.size()> globals{};
  for (size_t i = 0; i < kNames.size(); ++i) globals[i] = kNames[i].global;
  return globals;
}();

// What a persistent id says of a storage.
struct StorageRef {
  std::string_view key;
  std::optional<DType> dtype;  // nothing: bytes
  int64_t numel = 0;
};

/// Gives the bytes of a storage; throws when there is none of that key.
class Storages {
 public:
  virtual ~Storages() = default;
  virtual std::span<const std::byte> find(std::string_view key) const = 0;
};

/// Makes sense of the values of a pickle.
class TorchReader {
 public:
  TorchReader(const Pickle& pickle, std::string_view where) : values_(pickle.values), where_(where) {}

  std::vector<TorchTensor> tensors(PickleId root, const Storages& storages) const {
    const PickleValue& dict = values_[root];
    if (dict.kind != Kind::kDict) fail("it holds no dict of tensors");
    std::vector<TorchTensor> tensors;
    std::string others;
    for (size_t i = 0; i + 1 < dict.items.size(); i += 2) {
      const PickleValue &key = values_[dict.items[i]], &value = values_[dict.items[i + 1]];
      if (key.kind == Kind::kString && is_tensor(value)) {
        tensors.push_back(tensor(std::string(key.text), value, storages));
      } else if (others.size() < 400) {
        others += cat(others.empty() ? "" : ", ",
                      key.kind == Kind::kString ? quote(key.text) : "a key that is no string");
      }
    }
    if (tensors.empty()) fail(cat("its dict has no tensors", others.empty() ? "" : cat(", but ", others)));
    if (!others.empty()) LMD_LOG(kInfo, where_, ": left out, being no tensors: ", others);
    return tensors;
  }

  // ("storage", kind, key, device, number of elements[, view])
  StorageRef storage(const PickleValue& value, std::string_view owner) const {
    if (value.kind != Kind::kPersistent) fail(owner, "is not made from a storage");
    const PickleValue& id = values_[value.items[0]];
    if (id.kind != Kind::kTuple || id.items.size() < 5 || !is_text(id.items[0], "storage"))
      fail(owner, "has a storage that is described in another way");
    const PickleValue &kind = values_[id.items[1]], &key = values_[id.items[2]];
    if (key.kind != Kind::kString) fail(owner, "has a storage whose key is no string");
    if (id.items.size() > 5 && values_[id.items[5]].kind != Kind::kNone)
      fail(owner, "has a storage that is a part of another, which is not supported", ErrorCode::kUnsupported);
    StorageRef ref;
    ref.key = key.text;
    ref.numel = integer(id.items[4], owner);
    const TorchName* name = name_of(kind);
    if (name == nullptr || (name->meaning != Meaning::kStorage && name->meaning != Meaning::kBytes))
      fail(owner, "has a storage of an unknown kind");
    if (name->meaning == Meaning::kStorage) ref.dtype = name->dtype;
    return ref;
  }

  std::vector<int64_t> integers(PickleId id, std::string_view owner) const {
    std::vector<int64_t> out;
    if (values_[id].kind != Kind::kTuple && values_[id].kind != Kind::kList)
      fail(owner, "has sizes that are no tuple");
    for (const PickleId item : values_[id].items) out.push_back(integer(item, owner));
    return out;
  }

  [[noreturn]] void fail(const std::string& what, ErrorCode code = ErrorCode::kInvalidData) const {
    throw Error(code, cat(where_, ": ", what));
  }

 private:
  [[noreturn]] void fail(std::string_view tensor, const std::string& what,
                         ErrorCode code = ErrorCode::kInvalidData) const {
    fail(cat("tensor ", quote(tensor), " ", what), code);
  }

  const TorchName* name_of(const PickleValue& value) const {
    return value.kind == Kind::kGlobal ? &kNames[static_cast<size_t>(value.number)] : nullptr;
  }
  bool is_text(PickleId id, std::string_view text) const {
    return values_[id].kind == Kind::kString && values_[id].text == text;
  }
  int64_t integer(PickleId id, std::string_view owner) const {
    if (values_[id].kind != Kind::kInt || values_[id].number < 0)
      fail(owner, "has a size, stride or offset that is no integer from 0 up");
    return values_[id].number;
  }

  Meaning call_of(const PickleValue& value) const {
    return value.kind == Kind::kCall ? name_of(values_[value.items[0]])->meaning : Meaning::kOther;
  }
  bool is_tensor(const PickleValue& value) const { return call_of(value) != Meaning::kOther; }
  const std::vector<PickleId>& arguments(const PickleValue& call) const {
    return values_[call.items[1]].items;
  }

  TorchTensor tensor(std::string name, const PickleValue& value, const Storages& storages) const {
    const PickleValue* call = &value;
    if (call_of(*call) == Meaning::kParameter) {
      if (arguments(*call).empty()) fail(name, "is a parameter without a tensor");
      call = &values_[arguments(*call)[0]];
    }
    const Meaning meaning = call_of(*call);
    if (meaning != Meaning::kTensor && meaning != Meaning::kTensorV3)
      fail(name, "is a parameter of what is no tensor");
    const std::vector<PickleId>& given = arguments(*call);
    if (given.size() < (meaning == Meaning::kTensorV3 ? 7u : 4u))
      fail(name, cat("has ", given.size(), " arguments"));
    const StorageRef ref = storage(values_[given[0]], name);
    TorchTensor out;
    out.name = std::move(name);
    out.dtype = dtype(out.name, ref, meaning == Meaning::kTensorV3 ? &values_[given[6]] : nullptr);
    place(out, integer(given[1], out.name), integers(given[2], out.name), integers(given[3], out.name),
          bytes_of(ref, storages, out.name));
    return out;
  }

  DType dtype(const std::string& name, const StorageRef& ref, const PickleValue* given) const {
    const TorchName* known = given == nullptr ? nullptr : name_of(*given);
    if (given != nullptr && (known == nullptr || known->meaning != Meaning::kDType))
      fail(name, "has an unknown dtype");
    if (known != nullptr) return known->dtype;
    if (!ref.dtype) fail(name, "has a storage without a dtype");
    return *ref.dtype;
  }

  std::span<const std::byte> bytes_of(const StorageRef& ref, const Storages& storages,
                                      const std::string& name) const {
    const std::span<const std::byte> bytes = storages.find(ref.key);
    const auto element = static_cast<uint64_t>(block_bytes(ref.dtype.value_or(DType::kU8)));
    if (static_cast<uint64_t>(ref.numel) > bytes.size() / element)
      fail(name, cat("has a storage of ", ref.numel, " elements; storage ", quote(ref.key), " has ",
                     bytes.size(), " bytes"));
    return bytes.first(static_cast<size_t>(ref.numel) * element);
  }

  // Checks that every element lies in the storage.
  void place(TorchTensor& out, int64_t offset, const std::vector<int64_t>& sizes,
             const std::vector<int64_t>& strides, std::span<const std::byte> storage) const {
    if (sizes.size() > Shape::kMaxRank)
      fail(out.name, cat("has ", sizes.size(), " dimensions, at most ", Shape::kMaxRank, " are supported"),
           ErrorCode::kUnsupported);
    if (strides.size() != sizes.size())
      fail(out.name, cat("has ", sizes.size(), " dimensions but ", strides.size(), " strides"));
    const std::optional<size_t> bytes = tensor_bytes(out.dtype, sizes);
    if (!bytes) fail(out.name, cat("has shape ", dims_to_string(sizes), ": its size overflows"));
    out.shape = Shape(sizes);
    if (*bytes == 0) return;
    const std::string found = cat("shape ", dims_to_string(sizes), " with strides ", dims_to_string(strides),
                                  " at element ", offset, " of ", to_string(out.dtype));
    if (*bytes > storage.size())
      fail(out.name, cat("has ", found, ", more elements than its storage of ", storage.size(), " bytes"),
           ErrorCode::kUnsupported);
    for (size_t i = 0; i < sizes.size(); ++i)
      if (sizes[i] > 1 && strides[i] == 0)
        fail(out.name, cat("has ", found, ": one element stands for many, which is not supported"),
             ErrorCode::kUnsupported);
    const auto element = static_cast<size_t>(block_bytes(out.dtype));
    const std::optional<size_t> span = element_span(sizes, strides);
    const size_t room = storage.size() / element, begin = static_cast<size_t>(offset);
    if (!span || begin > room || *span > room - begin)
      fail(out.name, cat("has ", found, ", past the end of its storage of ", storage.size(), " bytes"));
    if (!contiguous(sizes, strides)) out.strides = strides;
    out.stored = storage.subspan(begin * element, *span * element);
  }

  // From the first element to the end of the last; nothing on overflow.
  static std::optional<size_t> element_span(const std::vector<int64_t>& sizes,
                                            const std::vector<int64_t>& strides) {
    int64_t last = 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
      int64_t step = 0;
      if (__builtin_mul_overflow(sizes[i] - 1, strides[i], &step) ||
          __builtin_add_overflow(last, step, &last))
        return std::nullopt;
    }
    return static_cast<size_t>(last) + 1;
  }
  static bool contiguous(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
    int64_t wanted = 1;
    for (size_t i = sizes.size(); i-- > 0; wanted *= sizes[i])
      if (sizes[i] > 1 && strides[i] != wanted) return false;
    return true;
  }

  const std::vector<PickleValue>& values_;
  std::string_view where_;
};

// ---- the zip form

class ZipStorages : public Storages {
 public:
  ZipStorages(std::span<const std::byte> bytes, std::string_view where) : where_(where) {
    constexpr std::string_view kPickle = "data.pkl";
    for (const ZipEntry& entry : parse_zip(bytes, where)) {
      entries_.emplace(entry.name, entry);
      const bool in_folder = entry.name.ends_with("/data.pkl");
      if (entry.name == kPickle || in_folder)
        folder_ = entry.name.substr(0, entry.name.size() - kPickle.size());
    }
    const std::string order = cat(folder_, "byteorder");
    if (entries_.contains(order) && text_of(order) != "little")
      throw Error(ErrorCode::kUnsupported,
                  cat(where_, ": its byteorder is ", quote(text_of(order)), ", expected \"little\""));
  }

  std::span<const std::byte> pickle() const { return content(cat(folder_, "data.pkl")); }
  std::span<const std::byte> find(std::string_view key) const override {
    return content(cat(folder_, "data/", key));
  }

 private:
  std::span<const std::byte> content(const std::string& name) const {
    const auto found = entries_.find(name);
    if (found == entries_.end())
      throw Error(ErrorCode::kInvalidData, cat(where_, ": the archive has no entry ", quote(name)));
    if (found->second.method != 0)
      throw Error(ErrorCode::kUnsupported,
                  cat(where_, ": entry ", quote(name), " is compressed (method ", found->second.method,
                      "); torch.save stores entries as they are"));
    return found->second.bytes;
  }
  std::string_view text_of(const std::string& name) const {
    const auto bytes = content(name);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  std::map<std::string_view, ZipEntry> entries_;
  std::string_view folder_;  // "archive/"
  std::string_view where_;
};

// ---- the older form: pickles of a magic number, a protocol, sizes of C types, the object and a list of
// storage keys; then for each key the number of elements and the elements.

constexpr std::string_view kLegacyMagic("\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 13);
constexpr int64_t kLegacyProtocol = 1001;

class LegacyStorages : public Storages {
 public:
  explicit LegacyStorages(std::string_view where) : where_(where) {}

  // `kinds`: the storages that the object mentions.
  void read(ByteReader& reader, const std::vector<std::string_view>& keys,
            const std::map<std::string_view, StorageRef>& kinds) {
    for (const std::string_view key : keys) {
      const auto kind = kinds.find(key);
      if (kind == kinds.end())
        throw Error(ErrorCode::kInvalidData, cat(where_, ": storage ", quote(key), " belongs to no tensor"));
      const auto numel = reader.read<int64_t>("a number of elements");
      const int64_t element = block_bytes(kind->second.dtype.value_or(DType::kU8));
      int64_t size = 0;
      if (numel < 0 || __builtin_mul_overflow(numel, element, &size))
        throw Error(ErrorCode::kInvalidData,
                    cat(where_, ": storage ", quote(key), " is said to have ", numel, " elements"));
      if (!storages_.emplace(key, reader.take(static_cast<uint64_t>(size), cat("storage ", quote(key))))
               .second)
        throw Error(ErrorCode::kInvalidData, cat(where_, ": storage ", quote(key), " is there twice"));
    }
  }

  std::span<const std::byte> find(std::string_view key) const override {
    const auto found = storages_.find(key);
    if (found == storages_.end())
      throw Error(ErrorCode::kInvalidData, cat(where_, ": there is no storage ", quote(key)));
    return found->second;
  }

 private:
  std::map<std::string_view, std::span<const std::byte>> storages_;
  std::string_view where_;
};

Pickle next_pickle(ByteReader& reader, std::span<const std::byte> bytes, std::string_view where) {
  Pickle pickle = parse_pickle(bytes.subspan(reader.position()), where, kGlobals);
  reader.take(pickle.size, "a pickle");
  return pickle;
}

// {"protocol_version": 1001, "little_endian": True, ...}
void check_system(const Pickle& system, const TorchReader& reader) {
  const PickleValue& dict = system.values[system.root];
  for (size_t i = 0; dict.kind == Kind::kDict && i + 1 < dict.items.size(); i += 2) {
    const PickleValue &key = system.values[dict.items[i]], &value = system.values[dict.items[i + 1]];
    if (key.kind == Kind::kString && key.text == "little_endian" && value.number == 0)
      reader.fail("its numbers are big-endian, which is not supported", ErrorCode::kUnsupported);
  }
}

std::map<std::string_view, StorageRef> storage_kinds(const Pickle& object, const TorchReader& reader) {
  std::map<std::string_view, StorageRef> kinds;
  for (const PickleValue& value : object.values) {
    if (value.kind != Kind::kPersistent) continue;
    const StorageRef ref = reader.storage(value, "(unnamed)");
    kinds.emplace(ref.key, ref);
  }
  return kinds;
}

std::vector<TorchTensor> parse_legacy(std::span<const std::byte> bytes, std::string_view where) {
  ByteReader reader(bytes, where);
  reader.take(2 + kLegacyMagic.size(), "the magic number");
  const Pickle protocol = next_pickle(reader, bytes, where);
  const PickleValue& version = protocol.values[protocol.root];
  if (version.kind != Kind::kInt || version.number != kLegacyProtocol)
    throw Error(ErrorCode::kUnsupported,
                cat(where, ": protocol ", version.number, ", expected ", kLegacyProtocol));
  const Pickle system = next_pickle(reader, bytes, where);
  check_system(system, TorchReader(system, where));
  const Pickle object = next_pickle(reader, bytes, where);
  const Pickle list = next_pickle(reader, bytes, where);
  const TorchReader torch(object, where);
  std::vector<std::string_view> keys;
  if (list.values[list.root].kind != Kind::kList) torch.fail("its storage keys are no list");
  for (const PickleId id : list.values[list.root].items) {
    if (list.values[id].kind != Kind::kString) torch.fail("a storage key is no string");
    keys.push_back(list.values[id].text);
  }
  LegacyStorages storages(where);
  storages.read(reader, keys, storage_kinds(object, torch));
  return torch.tensors(object.root, storages);
}

bool starts_with(std::span<const std::byte> bytes, size_t at, std::string_view text) {
  return bytes.size() >= at + text.size() && std::memcmp(bytes.data() + at, text.data(), text.size()) == 0;
}

}  // namespace

std::vector<TorchTensor> parse_torch(std::span<const std::byte> bytes, std::string_view where) {
  if (starts_with(bytes, 0, "PK\x03\x04")) {
    const ZipStorages storages(bytes, where);
    const std::string pickle_where = cat(where, ": data.pkl");
    const Pickle pickle = parse_pickle(storages.pickle(), pickle_where, kGlobals);
    return TorchReader(pickle, where).tensors(pickle.root, storages);
  }
  if (starts_with(bytes, 0, "\x80") && starts_with(bytes, 2, kLegacyMagic)) return parse_legacy(bytes, where);
  throw Error(ErrorCode::kInvalidData,
              cat(where, ": not a file of torch.save: neither a zip archive nor its older form"));
}

}  // namespace lmdeploy
