// Files as torch.save writes them, for tests.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/safetensors.h"
#include "lmdeploy/formats/test_support.h"

namespace lmdeploy {

/// An archive of these entries as they are.
inline std::string zip_of(const std::vector<std::pair<std::string, std::string>>& entries,
                          uint16_t method = 0, uint16_t flags = 0) {
  std::string out, directory;
  const auto u16 = [](size_t value) { return raw(static_cast<uint16_t>(value)); };
  const auto u32 = [](size_t value) { return raw(static_cast<uint32_t>(value)); };
  for (const auto& [name, data] : entries) {
    const std::string numbers =
        u16(flags) + u16(method) + u32(0) + u32(0) + u32(data.size()) + u32(data.size());
    directory += u32(0x02014b50) + u16(45) + u16(45) + numbers + u16(name.size()) + u16(0) + u16(0) + u16(0) +
                 u16(0) + u32(0) + u32(out.size()) + name;
    out += u32(0x04034b50) + u16(45) + numbers + u16(name.size()) + u16(0) + name + data;
  }
  const size_t count = entries.size();
  return out + directory + u32(0x06054b50) + u32(0) + u16(count) + u16(count) + u32(directory.size()) +
         u32(out.size()) + u16(0);
}

// Pieces of pickles.
inline std::string pickle_text(std::string_view text) {
  return "X" + raw(static_cast<uint32_t>(text.size())) + std::string(text);
}
inline std::string pickle_int(int64_t value) { return "\x8a\x08" + raw(value); }
inline std::string pickle_ints(const std::vector<int64_t>& values) {
  std::string out = "(";
  for (const int64_t value : values) out += pickle_int(value);
  return out + "t";
}
/// ("storage", torch.KIND, key, "cpu", numel) as a persistent id.
inline std::string pickle_storage(std::string_view kind, std::string_view key, int64_t numel) {
  return cat("(", pickle_text("storage"), "ctorch\n", kind, "\n", pickle_text(key), pickle_text("cpu"),
             pickle_int(numel), "tQ");
}
inline std::string pickle_tensor(const std::string& storage, int64_t offset,
                                 const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
  return cat("ctorch._utils\n_rebuild_tensor_v2\n(", storage, pickle_int(offset), pickle_ints(sizes),
             pickle_ints(strides),
             "\x89"
             "ccollections\nOrderedDict\n)RtR");
}
/// {name: value, ...}
inline std::string pickle_dict(const std::vector<std::pair<std::string, std::string>>& items) {
  std::string out = "\x80\x02}(";
  for (const auto& [name, value] : items) out += pickle_text(name) + value;
  return out + "u.";
}

inline std::string torch_file(const std::vector<NamedTensor>& tensors) {
  std::vector<std::pair<std::string, std::string>> items, entries;
  for (const auto& [name, tensor] : tensors) {
    std::vector<int64_t> sizes, strides(static_cast<size_t>(tensor.rank()), 1);
    for (int i = 0; i < tensor.rank(); ++i) sizes.push_back(tensor.dim(i));
    for (size_t i = strides.size(); i-- > 1;) strides[i - 1] = strides[i] * sizes[i];
    const std::string_view kind = tensor.dtype() == DType::kF32    ? "FloatStorage"
                                  : tensor.dtype() == DType::kBF16 ? "BFloat16Storage"
                                                                   : "HalfStorage";
    const std::string key = std::to_string(items.size());
    items.emplace_back(name,
                       pickle_tensor(pickle_storage(kind, key, tensor.shape().numel()), 0, sizes, strides));
    entries.emplace_back(cat("archive/data/", key), bytes_of(tensor));
  }
  entries.insert(entries.begin(), {"archive/data.pkl", pickle_dict(items)});
  return zip_of(entries);
}

}  // namespace lmdeploy
