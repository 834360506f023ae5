#include "lmdeploy/proxy/replies.h"

#include <boost/json.hpp>

namespace lmdeploy::proxy {
namespace {

std::string_view code_of(int status) {
  switch (status) {
    case 401:
      return "unauthorized";
    case 404:
      return "not_found";
    case 405:
      return "method_not_allowed";
    case 501:
      return "unsupported_feature";
    case 502:
    case 503:
    case 504:
      return "engine_unavailable";
    default:
      return status < 500 ? "invalid_request" : "internal_error";
  }
}

JsonObject error_json(int status, const std::string& message, std::string_view code) {
  const char* const type = status < 500 ? "invalid_request_error" : "server_error";
  JsonObject error;
  error["message"] = message;
  error["type"] = type;
  error["param"] = nullptr;
  error["code"] = code.empty() ? code_of(status) : code;
  JsonObject body;
  body["error"] = std::move(error);
  body["object"] = "error";
  body["message"] = message;
  body["type"] = type;
  body["param"] = nullptr;
  body["code"] = status;
  return body;
}

std::string_view text_of(int error_code) {
  return error_code == 10400 ? "The request model name does not exist in the model list."
                             : "Failed to get response after a period of time";
}

}  // namespace

http::Response json_reply(const Json& value, int status) {
  http::Response response;
  response.status = status;
  response.body = to_json_text(value);
  return response;
}

http::Response error_reply(int status, const std::string& message, std::string_view code) {
  http::Response response = json_reply(error_json(status, message, code), status);
  if (status == 503) response.headers.set("Retry-After", "1");
  return response;
}

JsonObject node_error_json(int status, int error_code, const std::string& message) {
  JsonObject body = error_json(status, message, error_code == 10400 ? "model_not_found" : "");
  body["error_code"] = error_code;
  body["text"] = text_of(error_code);
  return body;
}

http::Response node_error_reply(int status, int error_code, const std::string& message) {
  http::Response response = json_reply(node_error_json(status, error_code, message), status);
  if (status == 503) response.headers.set("Retry-After", "1");
  return response;
}

}  // namespace lmdeploy::proxy
