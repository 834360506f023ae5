// JSON that may well be none: models write what they like.
#pragma once

#include <optional>
#include <string_view>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/json.h"

namespace lmdeploy {

inline std::optional<Json> try_parse_json(std::string_view text) {
  try {
    return parse_json(text, "model output");
  } catch (const Error&) {  // an ordinary outcome here
    return std::nullopt;
  }
}

}  // namespace lmdeploy
