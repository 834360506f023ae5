// What the routes answer with, for openapi.json.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lmdeploy/core/json.h"

namespace lmdeploy {

struct ResponseContent {
  std::string media_type;
  std::string schema;  // its name in response_schemas(); empty: a text
};

/// Contents of the answer with status 200; none: it is empty.
std::vector<ResponseContent> response_contents(std::string_view path);

/// All schemas by name.
const JsonObject& response_schemas();

}  // namespace lmdeploy
