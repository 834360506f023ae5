// model.safetensors.index.json: which shard holds which tensor.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lmdeploy {

struct SafetensorsIndex {
  std::map<std::string, std::string, std::less<>> weight_map;  // tensor -> file in the same folder

  /// The files, each once, sorted.
  std::vector<std::string> files() const;
  /// The index names another file for this tensor.
  bool elsewhere(std::string_view tensor, std::string_view file) const;
};

/// `text`: the JSON. Throws Error(kInvalidData) beginning with `where`; a file name that leads out of the
/// folder is refused.
SafetensorsIndex parse_safetensors_index(std::string_view text, std::string_view where);

}  // namespace lmdeploy
