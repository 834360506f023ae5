// Answers in JSON.
#pragma once

#include <vector>

#include "lmdeploy/core/json.h"
#include "lmdeploy/http/exchange.h"
#include "lmdeploy/serve/api_error.h"

namespace lmdeploy {

inline http::Response json_response(const Json& body) {
  http::Response response;
  response.body = to_json_text(body);
  return response;
}

inline JsonArray ids_json(const std::vector<int>& ids) { return JsonArray(ids.begin(), ids.end()); }

}  // namespace lmdeploy
