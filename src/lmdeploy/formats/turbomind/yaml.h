// The part of YAML that Python's yaml.dump() uses for plain data: maps and lists in block and flow form,
// plain and quoted scalars.
#pragma once

#include <string_view>

#include "lmdeploy/core/json.h"

namespace lmdeploy {

/// Throws Error(kInvalidData) with file and line for anything else: anchors, tags, text in several lines,
/// several documents, keys given twice, nesting deeper than 16.
Json parse_yaml(std::string_view text, std::string_view where);

}  // namespace lmdeploy
