// INI files as Python's configparser writes them: "[section]", then "key = value".
#pragma once

#include <string_view>

#include "lmdeploy/core/json.h"

namespace lmdeploy {

/// The keys of one section, in lower case. A value becomes an integer, a number, a boolean ("True", "False")
/// or else a string. Throws Error(kInvalidData) with file and line for text that is no INI, a key that is
/// there twice, and when there is no such section.
JsonObject parse_ini(std::string_view text, std::string_view section, std::string_view where);

/// A value as it stands in an INI or YAML file: "7", "1e-06", "True", anything else.
Json scalar_from_text(std::string_view text);

}  // namespace lmdeploy
