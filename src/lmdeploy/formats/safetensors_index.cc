#include "lmdeploy/formats/safetensors_index.h"

#include <set>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/json.h"
#include "lmdeploy/formats/quote.h"
#include "lmdeploy/formats/unique_keys.h"

namespace lmdeploy {

std::vector<std::string> SafetensorsIndex::files() const {
  std::set<std::string> files;
  for (const auto& [tensor, file] : weight_map) files.insert(file);
  return {files.begin(), files.end()};
}

bool SafetensorsIndex::elsewhere(std::string_view tensor, std::string_view file) const {
  const auto found = weight_map.find(tensor);
  return found != weight_map.end() && found->second != file;
}

SafetensorsIndex parse_safetensors_index(std::string_view text, std::string_view where) {
  const Json root = parse_json(text, where);
  refuse_duplicate_keys(text, where);
  const Json* map = root.is_object() ? root.get_object().if_contains("weight_map") : nullptr;
  if (map == nullptr || !map->is_object() || map->get_object().empty())
    throw Error(ErrorCode::kInvalidData,
                cat(where, ": expected an object with \"weight_map\": {tensor: file, ...}, not empty"));
  SafetensorsIndex index;
  for (const auto& item : map->get_object()) {
    const std::string_view file = item.value().is_string() ? std::string_view(item.value().get_string()) : "";
    const bool plain = !file.empty() && file != "." && file != ".." && file.find('/') == file.npos &&
                       file.find('\0') == file.npos;
    if (!plain)
      throw Error(ErrorCode::kInvalidData,
                  cat(where, ": tensor ", quote(item.key()), " is mapped to ",
                      item.value().is_string() ? quote(file) : json_kind(item.value()),
                      ", expected the name of a file in the same folder"));
    index.weight_map.emplace(item.key(), file);
  }
  return index;
}

}  // namespace lmdeploy
