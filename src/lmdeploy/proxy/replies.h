// What the proxy itself answers.
#pragma once

#include <string>

#include "lmdeploy/core/json.h"
#include "lmdeploy/http/message.h"

namespace lmdeploy::proxy {

// LMDeploy's own numbers for errors of a proxy: the model is gone; no node answered.
inline constexpr int kModelGone = 10400, kNodeFailed = 10402;

http::Response json_reply(const Json& value, int status = 200);
/// In the format of the request's path, as an api_server would say it (http/error_format.h). `code`: the
/// stable name, empty for that of the status; `param`: the field that is wrong.
http::Response error_reply(const http::Request& request, int status, const std::string& message,
                           const std::string& code = "", const std::string& param = "");
/// The same; in OpenAI's format with add_node_error().
http::Response node_error_reply(const http::Request& request, int status, int error_code,
                                const std::string& message);
/// "error_code" and its "text".
void add_node_error(JsonObject& body, int error_code);

}  // namespace lmdeploy::proxy
