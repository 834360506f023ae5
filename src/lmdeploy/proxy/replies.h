// What the proxy itself answers.
#pragma once

#include <string>
#include <string_view>

#include "lmdeploy/core/json.h"
#include "lmdeploy/http/message.h"

namespace lmdeploy::proxy {

http::Response json_reply(const Json& value, int status = 200);
/// {"error": {"message", "type", "param", "code"}, "object": "error", "message", "code": status}; `code`: the
/// stable name, empty for that of the status.
http::Response error_reply(int status, const std::string& message, std::string_view code = "");
/// error_reply() with the proxy's own "error_code" and "text". 10400: the model is gone; 10402: no node
/// answered.
http::Response node_error_reply(int status, int error_code, const std::string& message);
/// The object of the latter, for a stream.
JsonObject node_error_json(int status, int error_code, const std::string& message);

}  // namespace lmdeploy::proxy
